package ring

import (
	"errors"
	"fmt"
	"testing"
)

// pollers makes a reader of each policy that promises every frame here, where none is lapped.
var pollers = map[string]func(testing.TB, *Ring, int) poller{
	"reliable": func(tb testing.TB, r *Ring, slot int) poller { return reliable(tb, r, slot) },
	"lossy":    func(tb testing.TB, r *Ring, slot int) poller { return lossy(tb, r, slot) },
	"evict": func(tb testing.TB, r *Ring, slot int) poller {
		return subscriber(tb, r, slot, SubscriberConfig{Policy: Evict, EvictLag: 2048}, Latest())
	},
	"member": func(tb testing.TB, r *Ring, slot int) poller {
		must(tb, r.OpenGroup(0, Latest(), never))
		return member(tb, r, 0, slot)
	},
}

func eachPoller(t *testing.T, test func(t *testing.T, r *Ring, p *Publisher, s poller)) {
	t.Helper()
	eachStart(t, func(t *testing.T, start Position) {
		for name, make := range pollers {
			t.Run(name, func(t *testing.T) {
				r := heap(t, small(start))
				test(t, r, publisher(t, r, 0), make(t, r, 4))
			})
		}
	})
}

func TestPollLimit(t *testing.T) {
	eachPoller(t, func(t *testing.T, r *Ring, p *Publisher, s poller) {
		for i := range 20 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		for _, limit := range []int{0, -1} {
			if got, err := poll(t, s, limit); len(got) != 0 || err != nil {
				t.Errorf("limit %d: %v, %v", limit, got, err)
			}
		}
		next := uint64(0)
		for _, limit := range []int{1, 2, 3, 1, 1, 1 << 40} {
			got, err := poll(t, s, limit)
			must(t, err)
			if len(got) > limit || len(got) == 0 {
				t.Fatalf("limit %d: %d frames", limit, len(got))
			}
			for _, f := range got {
				if f.payload != string(message(next, 8)) {
					t.Fatalf("frame %d is %q", next, f.payload)
				}
				next++
			}
		}
		if next += uint64(len(drain(t, s))); next != 20 {
			t.Errorf("%d frames", next)
		}
	})
}

// TestHandlerErrorRedelivers: the frame that the handler refused comes first next time,
// and those before it do not come again.
func TestHandlerErrorRedelivers(t *testing.T) {
	eachPoller(t, func(t *testing.T, r *Ring, p *Publisher, s poller) {
		for i := range 4 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		refuse := errors.New("refused")
		for i := range uint64(4) {
			for range 3 {
				calls := 0
				n, err := s.Poll(3, func(f Frame) error {
					calls++
					if string(f.Payload) != string(message(i, 8)) {
						t.Fatalf("%q, want frame %d", f.Payload, i)
					}
					return refuse
				})
				if n != 0 || err != refuse || calls != 1 {
					t.Fatalf("%d, %v after %d calls", n, err, calls)
				}
			}
			if got, err := poll(t, s, 1); err != nil || len(got) != 1 || got[0].payload != string(message(i, 8)) {
				t.Fatalf("%v, %v", got, err)
			}
		}
	})
}

