package ring

import (
	"errors"
	"testing"
	"time"
)

// Memory that a peer can write may say anything: these are the values that once did
// harm. The fuzz targets look for more.

// TestTailOffTheGrid: a tail that is not a multiple of a cell sends nobody outside of
// the memory, or to a position that is not one.
func TestTailOffTheGrid(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, off := range []uint64{1, 8, 63, 64*64 - 1} {
			r := heap(t, small(start))
			p := publisher(t, r, 0)
			s := lossy(t, r, 0)
			for range 200 {
				must(t, p.TryPublish(nil))
			}
			r.tail.Add(off)
			if !r.Tail().Aligned() || !r.Earliest().Aligned() {
				t.Errorf("tail %d, earliest %d", r.Tail(), r.Earliest())
			}
			for range 3 {
				if _, err := poll(t, s, 10); err != nil && !errors.Is(err, ErrOverrun) {
					t.Error(err)
				}
				if !s.Position().Aligned() {
					t.Fatalf("tail off by %d: the reader is at %d", off, s.Position())
				}
			}
			must(t, r.AdmitSubscriber(1, SubscriberConfig{Policy: Reliable}))
			must(t, r.OpenGroup(0, Latest(), never))
			if c, h := r.subscribers[1].cursor.Load(), r.groups[0].head.Load(); c%64 != 0 || h%64 != 0 {
				t.Errorf("admitted at %d, group opened at %d", c, h)
			}
			wantErr(t, p.TryPublish(nil), ErrCorrupt)
			if r.publishers[0].intent.Load() != 0 {
				t.Error("an intent is left")
			}
		}
	})
}

// TestTailMovedFarDuringRepair: repair fills a capacity at most, whatever tail says.
func TestTailMovedFarDuringRepair(t *testing.T) {
	watchdog(t, time.Minute)
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		_, err := p.Claim(100)
		must(t, err)
		for _, tail := range []Position{start + 1<<62, start + 1<<62 + 8, start + 5000*64, start + 4096 + 1} {
			r.tail.Store(uint64(tail))
			if to := r.hole(start); to != start+4096 {
				t.Errorf("tail %d: the hole at %d ends at %d", tail, start, to)
			}
		}
	})
}

// TestJoinAtALimitThatIsNoPosition: a publisher's limit is a word that a peer writes, and who joins goes where it says.
func TestJoinAtALimitThatIsNoPosition(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	for range 2 {
		must(t, p.TryPublish(nil))
	}
	r.publishers[0].limit.Store(2*CellSize + MinCapacity - 39)
	s := subscriber(t, r, 0, SubscriberConfig{Policy: Reliable}, Earliest())
	if s.Position() != CellSize {
		t.Errorf("joined at %d, want %d", s.Position(), CellSize)
	}
	if got := drain(t, s); len(got) != 1 {
		t.Errorf("%d frames, want the second", len(got))
	}
}
