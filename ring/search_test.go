package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"testing"
)

// An exhaustive search over publishers' steps, each of which may be its last, with the
// broker condemning and repairing at every possible time. The steps are those of
// Publisher, on real memory; room checks and repairs are the real code. What claims there
// are, whose, and whether they were committed is kept apart, and compared.

// searchOp is one claim: the cells of its frames, and cells given up behind them.
type searchOp struct {
	frames []uint64
	rest   uint64
}

func (o searchOp) cells() (n uint64) {
	for _, f := range o.frames {
		n += f
	}
	return n + o.rest
}

// searchClaim is a claim as it was really made.
type searchClaim struct {
	owner       int
	start, end  uint64
	data        uint64 // where its frames begin, behind padding
	op          searchOp
	done, filed bool // committed by its owner; filled by repair
}

type actor struct {
	p         Publisher
	ops       []searchOp
	op        int // which one it is at
	pc        int
	t         uint64 // tail as it loaded it
	claim     int    // its open claim, or -1
	dead      bool
	condemned bool
	repaired  bool
}

func (a *actor) finished() bool { return a.repaired || !a.dead && a.op == len(a.ops) }

type world struct {
	t      *testing.T
	r      *Ring
	m      Memory
	actors []actor
	claims []searchClaim
	seen   map[uint64]bool
	ends   int
	deaths int // that may still happen
	filled int
	pended int
	cells  []uint64 // offsets of the cells in which a frame may begin
	seed   maphash.Seed
	buf    []byte
}

// The parts of memory that steps change: tail, publishers, and the two header words of
// the cells in which a frame may begin.
type snapshot struct {
	ctl    []byte
	cells  []uint64
	actors []actor
	claims []searchClaim
	deaths int
}

func (w *world) save() snapshot {
	s := snapshot{
		ctl: append([]byte(nil), w.m.Ctl[offTail:]...), actors: append([]actor(nil), w.actors...),
		claims: append([]searchClaim(nil), w.claims...), deaths: w.deaths,
	}
	s.cells = make([]uint64, 0, 2*len(w.cells))
	for _, off := range w.cells {
		s.cells = append(s.cells, w.r.data.plain(off), w.r.data.plain(off+8))
	}
	return s
}

func (w *world) restore(s snapshot) {
	copy(w.m.Ctl[offTail:], s.ctl)
	for i, off := range w.cells {
		w.r.data.setPlain(off, s.cells[2*i])
		w.r.data.setPlain(off+8, s.cells[2*i+1])
	}
	w.actors, w.claims, w.deaths = append(w.actors[:0], s.actors...), append(w.claims[:0], s.claims...), s.deaths
}

// key is what makes two states the same.
func (w *world) key() uint64 {
	b := append(w.buf[:0], w.m.Ctl[offTail:]...)
	word := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	for _, off := range w.cells {
		word(w.r.data.plain(off))
		word(w.r.data.plain(off + 8))
	}
	flag := func(f bool) uint64 {
		if f {
			return 1
		}
		return 0
	}
	for i := range w.actors {
		a := &w.actors[i]
		for _, v := range [...]uint64{
			uint64(a.op), uint64(a.pc), a.t, uint64(a.claim), a.p.limit, a.p.start, a.p.pad, flag(a.dead), flag(a.condemned), flag(a.repaired),
		} {
			word(v)
		}
	}
	for _, c := range w.claims {
		for _, v := range [...]uint64{uint64(c.owner), c.start, c.end, c.data, flag(c.done), flag(c.filed)} {
			word(v)
		}
	}
	word(uint64(w.deaths))
	w.buf = b
	return maphash.Bytes(w.seed, b)
}

