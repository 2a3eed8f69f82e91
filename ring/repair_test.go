package ring

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// condemned repairs after publisher i, which is dead, and nothing is in the way.
func condemned(tb testing.TB, r *Ring, i int) Repair {
	tb.Helper()
	must(tb, r.CondemnPublisher(i))
	done, err := r.RepairPublisher(i)
	must(tb, err)
	if st, _ := r.PublisherState(i); st.Active || st.Claimed || r.active.has(i) {
		tb.Errorf("slot %d after its repair: %+v", i, st)
	}
	return done
}

// TestRepairAtEachStep: what a publisher had done of a claim when it died decides what is
// filled; the frames of others, before and behind it, all arrive.
func TestRepairAtEachStep(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		const n = 500                           // bytes of payload: 9 cells
		for _, skip := range []int{0, 56, 63} { // the claim lies at the front, wraps with 7, with 1 cell of padding
			at := start.Add(uint64(skip+1) * 64)
			end := at + 9*64
			if off := uint64(at) % MinCapacity; off+9*64 > MinCapacity {
				end += Position(MinCapacity - off)
			}
			filled := Repair{Filled: true, From: at, To: end}
			for _, c := range []struct {
				name string
				do   func(p *Publisher) bool // true: the tail has moved
				want Repair
				own  int // frames of the dead that are there
			}{
				{"idle", func(*Publisher) bool { return false }, Repair{}, 0},
				{"computing its limit", func(p *Publisher) bool { p.slot.counter.Begin(); return false }, Repair{}, 0},
				{"intent", func(p *Publisher) bool { p.slot.intent.Store(uint64(at) | intentFlag); return false }, Repair{}, 0},
				{"claim", func(p *Publisher) bool { must(t, p.reserve(frameSize(n))); return true }, filled, 0},
				{"half a copy", func(p *Publisher) bool {
					c, err := p.Claim(n)
					must(t, err)
					copy(c.Payload, message(1, n/2))
					return true
				}, filled, 0},
				{"stamped all but the first", func(p *Publisher) bool {
					must(t, p.reserve(frameSize(n)))
					for q := p.start + 64; q != p.start+p.pad+p.size; q += 64 {
						p.stamp(q, meta(0, kindData, flagInner, 0))
					}
					return true
				}, filled, 0},
				{"committed, intent not cleared", func(p *Publisher) bool {
					c, err := p.Claim(n)
					must(t, err)
					copy(c.Payload, message(1, n))
					must(t, c.Commit())
					p.slot.intent.Store(uint64(at) | intentFlag)
					return true
				}, Repair{}, 1},
				{"aborted, intent not cleared", func(p *Publisher) bool {
					c, err := p.Claim(n)
					must(t, err)
					must(t, c.Abort())
					p.slot.intent.Store(uint64(at) | intentFlag)
					return true
				}, Repair{}, 0},
				{"committed", func(p *Publisher) bool { must(t, p.TryPublish(message(1, n))); return true }, Repair{}, 1},
			} {
				for _, behind := range []bool{false, true} {
					r := heap(t, small(start))
					p, q := publisher(t, r, 0), publisher(t, r, 1)
					rel, los := reliable(t, r, 0), lossy(t, r, 1)
					must(t, r.OpenGroup(0, Latest(), never))
					mem := member(t, r, 0, 2)
					readers := []poller{rel, los, mem}
					for range skip {
						must(t, q.TryPublish(nil))
						for _, s := range readers {
							drain(t, s)
						}
					}
					must(t, q.TryPublish([]byte("before")))
					c.do(p)
					want := []string{"before"}
					for range c.own {
						want = append(want, string(message(1, n)))
					}
					if behind {
						must(t, q.TryPublish([]byte("behind")))
						want = append(want, "behind")
					}
					expect := c.want
					if c.name == "intent" && behind {
						expect = Repair{} // the other one won it, and committed
					}
					if got := condemned(t, r, 0); got != expect {
						t.Errorf("%s, %d, %v: %+v, want %+v", c.name, skip, behind, got, expect)
					}
					must(t, r.AdmitPublisher(0)) // the slot is as good as new
					p, err := r.Publisher(0, PublisherOptions{})
					must(t, err)
					must(t, p.TryPublish([]byte("again")))
					want = append(want, "again")
					for i, s := range readers {
						if got := payloads(drain(t, s)); strings.Join(got, "|") != strings.Join(want, "|") {
							t.Errorf("%s, %d, %v: reader %d got %d frames, not the %d", c.name, skip, behind, i, len(got), len(want))
						}
					}
					// And who joins now finds its way as well.
					if _, frames, _ := joined(t, r, At(start.Add(uint64(skip)*64))); len(frames) != len(want) {
						t.Errorf("%s, %d, %v: a joiner got %d frames of %d", c.name, skip, behind, len(frames), len(want))
					}
				}
			}
		}
	})
}

