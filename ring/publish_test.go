package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPublishedFramesArriveInOrderAcrossManyLaps(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, c := range []Config{{}, {Exclusive: true}, {Fenced: true}, {Exclusive: true, Fenced: true}} {
			c.Capacity, c.Start, c.Key = MinCapacity, start, 42
			t.Run(fmt.Sprintf("exclusive=%v,fenced=%v", c.Exclusive, c.Fenced), func(t *testing.T) {
				r := heap(t, c)
				p := publisher(t, r, 0)
				s := reliable(t, r, 5)
				next, seen := uint64(0), uint64(0)
				at := start
				for seen < 5000 {
					size := 8 + int(next*37%900)
					err := p.TryPublish(message(next, size))
					if err == nil {
						next++
						continue
					}
					if err != ErrBackpressure {
						t.Fatal(err)
					}
					n, err := s.Poll(3, func(f Frame) error {
						if id := binary.NativeEndian.Uint64(f.Payload); id != seen || string(f.Payload) != string(message(seen, 8+int(seen*37%900))) {
							t.Fatalf("frame %d of %d bytes, want %d", id, len(f.Payload), seen)
						}
						if f.Position.Before(at) || f.Source != 0 || f.Redelivered != 0 {
							t.Fatalf("frame %d at %d, behind %d, from %d", seen, f.Position, at, f.Source)
						}
						at = f.Position.Add(uint64(FrameSize(len(f.Payload))))
						seen++
						return nil
					})
					if err != nil || n == 0 {
						t.Fatalf("Poll: %d, %v at %d", n, err, seen)
					}
				}
			})
		}
	})
}

// TestPayloadSizes: every size from none to the maximum arrives as it was sent, and one
// byte more is refused.
func TestPayloadSizes(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 3)
		s := reliable(t, r, 0)
		if p.MaxPayload() != 1008 || p.Index() != 3 {
			t.Errorf("maximum %d, index %d", p.MaxPayload(), p.Index())
		}
		for n := 0; n <= 1008; n++ {
			want := message(uint64(n), n)
			must(t, p.TryPublish(want))
			got := drain(t, s)
			if len(got) != 1 || got[0].payload != string(want) || got[0].source != 3 {
				t.Fatalf("%d bytes: %v", n, got)
			}
		}
		tail := r.Tail()
		wantErr(t, p.TryPublish(make([]byte, 1009)), ErrTooLarge)
		wantErr(t, p.TryPublish(make([]byte, 1<<20)), ErrTooLarge)
		if r.Tail() != tail {
			t.Error("tail moved")
		}
		must(t, p.TryPublish(nil))
		if got := drain(t, s); len(got) != 1 || got[0].payload != "" {
			t.Errorf("nil: %v", got)
		}
	})
}

// TestMaxPayloadOfTheConfig bounds what fits the capacity further.
func TestMaxPayloadOfTheConfig(t *testing.T) {
	c := small(0)
	c.MaxPayload = 100
	r := heap(t, c)
	p := publisher(t, r, 0)
	must(t, p.TryPublish(make([]byte, 100)))
	wantErr(t, p.TryPublish(make([]byte, 101)), ErrTooLarge)
	_, err := p.Claim(101)
	wantErr(t, err, ErrTooLarge)
	n, err := p.TryPublishBatch([][]byte{make([]byte, 100), make([]byte, 101), nil})
	if n != 1 || err != ErrTooLarge {
		t.Errorf("%d, %v", n, err)
	}
}

// TestReliableGatingIsExact: a capacity ahead of the slowest, not a cell more or less.
func TestReliableGatingIsExact(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 1)
		slow, fast := reliable(t, r, 6), reliable(t, r, 7)
		if n := fill(t, p, 0); n != 64 {
			t.Fatalf("%d frames of one cell in 64 cells", n)
		}
		wantErr(t, q.TryPublish(nil), ErrBackpressure)
		drain(t, fast)
		wantErr(t, p.TryPublish(nil), ErrBackpressure)
		for i := range 200 {
			if got, _ := poll(t, slow, 1); len(got) != 1 {
				t.Fatal(i, len(got))
			}
			drain(t, fast)
			if q.Fits(64) || !q.Fits(48) { // two cells and one
				t.Fatal("Fits is wrong")
			}
			if i%2 == 0 {
				wantErr(t, q.TryPublish(make([]byte, 64)), ErrBackpressure)
			}
			must(t, p.TryPublish(nil))
			wantErr(t, p.TryPublish(nil), ErrBackpressure)
			wantErr(t, q.TryPublish(nil), ErrBackpressure)
			if ahead := r.Tail().Sub(slow.Position()); ahead != MinCapacity {
				t.Fatalf("%d bytes ahead", ahead)
			}
		}
		// A refused publisher leaves no intent, which would hold others and repair.
		for i := range r.publishers {
			if r.publishers[i].intent.Load() != 0 {
				t.Errorf("publisher %d left an intent", i)
			}
		}
	})
}