// search tries everything that can happen next.
func (w *world) search() {
	key := w.key()
	if w.seen[key] || w.t.Failed() {
		return
	}
	w.seen[key] = true
	before := w.save()
	moved := false
	for i := range w.actors {
		for _, do := range []func(int) bool{w.step, w.die, w.condemn, w.repair} {
			if do(i) {
				moved = true
				w.search()
				w.restore(before)
			}
		}
	}
	if !moved {
		w.end()
	}
}

// step is publisher i's next step. It is false where it has none, or waits.
func (w *world) step(i int) bool {
	a := &w.actors[i]
	if a.dead || a.op == len(a.ops) {
		return false
	}
	p, op := &a.p, a.ops[a.op]
	need := op.cells() * CellSize
	switch a.pc {
	case 0: // tail and room
		a.t = p.tail.Load()
		pad := uint64(0)
		if off := a.t & p.mask; off+need > p.mask+1 {
			pad = p.mask + 1 - off
		}
		end := a.t + pad + need
		if int64(p.limit-end) < 0 && !p.refresh(pad+need, end) {
			waited := p.slot.intent.Load() == 0
			p.withdraw(p.slot.intent.Load())
			return !waited
		}
		p.pad, p.size = pad, need
	case 1:
		p.slot.intent.Store(a.t | intentFlag)
	case 2:
		end := a.t + p.pad + need
		if !p.tail.CompareAndSwap(a.t, end) {
			a.pc = 0
			return true
		}
		p.start = a.t
		for _, c := range w.claims {
			if !c.done && !c.filed && overlap(c, a.t, end, w.r.cfg.Capacity) {
				w.t.Errorf("publisher %d laps the open claim %+v with %d to %d", i, c, a.t, end)
			}
		}
		a.claim = len(w.claims)
		w.claims = append(w.claims, searchClaim{owner: i, start: a.t, end: end, data: a.t + p.pad, op: op})
	case 3: // all stamps but the first, from behind, as CommitN and commitBatch do in one order or the other
		at := p.start + p.pad + need - op.rest*CellSize
		if op.rest != 0 {
			p.stampPadding(at, op.rest*CellSize, flagInner)
		}
	case 4:
		at := p.start + p.pad + op.frames[0]*CellSize
		for _, cells := range op.frames[1:] {
			p.stamp(at, meta(uint32(cells*CellSize-HeaderSize), kindData, flagInner, uint16(i)))
			at += cells * CellSize
		}
	case 5:
		if p.pad != 0 {
			p.stamp(p.start+p.pad, meta(uint32(op.frames[0]*CellSize-HeaderSize), kindData, flagInner, uint16(i)))
		}
	case 6: // the one that commits
		if p.pad != 0 {
			p.stampPadding(p.start, p.pad, 0)
		} else {
			p.stamp(p.start, meta(uint32(op.frames[0]*CellSize-HeaderSize), kindData, 0, uint16(i)))
		}
		if w.claims[a.claim].filed {
			w.t.Errorf("the claim of living publisher %d was filled", i)
		}
		w.claims[a.claim].done = true
		a.claim = -1
	case 7:
		p.forget()
		a.op++
		a.pc = -1
	}
	a.pc++
	if a.pc == 3 && op.rest == 0 {
		a.pc = 4
	}
	if a.pc == 4 && len(op.frames) == 1 {
		a.pc = 5
	}
	if a.pc == 5 && p.pad == 0 {
		a.pc = 6
	}
	return true
}

// overlap reports whether bytes that claim c covers are in start to end of the next lap.
func overlap(c searchClaim, start, end, capacity uint64) bool {
	return int64(c.start+capacity-end) < 0 && int64(start-(c.end+capacity)) < 0
}

func (w *world) die(i int) bool {
	a := &w.actors[i]
	if a.dead || a.op == len(a.ops) || w.deaths == 0 {
		return false
	}
	w.deaths--
	a.dead = true
	return true
}

func (w *world) condemn(i int) bool {
	a := &w.actors[i]
	if !a.dead || a.condemned {
		return false
	}
	must(w.t, w.r.CondemnPublisher(i))
	a.condemned = true
	return true
}

