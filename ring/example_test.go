package ring_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// newRing is a small ring on the Go heap. In production the memory is three shared
// mappings, which package shm makes and the broker hands out.
func newRing() *ring.Ring {
	c := ring.Config{Capacity: 64 << 10}
	sizes, err := c.Footprint()
	if err != nil {
		log.Fatal(err)
	}
	r, err := ring.Format(ring.Memory{
		Ctl:     testutil.AlignedBytes(int(sizes.Ctl)),
		Cursors: testutil.AlignedBytes(int(sizes.Cursors)),
		Data:    testutil.AlignedBytes(int(sizes.Data)),
	}, c)
	if err != nil {
		log.Fatal(err)
	}
	return r
}

// newPublisher does what the broker does, and then what its client does.
func newPublisher(r *ring.Ring) *ring.Publisher {
	if err := r.AdmitPublisher(0); err != nil {
		log.Fatal(err)
	}
	p, err := r.Publisher(0, ring.PublisherOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return p
}

func newSubscriber(r *ring.Ring, policy ring.Policy) *ring.Subscriber {
	if err := r.AdmitSubscriber(0, ring.SubscriberConfig{Policy: policy}); err != nil {
		log.Fatal(err)
	}
	s, err := r.Subscriber(0, ring.SubscriberOptions{})
	if err != nil {
		log.Fatal(err)
	}
	// Nobody is computing a limit here, so there is nothing to wait for.
	if err := s.Join(ring.Latest(), func() error { return nil }); err != nil {
		log.Fatal(err)
	}
	return s
}

// printAll reads what is there.
func printAll(s *ring.Subscriber) {
	n, err := s.Poll(100, func(f ring.Frame) error {
		fmt.Printf("%d: %s\n", f.Position, f.Payload)
		return nil
	})
	fmt.Println(n, err)
}

func ExamplePublisher() {
	r := newRing()
	s := newSubscriber(r, ring.Reliable)
	p := newPublisher(r)

	if err := p.TryPublish([]byte("one")); err != nil {
		log.Fatal(err)
	}
	// The frames of one claim become visible together.
	if _, err := p.TryPublishBatch([][]byte{[]byte("two"), []byte("three")}); err != nil {
		log.Fatal(err)
	}
	printAll(s)

	// A reliable subscriber that does not read holds publishers back.
	published := 0
	for {
		err := p.TryPublish(make([]byte, 1000))
		if errors.Is(err, ring.ErrBackpressure) {
			break // try again later
		}
		published++
	}
	fmt.Println(published, "more")
	// Output:
	// 0: one
	// 64: two
	// 128: three
	// 3 <nil>
	// 63 more
}

func ExampleClaim() {
	r := newRing()
	s := newSubscriber(r, ring.Reliable)
	p := newPublisher(r)

	// Room in the ring itself: what is written here is not copied again.
	c, err := p.Claim(100)
	if err != nil {
		log.Fatal(err)
	}
	n := copy(c.Payload, "written in place")
	if err := c.CommitN(n); err != nil {
		log.Fatal(err)
	}

	c, err = p.Claim(100)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Abort(); err != nil { // readers skip it
		log.Fatal(err)
	}
	printAll(s)
	// Output:
	// 0: written in place
	// 1 <nil>
}

func ExampleSubscriber() {
	r := newRing()
	s := newSubscriber(r, ring.Lossy)
	p := newPublisher(r)

	for i := range 100 {
		if err := p.TryPublish(fmt.Appendf(nil, "%1000d", i)); err != nil {
			log.Fatal(err)
		}
	}
	// Publishers have lapped it: a lossy subscriber is told exactly what it missed.
	_, err := s.Poll(100, func(ring.Frame) error { return nil })
	var gap *ring.GapError
	if errors.As(err, &gap) {
		fmt.Printf("missed %d bytes, up to %d\n", gap.Bytes(), gap.To)
	}
	n, err := s.Poll(1, func(f ring.Frame) error {
		fmt.Printf("%d: %s\n", f.Position, f.Payload[998:])
		return nil
	})
	fmt.Println(n, err)
	// Output:
	// missed 69632 bytes, up to 69632
	// 69632: 68
	// 1 <nil>
}

func ExampleMember() {
	r := newRing()
	if err := r.OpenGroup(0, ring.Latest(), func() error { return nil }); err != nil {
		log.Fatal(err)
	}
	var workers [2]*ring.Member
	for i := range workers {
		id, err := r.AdmitMember(0, i) // subscriber slot i
		if err != nil {
			log.Fatal(err)
		}
		if workers[i], err = r.Member(0, id, ring.SubscriberOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	p := newPublisher(r)
	for _, job := range []string{"a", "b", "c"} {
		if err := p.TryPublish([]byte(job)); err != nil {
			log.Fatal(err)
		}
	}

	busy := errors.New("cannot do this now")
	_, err := workers[0].Poll(1, func(f ring.Frame) error {
		fmt.Printf("worker 0 refuses %s\n", f.Payload)
		return busy
	})
	fmt.Println(err)
	for range 3 {
		if _, err := workers[1].Poll(1, func(f ring.Frame) error {
			fmt.Printf("worker 1 does %s, handed out %d times before\n", f.Payload, f.Redelivered)
			return nil // acknowledges it
		}); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// worker 0 refuses a
	// cannot do this now
	// worker 1 does a, handed out 1 times before
	// worker 1 does b, handed out 0 times before
	// worker 1 does c, handed out 0 times before
}
