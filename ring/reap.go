package ring

import (
	"fmt"
	"math/bits"

	"github.com/hugebus/hugebus/internal/failpoint"
)

// A Reaped says what ReapMember found.
type Reaped struct {
	// Orphaned is true where the member left a range of its own unfinished.
	Orphaned bool
	// From and To are that range.
	From, To Position
	// Offered counts ranges that the member had taken over, and that are offered again.
	Offered int
	// Corrupt is true where the member's words were not those that a member writes.
	Corrupt bool
}

// ReapMember frees a member of group g that has left or died. What it had claimed and
// not finished goes to the group's other members, marked as redelivered. Ring the
// doorbells afterwards, and release the member's subscriber slot.
//
// ErrFull: there is no orphan entry for what it left; the range still gates, and the
// call may be made again.
func (r *Ring) ReapMember(g, member int) (Reaped, error) {
	rec, err := r.openGroup(g)
	if err != nil {
		return Reaped{}, err
	}
	if member < 0 || member >= MaxMembers || rec.members.Load()&(1<<member) == 0 {
		return Reaped{}, fmt.Errorf("%w: member %d of group %d is not admitted", ErrSlot, member, g)
	}
	rec.disown(MaxMembers)
	done := Reaped{Offered: rec.disown(uint64(member))}
	i := rec.table[member].Load()
	if i >= uint64(len(r.subscribers)) {
		rec.members.And(^uint64(1 << member))
		done.Corrupt = true
		return done, nil
	}
	slot := &r.subscribers[i]
	// The head first, then the claim word: the other way round, a claim that another
	// member records and passes in between would be lost (docs/model/group-claim.pml).
	head := rec.head.Load() // SYNC(group-claim): acquire
	word := slot.claim.Load()
	end := slot.end.Load()
	own := word&claimState == claimHeld ||
		word&claimState == claimIntent && head == end|uint64(member)
	if start := word &^ claimState; own && start != end {
		if !r.within(start, end) {
			done.Corrupt = true
		} else if !rec.file(start, end, 1, MaxMembers) {
			return done, fmt.Errorf("%w: group %d has %d orphaned ranges", ErrFull, g, len(rec.entries))
		} else {
			done.Orphaned, done.From, done.To = true, Position(start), Position(end)
		}
	}
	failpoint.Hit(FailReapFiled)
	slot.claim.Store(claimIdle) // SYNC(orphan): after the entry is visible
	failpoint.Hit(FailReapIdle)
	rec.members.And(^uint64(1 << member))
	return done, nil
}

// disown gives up the orphan entries that a dead member held, or (MaxMembers) that an
// earlier broker held when it died: there is one at a time, which holds none between calls.
func (g *groupRecord) disown(member uint64) (offered int) {
	for i := range g.entries {
		e := &g.entries[i]
		w := orphanWord(e.word.Load())
		if w.owner() != member || w.state() == orphanFree {
			continue
		}
		switch {
		case w.state() == orphanOffered:
			// It is offered to all already.
		case w.state() == orphanFilling:
			// It died while it was filing its own range, which its claim word still covers.
			g.orphans.And(^uint64(1 << i))
			e.word.CompareAndSwap(uint64(w), uint64(w.next(orphanFree, 0, 0)))
		case g.orphans.Load()&(1<<i) != 0:
			e.word.CompareAndSwap(uint64(w), uint64(w.next(orphanOffered, MaxMembers, oneMore(w.count()))))
			offered++
		default: // It had finished the entry.
			e.word.CompareAndSwap(uint64(w), uint64(w.next(orphanFree, 0, 0)))
		}
	}
	return offered
}

// within reports whether start to end can be a range of frames that still gate.
func (r *Ring) within(start, end uint64) bool {
	tail := r.Tail()
	return start%CellSize == 0 && end%CellSize == 0 && int64(end-start) > 0 &&
		tail.Sub(Position(end)) >= 0 && tail.Sub(Position(start)) <= int64(r.cfg.Capacity)
}

// DeadLetters takes the frames out of group g that were redelivered more than most
// times, hands each to fn and, if fn returns nil, finishes it. It returns how many.
// An error from fn ends the call with that error, and the frame stays; ErrStop
// finishes the frame and ends the call without an error. Ring the publishers' doorbell
// afterwards.
func (r *Ring) DeadLetters(g, most int, fn func(Frame) error) (int, error) {
	rec, err := r.openGroup(g)
	if err != nil {
		return 0, err
	}
	rec.disown(MaxMembers)
	done := 0
	for set := rec.orphans.Load(); set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		w := orphanWord(rec.entries[i].word.Load())
		if w.state() != orphanOffered || int(w.count()) <= most {
			continue
		}
		taken := w.next(orphanTaken, MaxMembers, w.count())
		if !rec.entries[i].word.CompareAndSwap(uint64(w), uint64(taken)) {
			continue // a member was faster
		}
		n, err := r.bury(rec, i, taken, fn)
		done += n
		if err != nil {
			return done, unlessStop(err)
		}
	}
	return done, nil
}

// Reoffer gives the ranges of group g that were handed out more than most times, and that
// DeadLetters could not take out, to its members once more: their count is most then. It
// returns how many. Ring the subscribers' doorbell afterwards. Unlike the rest of the broker's
// side, members may call it too, for when there is no broker.
func (r *Ring) Reoffer(g, most int) (int, error) {
	rec, err := r.openGroup(g)
	if err != nil {
		return 0, err
	}
	done, lowered := 0, uint16(min(max(most, 0), 1<<16-1))
	for set := rec.orphans.Load(); set != 0; set &= set - 1 {
		e := &rec.entries[bits.TrailingZeros64(set)]
		w := orphanWord(e.word.Load())
		if w.state() == orphanOffered && int(w.count()) > most &&
			e.word.CompareAndSwap(uint64(w), uint64(w.next(orphanOffered, w.owner(), lowered))) {
			done++
		}
	}
	return done, nil
}

// bury hands the first frame of orphan entry i, which the caller owns, to fn.
func (r *Ring) bury(rec *groupRecord, i int, w orphanWord, fn func(Frame) error) (int, error) {
	e := &rec.entries[i]
	start, end := e.start.Load(), e.end.Load()
	if !r.within(start, end) {
		rec.release(i)
		return 0, fmt.Errorf("%w: orphan entry %d from %d to %d", ErrCorrupt, i, start, end)
	}
	m := Member{data: r.data, mask: r.mask, key: r.cfg.Key, max: uint64(r.cfg.MaxPayload)}
	n, at, err := m.deliver(start, end, 1, w.count(), fn, func(next uint64, _ uint16) { e.start.Store(next) }) // SYNC(cursor): release
	switch {
	case at == end || err == ErrCorrupt:
		rec.release(i)
	case n == 1:
		e.word.Store(uint64(w.next(orphanOffered, MaxMembers, min(w.count(), 1))))
	default:
		e.word.Store(uint64(w.next(orphanOffered, MaxMembers, w.count())))
	}
	return n, err
}