// repair repairs after publisher i, and compares with what is known.
func (w *world) repair(i int) bool {
	a := &w.actors[i]
	if !a.condemned || a.repaired {
		return false
	}
	done, err := w.r.RepairPublisher(i)
	if errors.Is(err, ErrRepairPending) {
		w.pended++
		return false
	}
	must(w.t, err)
	a.repaired = true
	if done.Corrupt {
		w.t.Errorf("publisher %d: corrupt", i)
	}
	if done.Filled {
		if !done.From.Before(done.To) {
			w.t.Errorf("publisher %d: filled %d to %d", i, done.From, done.To)
		}
		w.filled++
		w.fill(i, uint64(done.From), uint64(done.To))
	}
	if a.claim >= 0 && !w.claims[a.claim].filed {
		w.t.Errorf("publisher %d left %+v, and it was not filled", i, w.claims[a.claim])
	}
	return true
}

// fill notes that repair filled from to to: whole claims, of the dead, that were open.
func (w *world) fill(by int, from, to uint64) {
	at := from
	for c := range w.claims {
		if claim := &w.claims[c]; claim.start == at && int64(at-to) < 0 {
			if !w.actors[claim.owner].dead || claim.done {
				w.t.Errorf("repair after %d filled %+v", by, *claim)
			}
			claim.filed = true
			at = claim.end
		}
	}
	if at != to {
		w.t.Errorf("repair after %d filled %d to %d, which is not whole claims: %+v", by, from, to, w.claims)
	}
}

// end is a state in which nothing more happens: everybody is done, and a walk over the
// ring finds all that was committed and nothing else.
func (w *world) end() {
	w.ends++
	for i := range w.actors {
		if !w.actors[i].finished() {
			w.t.Errorf("publisher %d hangs: %+v", i, &w.actors[i])
		}
	}
	tail := uint64(w.r.Tail())
	for _, c := range w.claims {
		if int64(tail-c.start) > int64(w.r.cfg.Capacity) {
			continue
		}
		at := c.start
		walk := func(kind uint8, size uint64, what string) {
			h := header(w.r.data.plain(at&w.r.mask + offMeta))
			if w.r.data.plain(at&w.r.mask) != stampOf(at, w.r.cfg.Key) || h.kind() != kind || size != 0 && h.size() != size {
				w.t.Errorf("at %d of %+v: no %s, but kind %d of %d bytes", at, c, what, h.kind(), h.size())
			}
			at += max(h.size(), CellSize)
		}
		if c.filed {
			continue // padding, perhaps of several claims in one
		}
		if c.data != c.start {
			walk(kindPadding, c.data-c.start, "padding before the wrap")
		}
		for _, cells := range c.op.frames {
			walk(kindData, cells*CellSize, "frame")
		}
		if c.op.rest != 0 {
			walk(kindPadding, c.op.rest*CellSize, "rest")
		}
	}
	w.walk(tail)
	for i := range w.actors {
		if w.actors[i].repaired { // its slot is as good as new
			must(w.t, w.r.AdmitPublisher(i))
			p, err := w.r.Publisher(i, PublisherOptions{})
			must(w.t, err)
			must(w.t, p.TryPublish([]byte("again")))
		}
	}
	w.walk(uint64(w.r.Tail()))
}

// walk goes over the ring from frame to frame, as a reader does, and must arrive at tail.
func (w *world) walk(tail uint64) {
	at := uint64(w.r.cfg.Start)
	for _, c := range w.claims { // the first claim that is still whole
		if int64(tail-c.start) <= int64(w.r.cfg.Capacity) {
			at = c.start
			break
		}
	}
	for int64(tail-at) > 0 {
		h := header(w.r.data.plain(at&w.r.mask + offMeta))
		if w.r.data.plain(at&w.r.mask) != stampOf(at, w.r.cfg.Key) || at&w.r.mask+h.size() > w.r.mask+1 {
			w.t.Errorf("a reader stops at %d of %d: %+v", at, tail, w.claims)
			return
		}
		at += h.size()
	}
	if at != tail {
		w.t.Errorf("a reader comes to %d, tail is %d", at, tail)
	}
}

