package ring

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// TestLossyGapsAreExact follows a lossy reader over many laps beside a list of all that
// was published: every position is either in a frame it got, or in a gap it was told of,
// or in padding; and none twice.
func TestLossyGapsAreExact(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		rng := rand.New(rand.NewPCG(uint64(testutil.Seed(t)), 1))
		for _, capacity := range []uint64{4096, 1 << 14} {
			c := small(start)
			c.Capacity = capacity
			r := heap(t, c)
			p := publisher(t, r, 0)
			s := lossy(t, r, 0)
			at := map[Position]string{} // all frames
			pos, gaps, missed, frames := start, uint64(0), uint64(0), 0
			for range 500 {
				for range rng.IntN(100) {
					b := message(rng.Uint64(), rng.IntN(int(r.cfg.MaxPayload)+1))
					must(t, p.TryPublish(b))
					at[r.Tail()-Position(FrameSize(len(b)))] = string(b)
				}
				for polls := rng.IntN(8); polls > 0; polls-- {
					got, err := poll(t, s, 1+rng.IntN(20))
					for _, f := range got {
						if f.at.Before(pos) || at[f.at] != f.payload {
							t.Fatalf("frame at %d behind %d: %d bytes, %d published there", f.at, pos, len(f.payload), len(at[f.at]))
						}
						for q := pos; q.Before(f.at); q += 64 {
							if _, ok := at[q]; ok {
								t.Fatalf("frame at %d was passed over silently", q)
							}
						}
						pos = f.at.Add(uint64(FrameSize(len(f.payload))))
						frames++
					}
					var gap *GapError
					if errors.As(err, &gap) {
						if !errors.Is(err, ErrOverrun) || gap.From != s.r.wrapped(pos, at) && gap.From != pos {
							t.Fatalf("gap from %d, the reader is at %d", gap.From, pos)
						}
						if r.Tail().Sub(gap.From) <= int64(capacity) {
							t.Fatalf("gap from %d although tail is at %d", gap.From, r.Tail())
						}
						if gap.To != s.Position() || r.Tail().Sub(gap.To) > int64(capacity) || gap.Bytes() != uint64(gap.To.Sub(gap.From)) {
							t.Fatalf("%v, the reader is at %d, tail %d", gap, s.Position(), r.Tail())
						}
						gaps++
						missed += gap.Bytes()
						pos = gap.To
					} else {
						must(t, err)
					}
				}
			}
			st, _ := r.SubscriberState(0)
			if gaps < 10 || frames < 100 || st.Gaps != gaps || st.GapBytes != missed || st.Frames != uint64(frames) {
				t.Errorf("%d gaps of %d bytes, %d frames; the slot says %+v", gaps, missed, frames, st)
			}
		}
	})
}

// wrapped is where a reader at p stands that has passed the padding there already.
func (r *Ring) wrapped(p Position, frames map[Position]string) Position {
	if _, ok := frames[p]; ok || uint64(p)&r.mask == 0 {
		return p
	}
	return p + Position(r.cfg.Capacity-uint64(p)&r.mask)
}

// TestLossyBoundary: a capacity behind nothing is lost, a cell more and it is.
func TestLossyBoundary(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := lossy(t, r, 0)
		for range 64 {
			must(t, p.TryPublish(nil))
		}
		if got, err := poll(t, s, 1); err != nil || len(got) != 1 || got[0].at != start {
			t.Fatalf("%v, %v", got, err)
		}
		must(t, p.TryPublish(nil))
		if got, err := poll(t, s, 1); err != nil || len(got) != 1 || got[0].at != start+64 {
			t.Fatalf("%v, %v", got, err)
		}
		for range 2 {
			must(t, p.TryPublish(nil))
		}
		_, err := poll(t, s, 1)
		var gap *GapError
		if !errors.As(err, &gap) || gap.From != start+128 || gap.To != start+(67-32)*64 {
			t.Fatalf("%v", err)
		}
		if !s.Ready() || len(drain(t, s)) != 32 || s.Ready() {
			t.Error("behind the gap")
		}
		for range 65 {
			must(t, p.TryPublish(nil))
		}
		if !s.Ready() {
			t.Error("not ready although it was lapped")
		}
	})
}

