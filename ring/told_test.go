package ring

import (
	"errors"
	"testing"
)

// TestEvictionWhileCopyingIsToldBeforeTheGap: a subscriber that was not evicted when its Poll
// began, and was lapped before it had copied.
func TestEvictionWhileCopyingIsToldBeforeTheGap(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := evicting(t, r, 0, 1024, 0)
		for i := range 300 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		take := func(Frame) error { t.Error("handed a frame out"); return nil }
		if n, err := s.pollCopy(16, handler{one: take}); n != 0 || err != ErrEvicted {
			t.Fatalf("%d, %v; want ErrEvicted", n, err)
		}
		var gap *GapError
		if n, err := s.Poll(16, take); n != 0 || !errors.As(err, &gap) || gap.From != start {
			t.Fatalf("%d, %v; want a gap from %d", n, err, start)
		}
		if got := drain(t, s); len(got) != 32 {
			t.Errorf("%d frames behind the gap", len(got))
		}
	})
}
