package ring

import (
	"errors"
	"testing"
)

// batchReaders are the policies that PollBatch reads with in two ways: in place, and copying.
var batchReaders = map[string]func(testing.TB, *Ring) *Subscriber{
	"reliable": func(tb testing.TB, r *Ring) *Subscriber { return reliable(tb, r, 0) },
	"lossy":    func(tb testing.TB, r *Ring) *Subscriber { return lossy(tb, r, 0) },
}

func eachBatchReader(t *testing.T, capacity uint64, test func(t *testing.T, p *Publisher, s *Subscriber)) {
	t.Helper()
	for name, make := range batchReaders {
		t.Run(name, func(t *testing.T) {
			r := heap(t, Config{Capacity: capacity})
			test(t, publisher(t, r, 0), make(t, r))
		})
	}
}

// TestPollBatch: every frame once and in order, of many sizes, over padding and the wrap, some at a time.
func TestPollBatch(t *testing.T) {
	eachBatchReader(t, 64<<10, func(t *testing.T, p *Publisher, s *Subscriber) {
		published, read := uint64(0), uint64(0)
		for round := range 40 {
			for range 90 {
				if published%7 == 3 {
					c, err := p.Claim(100)
					must(t, err)
					must(t, c.Abort())
				}
				must(t, p.TryPublish(message(published, 8+int(published%5)*40)))
				published++
			}
			limit := 1 + round*5
			for read < published {
				n, err := s.PollBatch(limit, func(frames []Frame) error {
					if len(frames) == 0 || len(frames) > BatchFrames {
						t.Fatalf("%d frames in a call", len(frames))
					}
					for _, f := range frames {
						if want := message(read, 8+int(read%5)*40); string(f.Payload) != string(want) || f.Source != 0 {
							t.Fatalf("%q from %d, want frame %d", f.Payload, f.Source, read)
						}
						read++
					}
					return nil
				})
				if err != nil || n > limit {
					t.Fatalf("%d, %v with limit %d", n, err, limit)
				}
			}
		}
		if n, err := s.PollBatch(10, func([]Frame) error { t.Error("called for nothing"); return nil }); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestLargeFramesMakeRoomEarly: the cursor moves several times while a full ring is read.
func TestLargeFramesMakeRoomEarly(t *testing.T) {
	r := heap(t, Config{Capacity: 64 << 10})
	p, s := publisher(t, r, 0), reliable(t, r, 0)
	frames := fill(t, p, 2000)
	var cursors []uint64
	n, err := s.PollBatch(1000, func(frames []Frame) error {
		cursors = append(cursors, r.subscribers[0].cursor.Load())
		if p.Fits(2000) != (len(cursors) > 1) {
			t.Errorf("call %d: room is %v", len(cursors), p.Fits(2000))
		}
		return nil
	})
	if n != frames || err != nil {
		t.Fatalf("%d of %d frames, %v", n, frames, err)
	}
	if len(cursors) < 8 {
		t.Errorf("the cursor moved to %d", cursors)
	}
}

// TestBatchHandlerRefuses: an error refuses all of the call, those of an earlier call stay taken; ErrStop takes all.
func TestBatchHandlerRefuses(t *testing.T) {
	eachBatchReader(t, 64<<10, func(t *testing.T, p *Publisher, s *Subscriber) {
		for i := range uint64(BatchFrames + 10) {
			must(t, p.TryPublish(message(i, 8)))
		}
		first := func(frames []Frame, want uint64) {
			t.Helper()
			if string(frames[0].Payload) != string(message(want, 8)) {
				t.Fatalf("%q first, want frame %d", frames[0].Payload, want)
			}
		}
		refuse := errors.New("refused")
		n, err := s.PollBatch(3, func(frames []Frame) error { first(frames, 0); return refuse })
		if n != 0 || err != refuse || s.Position() != 0 {
			t.Fatalf("%d, %v at %d", n, err, s.Position())
		}
		n, err = s.PollBatch(3, func(frames []Frame) error { first(frames, 0); return ErrStop })
		if n != 3 || err != nil || s.Position() != 3*CellSize {
			t.Fatalf("%d, %v at %d", n, err, s.Position())
		}
		taken := uint64(3)
		for taken < BatchFrames+10 {
			called := false
			n, err = s.PollBatch(1000, func(frames []Frame) error {
				first(frames, taken)
				if called {
					return refuse
				}
				called = true
				taken += uint64(len(frames))
				return nil
			})
			if err != nil && err != refuse || s.Position() != Position(taken*CellSize) || n == 0 {
				t.Fatalf("%d, %v at %d after %d frames", n, err, s.Position(), taken)
			}
		}
	})
}

// TestFamiliarHeaderBeyondTheEnd: a header like that of the frames before it is still looked at where it does not fit.
func TestFamiliarHeaderBeyondTheEnd(t *testing.T) {
	r := heap(t, small(0))
	p, s := publisher(t, r, 0), reliable(t, r, 0)
	must(t, p.TryPublish(nil))
	for uint64(r.Tail()) < r.mask+1-192 {
		must(t, p.TryPublish(make([]byte, 100))) // two cells each
		drain(t, s)
	}
	must(t, p.TryPublish(make([]byte, 100)))
	end := uint64(r.Tail())
	if r.mask+1-end != CellSize {
		t.Fatalf("%d bytes to the end; this test wants one cell", r.mask+1-end)
	}
	must(t, p.TryPublish(make([]byte, 8)))
	r.data.setPlain(end+offMeta, meta(100, kindData, 0, 0))
	if got, err := poll(t, s, 10); len(got) != 1 || err != ErrCorrupt {
		t.Errorf("%d frames, %v; want the sound one and ErrCorrupt", len(got), err)
	}
	// Nor is one of which nothing is known, however it looks.
	r2 := heap(t, small(0))
	p2, s2 := publisher(t, r2, 0), reliable(t, r2, 0)
	must(t, p2.TryPublish(make([]byte, 8)))
	r2.data.setPlain(offMeta, 0)
	if got, err := poll(t, s2, 10); len(got) != 0 || err != ErrCorrupt {
		t.Errorf("%d frames, %v; want ErrCorrupt", len(got), err)
	}
}

// TestClosedKeepsNoPointers: into memory that may be gone.
func TestClosedKeepsNoPointers(t *testing.T) {
	r := heap(t, small(0))
	p, s := publisher(t, r, 0), reliable(t, r, 0)
	must(t, p.TryPublish(make([]byte, 8)))
	if got := drain(t, s); len(got) != 1 {
		t.Fatalf("%d frames", len(got))
	}
	must(t, s.Close())
	for i := range s.batch {
		if s.batch[i].Payload != nil {
			t.Fatalf("frame %d is kept", i)
		}
	}
}