// TestLossyPayloadIsACopy: it does not change while the handler has it, whatever publishers do.
func TestLossyPayloadIsACopy(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	s := lossy(t, r, 0)
	for i := range 3 {
		must(t, p.TryPublish(message(uint64(i), 48)))
	}
	next := uint64(0)
	n, err := s.Poll(3, func(f Frame) error {
		for range 200 {
			must(t, p.TryPublish(message(99, 48)))
		}
		if string(f.Payload) != string(message(next, 48)) {
			t.Errorf("frame %d was overwritten", next)
		}
		next++
		return nil
	})
	if n != 3 || err != nil {
		t.Error(n, err)
	}
}

// TestLossyTornCopyIsDropped: frames that were overwritten while they were copied are not
// handed out, nor is what a torn header said an error.
func TestLossyTornCopyIsDropped(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := lossy(t, r, 0)
		for range 4 {
			must(t, p.TryPublish(message(1, 48)))
		}
		// As a reader sees it that was slow between stamp and header: the stamp is still
		// the old one, the header the next lap's.
		r.tail.Store(uint64(start) + MinCapacity + 64)
		r.data.setPlain(uint64(start)&r.mask+offMeta, meta(1<<30, 77, 0, 0))
		got, err := poll(t, s, 10)
		var gap *GapError
		if len(got) != 0 || !errors.As(err, &gap) || gap.From != start || gap.To != r.Tail() {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestLossyResumesAtAClaim: after a gap, never at a frame inside a batch that may not be committed.
func TestLossyResumesAtAClaim(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for shift := range 8 {
			r := heap(t, small(start))
			p, q := publisher(t, r, 0), publisher(t, r, 1)
			s := lossy(t, r, 0)
			for range 64 + shift {
				must(t, p.TryPublish(nil))
			}
			for range 8 {
				if n, err := p.TryPublishBatch(batchOf(4, 0)); n != 4 {
					t.Fatal(err)
				}
			}
			// Half a capacity behind tail there is now a batch that is stamped but not committed.
			must(t, q.reserve(4*64))
			open := Position(q.start + q.pad)
			for i := range uint64(3) {
				q.stamp(uint64(open)+(i+1)*64, meta(0, kindData, flagInner, 1))
			}
			for range 24 + shift {
				must(t, p.TryPublish(nil))
			}
			_, err := poll(t, s, 1)
			var gap *GapError
			if !errors.As(err, &gap) {
				t.Fatal(err)
			}
			if gap.To.Sub(open) > 0 && gap.To.Sub(open) < 256 {
				t.Errorf("resumes %d bytes inside an open batch", gap.To.Sub(open))
			}
			if gap.To != r.Tail() && r.data.probe(uint64(gap.To)&r.mask) != stampOf(uint64(gap.To), r.cfg.Key) {
				t.Errorf("resumes at %d, where no frame is", gap.To)
			}
		}
	})
}

// TestLossyCopyIsBounded: a Poll copies a part of the ring at most, but always a frame.
func TestLossyCopyIsBounded(t *testing.T) {
	for _, size := range []int{0, 10, 1008} {
		r := heap(t, small(0))
		p := publisher(t, r, 0)
		s := lossy(t, r, 0)
		for range 4 {
			must(t, p.TryPublish(make([]byte, size)))
		}
		for total := 0; total < 4; {
			got, err := poll(t, s, 1<<40)
			must(t, err)
			if len(got) == 0 {
				t.Fatal("nothing")
			}
			total += len(got)
			if cap(s.copies.buf) > 1008 || cap(s.copies.frames) > 64 {
				t.Errorf("%d bytes and %d frames of buffer", cap(s.copies.buf), cap(s.copies.frames))
			}
		}
	}
	var c copies
	for capacity, want := range map[uint64]int{4096: 256, 1 << 20: 1 << 16, 1 << 22: 1 << 18, 1 << 40: 1 << 18} {
		if c.init(capacity); c.bound != want {
			t.Errorf("capacity %d: a poll copies %d bytes, want %d", capacity, c.bound, want)
		}
	}
}
