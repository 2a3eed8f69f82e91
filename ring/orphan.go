package ring

import (
	"math/bits"

	"github.com/hugebus/hugebus/internal/failpoint"
)

// Orphans: ranges of a group that their member did not finish. An entry gates until it
// is freed, so its frames stay in the ring, and the member that takes it over may die
// as well: the entry is then offered again (docs/model/group-redeliver.pml).
//
// Order: start and end, then the bit in orphans, then the word (OFFERED), and only
// then the old owner's claim word is cleared: SYNC(orphan). Publishers look at claim
// words before they look at orphans, so they always see one of the two.

// States of an orphan entry.
const (
	orphanFree    = 0
	orphanOffered = 1
	orphanTaken   = 2
	orphanFilling = 3 // reserved by who writes start and end
)

// orphanWord packs state (8 bits), owner (8), count of redeliveries (16), generation (32).
type orphanWord uint64

func makeOrphan(state, owner uint64, count uint16, generation uint32) orphanWord {
	return orphanWord(state | owner<<8 | uint64(count)<<16 | uint64(generation)<<32)
}

func (w orphanWord) state() uint64      { return uint64(w & 0xff) }
func (w orphanWord) owner() uint64      { return uint64(w >> 8 & 0xff) }
func (w orphanWord) count() uint16      { return uint16(w >> 16) }
func (w orphanWord) generation() uint32 { return uint32(w >> 32) }

// next is the same entry in another state, for a compare-and-swap.
func (w orphanWord) next(state, owner uint64, count uint16) orphanWord {
	return makeOrphan(state, owner, count, w.generation()+1)
}

// file puts the range from start to end among the orphans of g. Its first frame was
// handed out count times. by is who does it: a member's number, or MaxMembers for the broker,
// so that the broker can clean up after a member that dies on the way. It is false
// when every entry is taken.
func (g *groupRecord) file(start, end uint64, count uint16, by uint64) bool {
	for i := range g.entries {
		e := &g.entries[i]
		w := orphanWord(e.word.Load())
		if w.state() != orphanFree || !e.word.CompareAndSwap(uint64(w), uint64(w.next(orphanFilling, by, count))) {
			continue
		}
		w = w.next(orphanFilling, by, count)
		failpoint.Hit(FailOrphanFilling)
		e.start.Store(start)
		e.end.Store(end)
		// The bit goes before the offer, so that every entry on offer has it: a member
		// that looked at the bits when another range stood here may take this one at once
		// and die, and ReapMember frees what is taken and has no bit. The owner stays in
		// the word: if it dies before the offer, its claim word still covers the range.
		g.orphans.Or(1 << i) // SYNC(orphan): release
		failpoint.Hit(FailOrphanBit)
		e.word.Store(uint64(w.next(orphanOffered, by, count)))
		failpoint.Hit(FailOrphanOffered)
		return true
	}
	return false
}

// release frees entry i, which the caller owns.
func (g *groupRecord) release(i int) {
	e := &g.entries[i]
	w := orphanWord(e.word.Load())
	// The bit goes first: who files a range here next sets it again.
	g.orphans.And(^uint64(1 << i))
	failpoint.Hit(FailOrphanReleasing)
	e.word.Store(uint64(w.next(orphanFree, 0, 0)))
}

// mostRedeliveries is a bound as an entry's count can reach it; 0 is none.
func mostRedeliveries(n int) uint16 {
	const none = 1<<16 - 1
	if n <= 0 || n > none {
		return none
	}
	return uint16(n)
}

// mayTake reports whether an entry is offered to us. What was handed out too often is
// not, even before the broker comes to it: it may be what its members died of.
func (m *Member) mayTake(w orphanWord) bool {
	return w.state() == orphanOffered && w.count() <= m.most
}

// offered reports whether an orphan is there to be taken.
func (m *Member) offered() bool {
	for set := m.group.orphans.Load(); set != 0; set &= set - 1 {
		if m.mayTake(orphanWord(m.group.entries[bits.TrailingZeros64(set)].word.Load())) {
			return true
		}
	}
	return false
}

// adopt takes over one orphaned range, if one is offered.
func (m *Member) adopt() bool {
	for set := m.group.orphans.Load(); set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		e := &m.group.entries[i]
		w := orphanWord(e.word.Load())
		if !m.mayTake(w) {
			continue
		}
		taken := w.next(orphanTaken, m.id, w.count())
		if !e.word.CompareAndSwap(uint64(w), uint64(taken)) {
			continue
		}
		m.taken, m.word = i, taken
		failpoint.Hit(FailGroupAfterTake)
		m.group.redelivered.Add(1)
		return true
	}
	return false
}

// workOrphan delivers up to limit frames of the entry that we have taken, and frees it
// or offers what is left again.
func (m *Member) workOrphan(limit int, fn func(Frame) error) (int, error) {
	e := &m.group.entries[m.taken]
	set := func(state uint64, count uint16) {
		m.word = m.word.next(state, m.id, count)
		e.word.Store(uint64(m.word))
	}
	if m.inside {
		set(orphanTaken, oneMore(m.word.count())) // the handler panicked
	}
	start, end := e.start.Load(), e.end.Load()
	n, at, err := 0, start, ErrCorrupt
	if m.r.within(start, end) {
		m.inside = true
		n, at, err = m.deliver(start, end, limit, m.word.count(), fn, func(next uint64, again uint16) {
			m.r.publish(&e.start, next) // SYNC(cursor): release
			if again != m.word.count() {
				set(orphanTaken, again)
			}
		})
		m.inside = false
	}
	switch {
	case at == end || err == ErrCorrupt:
		// A corrupt range is dropped, or members would meet it for ever.
		m.group.release(m.taken)
	case refused(err):
		set(orphanOffered, oneMore(m.word.count()))
	default:
		set(orphanOffered, m.word.count())
	}
	m.taken = -1
	m.finish(n, at != end)
	return n, unlessStop(err)
}