// explore searches everything that publishers with these claims can do from start on.
//
// unit is what all claims are a multiple of, in cells.
func explore(t *testing.T, start Position, unit uint64, deaths int, ops ...[]searchOp) {
	t.Helper()
	c := Config{Capacity: MinCapacity, Publishers: len(ops), Subscribers: 1, Groups: 1, Start: start, Key: 99}
	m := heapMemory(t, c)
	r, err := Format(m, c)
	must(t, err)
	w := &world{t: t, r: r, m: m, seen: map[uint64]bool{}, deaths: deaths, seed: maphash.MakeSeed()}
	for i, o := range ops {
		w.actors = append(w.actors, actor{p: *publisher(t, r, i), ops: o, claim: -1})
	}
	// Claims begin at multiples of unit; behind the last one come the frames of the new
	// tenants of the slots, one cell each.
	for at := uint64(0); at < min(24*unit, 64); at++ {
		if at%unit < 4 {
			w.cells = append(w.cells, uint64(start.Add(at*CellSize))&r.mask)
		}
	}
	w.search()
	t.Logf("%d states, %d ends, %d holes filled, repair put off %d times", len(w.seen), w.ends, w.filled, w.pended)
	if !t.Failed() && (w.ends == 0 || w.filled == 0 || w.pended == 0) {
		t.Error("the search missed something")
	}
}

var (
	oneCell   = searchOp{frames: []uint64{1}}
	twoCells  = searchOp{frames: []uint64{2}}
	twoFrames = searchOp{frames: []uint64{1, 1}}
	shortened = searchOp{frames: []uint64{1}, rest: 1}
	quarter   = searchOp{frames: []uint64{16}}
)

// TestEveryDeathOfTwo: two publishers with two claims each, both of which may die.
func TestEveryDeathOfTwo(t *testing.T) {
	lefts := []uint64{4, 1, 2} // cells before the wrap
	if raceEnabled {
		lefts = lefts[2:] // one goroutine: there is nothing to detect
	}
	for _, left := range lefts {
		for _, ops := range [][2]searchOp{{oneCell, oneCell}, {twoFrames, oneCell}, {shortened, twoFrames}, {twoCells, shortened}} {
			t.Run(fmt.Sprintf("%d before the wrap, %v", left, ops), func(t *testing.T) {
				explore(t, starts[2]+Position(4096-(uint64(starts[2])+left*64)%4096), 1, 2, []searchOp{ops[0], ops[1]}, []searchOp{ops[1], ops[0]})
			})
		}
	}
}

// TestEveryDeathOfThree: three publishers with a claim each, all of which may die.
func TestEveryDeathOfThree(t *testing.T) {
	deaths := 3
	if raceEnabled {
		deaths = 1
	}
	for _, left := range []uint64{8, 1} {
		t.Run(fmt.Sprintf("%d before the wrap", left), func(t *testing.T) {
			explore(t, Position(4096-left*64), 1, deaths, []searchOp{oneCell}, []searchOp{twoFrames}, []searchOp{shortened})
		})
	}
}

// TestEveryDeathWithLaps: claims of a quarter of the ring, so that what is left open, and
// intents that are stale, meet the next lap.
func TestEveryDeathWithLaps(t *testing.T) {
	explore(t, starts[1]&^(16*64-1), 16, 1, []searchOp{quarter, quarter, quarter}, []searchOp{quarter, quarter, quarter})
	explore(t, 0, 16, 2, []searchOp{quarter}, []searchOp{quarter, quarter, quarter, quarter, quarter, quarter})
}