// TestRepairWaitsForTheLiving: as long as a living publisher's intent names the dead one's
// position, one of the two has lost and nobody knows which.
func TestRepairWaitsForTheLiving(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, c := range []struct {
			name string
			move func(r *Ring, live *Publisher)
			want Repair
		}{
			{"it gives up", func(_ *Ring, live *Publisher) { live.forget() }, Repair{Filled: true, From: start, To: start + 64}},
			{"it tries further on", func(_ *Ring, live *Publisher) { must(t, live.TryPublish(nil)) }, Repair{Filled: true, From: start, To: start + 64}},
			{"it dies too", func(r *Ring, live *Publisher) { must(t, r.CondemnPublisher(1)) }, Repair{Filled: true, From: start, To: start + 64}},
			{"it was the one that claimed, and commits", func(_ *Ring, live *Publisher) {
				live.start, live.pad, live.size = uint64(start), 0, 64
				live.stamp(uint64(start), meta(0, kindData, 0, 1))
				live.settle(1)
			}, Repair{}},
		} {
			r := heap(t, small(start))
			dead, live := publisher(t, r, 0), publisher(t, r, 1)
			must(t, dead.reserve(64))
			live.slot.intent.Store(uint64(start) | intentFlag)
			must(t, r.CondemnPublisher(0))
			for range 3 {
				if done, err := r.RepairPublisher(0); err != ErrRepairPending || done != (Repair{}) {
					t.Fatalf("%s: %+v, %v", c.name, done, err)
				}
				if !r.active.has(0) || r.publishers[0].state.Load() != pubDead {
					t.Error("the slot was freed")
				}
			}
			c.move(r, live)
			done, err := r.RepairPublisher(0)
			must(t, err)
			if done != c.want {
				t.Errorf("%s: %+v, want %+v", c.name, done, c.want)
			}
		}
	})
}

// TestSeveralDeadInEveryOrder: three dead with claims side by side, repaired in every
// order, whatever the order in which the broker learned of them.
func TestSeveralDeadInEveryOrder(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	eachStart(t, func(t *testing.T, start Position) {
		for _, order := range orders {
			for _, together := range []bool{true, false} {
				r := heap(t, small(start))
				s := reliable(t, r, 0)
				var size [3]Position
				live := publisher(t, r, 3)
				var dead [3]*Publisher
				for i := range dead {
					dead[i] = publisher(t, r, i)
					must(t, dead[i].reserve(uint64(i+1)*64))
					size[i] = Position(i+1) * 64
				}
				must(t, live.TryPublish([]byte("behind")))
				if together {
					for _, i := range order {
						must(t, r.CondemnPublisher(i))
					}
				}
				for _, i := range order {
					if !together {
						must(t, r.CondemnPublisher(i))
					}
					done, err := r.RepairPublisher(i)
					must(t, err)
					from := Position(dead[i].start)
					if want := (Repair{Filled: true, From: from, To: from + size[i]}); done != want {
						t.Errorf("order %v, together %v: publisher %d: %+v, want %+v", order, together, i, done, want)
					}
				}
				if got := payloads(drain(t, s)); strings.Join(got, "") != "behind" || s.Position() != r.Tail() {
					t.Errorf("order %v: %q", order, got)
				}
			}
		}
	})
}

// TestRepairAgain: a broker that dies while it repairs leaves what its successor finishes.
func TestRepairAgain(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		skip := Position(60*64) - start%MinCapacity // the hole wraps
		r := heap(t, small(start+skip&(MinCapacity-1)))
		at := r.Tail()
		p := publisher(t, r, 0)
		s := reliable(t, r, 0)
		must(t, p.reserve(9*64)) // 4 cells of padding, 9 of claim
		must(t, r.CondemnPublisher(0))
		// It had written the last piece, and not yet the first, which makes all visible.
		p.stampPadding(uint64(at)+4*64, 9*64, flagRepair|flagInner)
		if s.Ready() {
			t.Error("ready in the middle of a repair")
		}
		done, err := r.RepairPublisher(0)
		must(t, err)
		if want := (Repair{Filled: true, From: at, To: at + 13*64}); done != want {
			t.Errorf("%+v, want %+v", done, want)
		}
		// The piece behind the wrap is not where a claim begins.
		if h := header(r.data.plain(offMeta)); h.flags() != flagRepair|flagInner || h.kind() != kindPadding || h.size() != 9*64 {
			t.Errorf("%#x", uint64(h))
		}
		if h := header(r.data.plain(uint64(at)&r.mask + offMeta)); h.flags() != flagRepair || h.size() != 4*64 {
			t.Errorf("%#x", uint64(h))
		}
		// Or it had freed the slot but for its state.
		r.publishers[0].state.Store(pubDead)
		if done, err := r.RepairPublisher(0); err != nil || done != (Repair{}) {
			t.Errorf("%+v, %v", done, err)
		}
		if got := drain(t, s); len(got) != 0 || s.Position() != r.Tail() {
			t.Errorf("reader at %d of %d", s.Position(), r.Tail())
		}
	})
}

