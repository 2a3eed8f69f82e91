//go:build !race

package ring

import (
	"errors"
	"testing"
	"time"
)

// TestNoAllocations: nothing of the hot path allocates, whatever its outcome. (The race
// detector allocates on its own account.)
func TestNoAllocations(t *testing.T) {
	r := heap(t, Config{Capacity: 1 << 16, Start: starts[2]})
	p, q := publisher(t, r, 0), publisher(t, r, 1)
	rel, los, ev := reliable(t, r, 0), lossy(t, r, 1), evicting(t, r, 2, 0, time.Hour)
	must(t, r.OpenGroup(0, Latest(), never))
	a, b := member(t, r, 0, 3), member(t, r, 0, 4)
	payload, large, batch := make([]byte, 48), make([]byte, r.cfg.MaxPayload), batchOf(16, 100)
	tooLarge := make([]byte, len(large)+1)
	frames := 0
	take := func(f Frame) error { frames += 1 + len(f.Payload); return nil }
	refuse := func(Frame) error { return errRefused }
	stop := func(Frame) error { return ErrStop }
	all := func() {
		for _, s := range []poller{rel, los, ev, a, b} {
			for n := 1; n > 0; {
				var err error
				if n, err = s.Poll(16, take); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	full := func() {
		for p.TryPublish(large) == nil {
		}
	}
	for name, f := range map[string]func(){
		"TryPublish":        func() { must(t, p.TryPublish(payload)); all() },
		"TryPublish, large": func() { must(t, q.TryPublish(large)); all() },
		"TryPublish, too large": func() {
			if p.TryPublish(tooLarge) != ErrTooLarge {
				t.Fatal("not too large")
			}
		},
		"backpressure":      full,
		"Claim and Commit":  func() { c, err := p.Claim(100); must(t, err); must(t, c.Commit()); all() },
		"Claim and CommitN": func() { c, err := p.Claim(1000); must(t, err); must(t, c.CommitN(10)); all() },
		"Claim and Abort":   func() { c, err := q.Claim(1000); must(t, err); must(t, c.Abort()); all() },
		"TryPublishBatch": func() {
			if n, err := p.TryPublishBatch(batch); n != len(batch) || err != nil {
				t.Fatal(n, err)
			}
			all()
		},
		"Fits":       func() { p.Fits(100); q.Fits(10000) },
		"empty Poll": all,
		"Ready": func() {
			if rel.Ready() || los.Ready() || ev.Ready() || a.Ready() {
				t.Fatal("ready")
			}
		},
		"PollBatch": func() {
			must(t, p.TryPublish(payload))
			for _, s := range []*Subscriber{rel, los, ev} {
				if n, err := s.PollBatch(16, func(f []Frame) error { frames += len(f); return nil }); n == 0 || err != nil {
					t.Fatal(n, err)
				}
			}
			all()
		},
		"refused": func() {
			must(t, p.TryPublish(payload))
			for _, s := range []poller{rel, los, ev, a, b, a} {
				if _, err := s.Poll(16, refuse); err != errRefused {
					t.Fatal(err)
				}
			}
			all()
		},
		"stopped": func() {
			must(t, p.TryPublish(payload))
			must(t, p.TryPublish(payload))
			for _, s := range []poller{rel, los, ev, a, b} {
				if _, err := s.Poll(16, stop); err != nil {
					t.Fatal(err)
				}
			}
			all()
		},
	} {
		t.Run(name, func(t *testing.T) {
			drain(t, rel)
			all()
			f() // what is made once, is made here
			if name == "backpressure" {
				defer all()
			}
			if n := testing.AllocsPerRun(300, f); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	if frames == 0 {
		t.Error("nothing was read")
	}
}

// TestGapsDoNotAllocate: who is lapped all the time is not a burden to the collector as well.
func TestGapsDoNotAllocate(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	s := lossy(t, r, 0)
	gaps := 0
	lap := func() {
		for range 100 {
			must(t, p.TryPublish(nil))
		}
		if _, err := s.Poll(10, func(Frame) error { return nil }); errors.Is(err, ErrOverrun) {
			gaps++
		}
	}
	if n := testing.AllocsPerRun(100, lap); n != 0 || gaps != 101 {
		t.Errorf("%v allocations, %d gaps", n, gaps)
	}
}