// TestClosingAndReleasingGiveRoom.
func TestClosingAndReleasingGiveRoom(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := reliable(t, r, 0)
		reliable(t, r, 1)
		fill(t, p, 100)
		must(t, s.Close())
		wantErr(t, p.TryPublish(make([]byte, 100)), ErrBackpressure)
		must(t, r.ReleaseSubscriber(1)) // it died
		must(t, p.TryPublish(make([]byte, 100)))
		if _, err := s.Poll(1, nil); err != ErrClosed || !s.Ready() {
			t.Errorf("Poll of a closed subscriber: %v, ready %v", err, s.Ready())
		}
	})
}

// TestClaimsGateOtherPublishers: without any subscriber, an open claim is what keeps
// publishers from lapping its writer.
func TestClaimsGateOtherPublishers(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 1)
		for range 100 {
			must(t, p.TryPublish(nil))
		}
		c, err := q.Claim(1)
		must(t, err)
		copy(c.Payload, "x")
		if n := fill(t, p, 0); n != 63 {
			t.Errorf("%d frames behind an open claim, want 63", n)
		}
		if p.Fits(0) || c.Payload[0] != 'x' {
			t.Error("the claim was lapped")
		}
		must(t, c.Commit())
		for range 200 {
			must(t, p.TryPublish(nil))
		}
	})
}

// TestPublisherOfOthersMayBeClosed: a closed publisher holds nobody, and says that it is closed.
func TestPublisherClose(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 1)
		s := reliable(t, r, 0)
		c, err := p.Claim(10)
		must(t, err)
		must(t, q.TryPublish([]byte("behind")))
		must(t, p.Close())
		wantErr(t, c.Commit(), ErrNotClaimed)
		wantErr(t, p.Close(), ErrClosed)
		wantErr(t, p.TryPublish(nil), ErrClosed)
		_, err = p.Claim(0)
		wantErr(t, err, ErrClosed)
		_, err = p.TryPublishBatch([][]byte{nil})
		wantErr(t, err, ErrClosed)
		if !p.Fits(1000) {
			t.Error("who waits for room of a closed publisher would wait for ever")
		}
		if got := payloads(drain(t, s)); strings.Join(got, "") != "behind" {
			t.Errorf("%q", got)
		}
		must(t, r.CondemnPublisher(0))
		if rep, err := r.RepairPublisher(0); err != nil || rep != (Repair{}) {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

// TestDoorbells: who is named in a sleepers' word is rung for, once, by the right bell;
// and only by who has one.
func TestDoorbells(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		for i := range 2 {
			must(t, r.AdmitPublisher(i))
		}
		subs, pubs := &counter{}, &counter{}
		p, err := r.Publisher(0, PublisherOptions{Doorbell: subs, Room: pubs})
		must(t, err)
		mute, err := r.Publisher(1, PublisherOptions{})
		must(t, err)
		must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Reliable}))
		s, err := r.Subscriber(0, SubscriberOptions{Doorbell: pubs})
		must(t, err)
		must(t, s.Join(Latest(), never))
		want := func(what string, s, p int) {
			t.Helper()
			if subs.n != s || pubs.n != p {
				t.Errorf("%s: %d and %d rings, want %d and %d", what, subs.n, pubs.n, s, p)
			}
			subs.n, pubs.n = 0, 0
		}

		must(t, p.TryPublish(nil))
		want("nobody sleeps", 0, 0)
		r.sleepers.Store(1 << 5)
		must(t, mute.TryPublish(nil))
		if r.sleepers.Load() == 0 {
			t.Error("who cannot ring took the word")
		}
		must(t, p.TryPublish(nil))
		must(t, p.TryPublish(nil))
		want("a subscriber sleeps", 1, 0)
		r.sleepers.Store(3)
		if n, err := p.TryPublishBatch([][]byte{nil, nil, nil}); n != 3 {
			t.Fatal(err)
		}
		want("a batch", 1, 0)

		c, err := p.Claim(0)
		must(t, err)
		r.sleepers.Store(1)
		r.roomSleepers.Store(1 << 63)
		want("a claim", 0, 0)
		must(t, c.Commit())
		want("a commit that is in nobody's way, as nobody could have got that far", 1, 0)
		if r.roomSleepers.Load() == 0 {
			t.Error("who does not ring took the word")
		}
		for _, end := range []string{"commit", "abort"} {
			c, err = p.Claim(0)
			must(t, err)
			for range MinCapacity/4/CellSize - 1 {
				must(t, mute.TryPublish(nil))
			}
			want("others that have come a quarter of the capacity further", 0, 0)
			if end == "commit" {
				must(t, c.Commit())
			} else {
				must(t, c.Abort())
			}
			want(end+" behind them", 0, 1)
			drain(t, s)
			r.roomSleepers.Store(1)
		}
		pubs.n = 0

		must(t, mute.TryPublish(nil))
		r.roomSleepers.Store(2)
		drain(t, s)
		want("a cursor that moves", 0, 1)
		r.roomSleepers.Store(2)
		drain(t, s)
		want("one that does not", 0, 0)
		must(t, s.Close())
		want("a subscriber that leaves", 0, 1)
	})
}