// TestStaleIntents: a position that its owner lost long ago is not touched, also when the
// cell is in use again.
func TestStaleIntents(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, frames := range []int{1, 63, 64, 65, 500} {
			r := heap(t, small(start))
			p := publisher(t, r, 0)
			publisher(t, r, 1)
			for i := range frames {
				must(t, p.TryPublish(message(uint64(i), 48)))
			}
			before := string(heapCopy(r))
			r.publishers[1].intent.Store(uint64(start) | intentFlag)
			if done := condemned(t, r, 1); done != (Repair{}) {
				t.Errorf("after %d frames: %+v", frames, done)
			}
			if string(heapCopy(r)) != before {
				t.Errorf("after %d frames: the data was changed", frames)
			}
		}
	})
}

func heapCopy(r *Ring) []byte { return append([]byte(nil), r.data.bytes(0, r.cfg.Capacity)...) }

// TestCorruptIntents are no error for the others: the slot is freed, and nothing is filled.
func TestCorruptIntents(t *testing.T) {
	watchdog(t, time.Minute)
	eachStart(t, func(t *testing.T, start Position) {
		for _, c := range []struct {
			word    uint64
			corrupt bool
		}{
			{2, true}, {uint64(start), uint64(start) != 0}, {uint64(start) | 3, true}, {1<<64 - 1, true}, {1 << 63, true},
			{uint64(start+64) | 1, false}, {uint64(start+1<<62) | 1, false}, {uint64(start-64) | 1, false}, {uint64(start-1<<40) | 1, false},
		} {
			r := heap(t, small(start))
			s := reliable(t, r, 0)
			live := publisher(t, r, 1)
			publisher(t, r, 0)
			must(t, live.TryPublish([]byte("x")))
			r.publishers[0].intent.Store(c.word)
			must(t, r.CondemnPublisher(0))
			done, err := r.RepairPublisher(0)
			must(t, err)
			if done.Corrupt != c.corrupt {
				t.Errorf("intent %#x: %+v", c.word, done)
			}
			if got := payloads(drain(t, s)); len(got) != 1 {
				t.Errorf("intent %#x: %q", c.word, got)
			}
			must(t, r.AdmitPublisher(0))
		}
	})
}

// TestDeadPublisherHoldsItsClaim until the repair: others must not lap what is to be filled.
func TestDeadPublisherHoldsItsClaim(t *testing.T) {
	r := heap(t, small(0))
	dead, live := publisher(t, r, 0), publisher(t, r, 1)
	must(t, dead.reserve(64))
	must(t, r.CondemnPublisher(0))
	if n := fill(t, live, 0); n != 63 {
		t.Errorf("%d frames behind the claim of a dead publisher, want 63", n)
	}
	done, err := r.RepairPublisher(0)
	must(t, err)
	if want := (Repair{Filled: true, To: 64}); done != want {
		t.Errorf("%+v", done)
	}
	for range 200 {
		must(t, live.TryPublish(nil))
	}
}

// TestLastPiece: pieces of padding never wrap, and their length fits the header, in rings
// larger than any test has memory for.
func TestLastPiece(t *testing.T) {
	for _, capacity := range []uint64{MinCapacity, 1 << 30, 1 << 32, 1 << 40} {
		r := &Ring{mask: capacity - 1}
		for _, base := range []Position{0, 1 << 41, -Position(capacity) & (1<<64 - 1), 1 << 63} {
			for _, hole := range []struct{ from, n uint64 }{
				{0, 64}, {64, capacity - 64}, {capacity - 64, 128}, {capacity - 64, 64}, {64, capacity}, {capacity / 2, capacity}, {0, capacity},
			} {
				at := base.Add(hole.from)
				end := at.Add(hole.n)
				pieces := 0
				for p := end; at.Before(p); pieces++ {
					from := r.lastPiece(at, p)
					n := uint64(p.Sub(from))
					if from.Before(at) || !from.Before(p) || !from.Aligned() || n > maxClaim || uint64(from)&r.mask+n > capacity {
						t.Fatalf("capacity %d, hole of %d at %d: piece of %d at %d", capacity, hole.n, at, n, from)
					}
					if got := frameSize(uint64(uint32(n - HeaderSize))); got != n {
						t.Fatalf("a padding frame of %d bytes says %d", n, got)
					}
					p = from
				}
				if most := int(hole.n/maxClaim) + 3; pieces > most {
					t.Errorf("capacity %d, hole of %d: %d pieces", capacity, hole.n, pieces)
				}
			}
		}
	}
}

// TestRepairedPublisherNumbers: what the slot said is not the next tenant's.
func TestRepairedPublisherNumbers(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	for range 5 {
		must(t, p.TryPublish(nil))
	}
	condemned(t, r, 0)
	p = publisher(t, r, 0)
	if st, _ := r.PublisherState(0); st != (PublisherState{Active: true, Limit: 320, Bytes: st.Bytes}) {
		t.Errorf("%+v", st)
	}
	must(t, p.TryPublish(nil))
	if st, _ := r.PublisherState(0); st.Frames != 1 || fmt.Sprint(st.Limit) != "4416" {
		t.Errorf("%+v", st)
	}
}
