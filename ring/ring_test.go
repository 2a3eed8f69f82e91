package ring_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// heap makes a ring on the Go heap.
func heap(tb testing.TB, c ring.Config) *ring.Ring {
	tb.Helper()
	sizes, err := c.Footprint()
	if err != nil {
		tb.Fatal(err)
	}
	r, err := ring.Format(ring.Memory{
		Ctl:     testutil.AlignedBytes(int(sizes.Ctl)),
		Cursors: testutil.AlignedBytes(int(sizes.Cursors)),
		Data:    testutil.AlignedBytes(int(sizes.Data)),
	}, c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func publisher(tb testing.TB, r *ring.Ring, slot int) *ring.Publisher {
	tb.Helper()
	if err := r.AdmitPublisher(slot); err != nil {
		tb.Fatal(err)
	}
	p, err := r.Publisher(slot, ring.PublisherOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func subscriber(tb testing.TB, r *ring.Ring, slot int, c ring.SubscriberConfig, start ring.Start) *ring.Subscriber {
	tb.Helper()
	if err := r.AdmitSubscriber(slot, c); err != nil {
		tb.Fatal(err)
	}
	s, err := r.Subscriber(slot, ring.SubscriberOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Join(start, func() error { return nil }); err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestPublishedFramesArriveInOrderAcrossManyLaps(t *testing.T) {
	for _, start := range []ring.Position{0, ^ring.Position(0) - 4095 - 64*10} {
		start = start &^ 63
		r := heap(t, ring.Config{Capacity: 4096, Start: start, Key: 42})
		p := publisher(t, r, 3)
		s := subscriber(t, r, 5, ring.SubscriberConfig{Policy: ring.Reliable}, ring.Latest())
		next, seen := uint64(0), uint64(0)
		for seen < 10000 {
			size := 8 + int(next*37%900)
			b := make([]byte, size)
			binary.LittleEndian.PutUint64(b, next)
			err := p.TryPublish(b)
			if err == nil {
				next++
				continue
			}
			if !errors.Is(err, ring.ErrBackpressure) {
				t.Fatal(err)
			}
			n, err := s.Poll(3, func(f ring.Frame) error {
				if got := binary.LittleEndian.Uint64(f.Payload); got != seen || len(f.Payload) != 8+int(seen*37%900) || f.Source != 3 {
					t.Fatalf("frame %d of %d bytes from %d, want %d", got, len(f.Payload), f.Source, seen)
				}
				seen++
				return nil
			})
			if err != nil || n == 0 {
				t.Fatalf("Poll: %d, %v at %d", n, err, seen)
			}
		}
	}
}

func BenchmarkPublishPollSameCore(b *testing.B) {
	r := heap(b, ring.Config{Capacity: 1 << 20})
	p := publisher(b, r, 0)
	s := subscriber(b, r, 0, ring.SubscriberConfig{Policy: ring.Reliable}, ring.Latest())
	msg := make([]byte, 48)
	nop := func(ring.Frame) error { return nil }
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		if err := p.TryPublish(msg); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			s.Poll(64, nop)
		}
	}
}

func BenchmarkBatchPollSameCore(b *testing.B) {
	r := heap(b, ring.Config{Capacity: 1 << 20})
	p := publisher(b, r, 0)
	s := subscriber(b, r, 0, ring.SubscriberConfig{Policy: ring.Reliable}, ring.Latest())
	msgs := make([][]byte, 16)
	for i := range msgs {
		msgs[i] = make([]byte, 48)
	}
	nop := func(ring.Frame) error { return nil }
	b.ReportAllocs()
	for i := 0; i < b.N; i += 16 {
		if _, err := p.TryPublishBatch(msgs); err != nil {
			b.Fatal(err)
		}
		if i%64 == 48 {
			s.Poll(64, nop)
		}
	}
}
