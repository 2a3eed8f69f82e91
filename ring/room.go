package ring

import (
	"math/bits"

	"github.com/hugebus/hugebus/internal/failpoint"
)

// Room: a publisher may claim up to
//
//	limit = capacity + the lowest of: tail, the cursors of subscribers that gate, the
//	heads and unfinished ranges of groups, the intents of other publishers
//
// Tail is read first: a cursor or intent that moves between the reads only makes the
// limit lower than it could be. Intents matter when nobody else gates: without them a
// slow publisher's claim would be lapped while it writes (docs/model/lap.pml).
//
// Values come from memory that a peer can write. One that no correct peer could have
// (not a position, or more than a capacity behind the tail just read) gates nobody:
// its owner has been, or is about to be, overrun in any case, and a hostile
// subscriber must not stop publishers. The exception is real but harmless: an intent
// so old belongs to a publisher whose compare-and-swap will fail, and a joiner's
// cursor so old is raised by the joiner itself (docs/model/join.pml).

// lowest collects the largest lag behind a tail.
type lowest struct {
	tail     Position
	capacity uint64
	lag      uint64
}

// at takes one value into account. The word's low six bits are not part of it.
func (l *lowest) at(word uint64) {
	p := Position(word &^ (CellSize - 1))
	if lag := l.tail.Sub(p); lag > 0 && uint64(lag) <= l.capacity && uint64(lag) > l.lag {
		l.lag = uint64(lag)
	}
}

// limit computes how far publisher self may claim, for a claim that wants to end need
// bytes after tail. Subscribers with policy Evict whose lag bound stands in the way are evicted.
func (r *Ring) limit(self int, need uint64) uint64 {
	low := lowest{tail: r.Tail(), capacity: r.cfg.Capacity}
	for w := range r.gating.words {
		for set := r.gating.words[w].Load(); set != 0; set &= set - 1 {
			if i := w*64 + bits.TrailingZeros64(set); i < len(r.subscribers) {
				r.gateSubscriber(&low, i, need)
			}
		}
	}
	for set := r.openGroups.Load(); set != 0; set &= set - 1 {
		if g := bits.TrailingZeros64(set); g < len(r.groups) {
			r.gateGroup(&low, &r.groups[g])
		}
	}
	for w := range r.active.words {
		for set := r.active.words[w].Load(); set != 0; set &= set - 1 {
			i := w*64 + bits.TrailingZeros64(set)
			if i == self || i >= len(r.publishers) {
				continue
			}
			// SYNC(intent): acquire
			if word := r.publishers[i].intent.Load(); word != 0 {
				low.at(word)
			}
		}
	}
	return uint64(low.tail) - low.lag + r.cfg.Capacity
}

// gateSubscriber counts one subscriber's cursor, and applies its lag bound.
func (r *Ring) gateSubscriber(low *lowest, i int, need uint64) {
	s := &r.subscribers[i]
	if Policy(s.policy.Load()) != Evict {
		low.at(s.cursor.Load()) // SYNC(cursor): acquire
		return
	}
	state := s.state.Load()
	if state&subState == subEvicted {
		// Its bit stands until it notices itself: that takes no step of ours that we could
		// die before, or be late for, when the slot is another's.
		return
	}
	cursor, bound := s.cursor.Load(), s.evictLag.Load() // SYNC(cursor): acquire
	if bound == 0 || state&subState != subJoined {
		low.at(cursor)
		return
	}
	switch lag := low.tail.Sub(Position(cursor)); {
	case lag == 0:
		// It has read everything. It is not slow because one claim is above its bound.
		bound = max(bound, need)
	case lag > 0 && uint64(lag)+need > bound:
		s.evict(state)
		return
	}
	// It gates at its bound, a capacity less what it may lag, so that it is looked at
	// again, and evicted, just when a claim would pass the bound.
	low.at(cursor - (r.cfg.Capacity - min(bound, r.cfg.Capacity)))
}

// gateGroup counts a group's head, then its members' claims, then its orphaned ranges. In
// this order none is missed: a range leaves the head only after it stands in a
// member's slot (SYNC(group-claim)), and leaves a dead member's slot only after it stands
// among the orphans (SYNC(orphan)).
func (r *Ring) gateGroup(low *lowest, g *groupRecord) {
	low.at(g.head.Load()) // SYNC(group-claim): acquire
	for set := g.members.Load(); set != 0; set &= set - 1 {
		slot := g.table[bits.TrailingZeros64(set)].Load()
		if slot >= uint64(len(r.subscribers)) {
			continue
		}
		// SYNC(cursor): acquire
		if word := r.subscribers[slot].claim.Load(); word&claimState != claimIdle {
			low.at(word)
		}
	}
	for set := g.orphans.Load(); set != 0; set &= set - 1 { // SYNC(orphan): acquire
		e := &g.entries[bits.TrailingZeros64(set)]
		if orphanWord(e.word.Load()).state() != orphanFree {
			low.at(e.start.Load())
		}
	}
}

// Publishers that wait for room are patient at first: they would rather wait until half of the capacity is free than be woken for
// each frame's room, which all of them run for, and take the processor from the reader for. Nothing of that need be exact, since
// nobody is patient for long (package client).

// freedHalf reports whether the cursor's way from position before on has made half of the capacity free, as far as it is up to s.
func (s *Subscriber) freedHalf(before uint64) bool {
	tail, half := uint64(s.r.Tail()), (s.mask+1)/2
	return tail-before > half && tail-s.pos <= half
}

// halfFree reports whether half of the capacity is free, as far as it is up to group g.
func (r *Ring) halfFree(g *groupRecord) bool {
	low := lowest{tail: r.Tail(), capacity: r.cfg.Capacity}
	r.gateGroup(&low, g)
	return low.lag <= r.cfg.Capacity/2
}

// evict makes a joined subscriber lossy, if its state is still word.
func (s *subscriberSlot) evict(word uint64) bool {
	// SYNC(evict): release. The state is seen before the subscriber's frames may be
	// overwritten, which only a claim that ignores its cursor does.
	if word&subState != subJoined || !s.state.CompareAndSwap(word, word&^subState|subEvicted) {
		return false
	}
	failpoint.Hit(FailAfterEvict)
	return true
}