// TestHandlerStops: ErrStop counts the frame as handled and is no error, at any place.
func TestHandlerStops(t *testing.T) {
	eachPoller(t, func(t *testing.T, r *Ring, p *Publisher, s poller) {
		for i := range 12 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		next := uint64(0)
		for next < 12 {
			stop := next + 1
			n, err := s.Poll(4, func(f Frame) error {
				if string(f.Payload) != string(message(next, 8)) {
					t.Fatalf("%q, want frame %d", f.Payload, next)
				}
				if next++; next > stop {
					return ErrStop
				}
				return nil
			})
			if err != nil || n == 0 || n > 2 {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if got := drain(t, s); len(got) != 0 {
			t.Errorf("%d frames too many", len(got))
		}
	})
}

// TestPaddingOnly: a poll that finds only padding passes it, hands out nothing, and makes room.
func TestPaddingOnly(t *testing.T) {
	eachPoller(t, func(t *testing.T, r *Ring, p *Publisher, s poller) {
		for range 50 {
			for range 3 {
				c, err := p.Claim(500)
				must(t, err)
				must(t, c.Abort())
			}
			if got := drain(t, s); len(got) != 0 {
				t.Fatal(got)
			}
		}
		must(t, p.TryPublish([]byte("x")))
		if got := drain(t, s); len(got) != 1 {
			t.Errorf("%d frames", len(got))
		}
	})
}

// TestCorruptHeader: each bad field is ErrCorrupt, and the reader stays where it is, every
// time; what stood before it is handed out.
func TestCorruptHeader(t *testing.T) {
	for name, h := range map[string]uint64{
		"payload above the maximum": meta(1009, kindData, 0, 0),
		"payload beyond the end":    meta(4096, kindData, 0, 0),
		"payload of 4 GiB":          meta(1<<32-1, kindData, 0, 0),
		"padding beyond the end":    meta(4096, kindPadding, 0, 0),
		"padding of 4 GiB":          meta(1<<32-1, kindPadding, 0, 0),
		"no kind":                   meta(8, 0, 0, 0),
		"kind 3":                    meta(8, 3, 0, 0),
		"kind 255":                  meta(8, 255, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			eachPoller(t, func(t *testing.T, r *Ring, p *Publisher, s poller) {
				for range 2 {
					must(t, p.TryPublish([]byte("good")))
				}
				off := uint64(r.Tail()) & r.mask
				must(t, p.TryPublish(make([]byte, 8)))
				r.data.setPlain(off+offMeta, h)
				good := 0
				for range 4 {
					got, err := poll(t, s, 10)
					good += len(got)
					if err != nil && err != ErrCorrupt {
						t.Fatal(err)
					}
				}
				if good != 2 {
					t.Errorf("%d frames before the corrupt one, want 2", good)
				}
				tail := r.Tail()
				for range 3 {
					if got, err := poll(t, s, 10); err != ErrCorrupt || len(got) != 0 {
						t.Errorf("%v, %v", got, err)
					}
				}
				if st, _ := r.SubscriberState(4); st.Position != tail-64 {
					t.Errorf("at %d, want %d", st.Position, tail-64)
				}
			})
		})
	}
}

// TestPaddingWithoutEnd: a publisher that pads on and on in front of a reader, faster than
// it reads, does not keep it in one Poll for ever.
func TestPaddingWithoutEnd(t *testing.T) {
	for name, make := range pollers {
		t.Run(name, func(t *testing.T) {
			r := heap(t, small(0))
			s := make(t, r, 4)
			// Every cell of two laps at once cannot be, but a chain of padding that leads
			// around the ring and is stamped anew behind the reader can.
			p := publisher(t, r, 0)
			stampLap := func(from uint64) {
				for at := from; at < from+MinCapacity; at += 1024 {
					p.stampPadding(at, 1024, 0)
				}
				r.tail.Store(from + MinCapacity)
			}
			stampLap(0)
			if got, err := poll(t, s, 1); err != nil || len(got) != 0 {
				t.Fatalf("%v, %v", got, err)
			}
			st, _ := r.SubscriberState(4)
			if st.Position == 0 || st.Position > MinCapacity {
				t.Errorf("at %d", st.Position)
			}
		})
	}
}

// TestPositionAndIndex are what the reader says of itself.
func TestPositionAndIndex(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := reliable(t, r, 3)
		if s.Index() != 3 || s.Policy() != Reliable || s.Position() != start {
			t.Error(s.Index(), s.Policy(), s.Position())
		}
		must(t, p.TryPublish(make([]byte, 100)))
		got := drain(t, s)
		if s.Position() != start+128 || got[0].at != start {
			t.Errorf("%d, %+v", s.Position(), got)
		}
		if st, _ := r.SubscriberState(3); st.Position != s.Position() {
			t.Errorf("the slot says %d", st.Position)
		}
	})
}

// TestCursorMovesOncePerPoll, and not at all when nothing was there.
func TestCursorMovesOncePerPoll(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	s := reliable(t, r, 0)
	for range 10 {
		must(t, p.TryPublish(nil))
	}
	_, err := s.Poll(10, func(f Frame) error {
		if c := r.subscribers[0].cursor.Load(); c != 0 {
			return fmt.Errorf("cursor at %d while frame %d is handled", c, f.Position)
		}
		return nil
	})
	must(t, err)
	if c := r.subscribers[0].cursor.Load(); c != 640 {
		t.Errorf("cursor at %d", c)
	}
}

// TestHandlerPanic: a handler that panics has not handled its frame, nor any of the Poll.
func TestHandlerPanic(t *testing.T) {
	eachPoller(t, func(t *testing.T, r *Ring, p *Publisher, s poller) {
		for i := range 4 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = s.Poll(4, func(f Frame) error {
				if string(f.Payload) == string(message(2, 8)) {
					panic("handler")
				}
				return nil
			})
		}()
		var ids []string
		for _, f := range drain(t, s) {
			ids = append(ids, f.payload)
		}
		// At least once: nothing that was not handled is missing. Group members
		// acknowledge frame by frame, the others by the Poll.
		missing := map[string]bool{string(message(2, 8)): true, string(message(3, 8)): true}
		for _, id := range ids {
			delete(missing, id)
		}
		if len(missing) != 0 || len(ids) > 4 {
			t.Errorf("after the panic: %q", ids)
		}
	})
}