// TestWithdrawnIntentRings: an intent that lost its compare-and-swap held other
// publishers; when it goes without a claim, those that sleep are woken.
func TestWithdrawnIntentRings(t *testing.T) {
	r := heap(t, small(0))
	must(t, r.AdmitPublisher(0))
	bell := &counter{}
	p, err := r.Publisher(0, PublisherOptions{Room: bell})
	must(t, err)
	reliable(t, r, 0)
	fill(t, p, 0)
	r.roomSleepers.Store(1)
	wantErr(t, p.TryPublish(nil), ErrBackpressure)
	if bell.n != 0 {
		t.Error("rang although nothing changed")
	}
	// As after a lost compare-and-swap, with others that went on: one cell less than a quarter of the capacity, and a quarter.
	for rings, behind := range []uint64{MinCapacity/4 - CellSize, MinCapacity / 4} {
		p.slot.intent.Store(uint64(r.Tail()) - behind | intentFlag)
		wantErr(t, p.TryPublish(nil), ErrBackpressure)
		if bell.n != rings || p.slot.intent.Load() != 0 {
			t.Errorf("%d behind: %d rings, want %d; intent %d", behind, bell.n, rings, p.slot.intent.Load())
		}
	}
}

// TestIntentThatMovesOnRings: a claim that lost a compare-and-swap begins further on in the end, and who waited for the first place to
// be free is woken.
func TestIntentThatMovesOnRings(t *testing.T) {
	for rings, at := range []uint64{2 * CellSize, CellSize} {
		r := heap(t, small(0))
		must(t, r.AdmitPublisher(0))
		bell := &counter{}
		p, err := r.Publisher(0, PublisherOptions{Room: bell})
		must(t, err)
		other := publisher(t, r, 1)
		for range MinCapacity / 4 / CellSize {
			must(t, other.TryPublish(nil))
		}
		r.roomSleepers.Store(1)
		p.slot.intent.Store(at | intentFlag) // a compare-and-swap was lost there
		must(t, p.reserve(CellSize))         // which takes tail to a quarter of the capacity and a cell
		if bell.n != rings || p.slot.intent.Load() != MinCapacity/4|intentFlag {
			t.Errorf("intent that was at %d: %d rings, want %d; intent %#x", at, bell.n, rings, p.slot.intent.Load())
		}
	}
}

// TestPatientPublishers: they are rung for by who makes half of the capacity free.
func TestPatientPublishers(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	bell := &counter{}
	must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Reliable}))
	s, err := r.Subscriber(0, SubscriberOptions{Doorbell: bell})
	must(t, err)
	must(t, s.Join(Latest(), never))
	nop := func(Frame) error { return nil }
	for lap := range 3 {
		fill(t, p, 0)
		r.roomPatient.Store(5)
		for read := CellSize; read <= MinCapacity; read += CellSize {
			_, err := s.Poll(1, nop)
			must(t, err)
			if rung := read >= MinCapacity/2; rung != (bell.n == lap+1) || rung != (r.roomPatient.Load() == 0) {
				t.Fatalf("lap %d, %d bytes read: %d rings", lap, read, bell.n)
			}
		}
	}
	r.roomPatient.Store(5) // there is room: whoever looks finds it
	must(t, p.TryPublish(nil))
	drain(t, s)
	if bell.n != 3 {
		t.Errorf("%d rings, want 3", bell.n)
	}
	must(t, s.Close())
	if bell.n != 4 || r.roomPatient.Load() != 0 {
		t.Errorf("%d rings, want one for who leaves", bell.n)
	}
}

// failingBell is a doorbell that was closed.
type failingBell struct{}

func (failingBell) Ring() error { return errors.New("closed") }

// TestFailingBellIsNoError: the frame is published whatever the bell says.
func TestFailingBellIsNoError(t *testing.T) {
	r := heap(t, small(0))
	must(t, r.AdmitPublisher(0))
	p, err := r.Publisher(0, PublisherOptions{Doorbell: failingBell{}, Room: failingBell{}})
	must(t, err)
	r.sleepers.Store(1)
	r.roomSleepers.Store(1)
	must(t, p.TryPublish(nil))
}

// TestExclusiveLargeClaim takes the way that copes with streaming stores.
func TestExclusiveLargeClaim(t *testing.T) {
	r := heap(t, Config{Capacity: 8 << 20, Exclusive: true})
	p := publisher(t, r, 0)
	s := reliable(t, r, 0)
	l := lossy(t, r, 1)
	want := message(5, 3<<19)
	for range 10 {
		must(t, p.TryPublish(want))
		for _, reader := range []poller{s, l} {
			if got := drain(t, reader); len(got) != 1 || got[0].payload != string(want) {
				t.Fatalf("%d frames", len(got))
			}
		}
	}
}
