package ring

import (
	"fmt"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Failpoints of repair.
const (
	FailRepairBeforeStamp = "ring/repair/before-stamp"
	FailRepairBeforeFree  = "ring/repair/before-free"
)

// A Repair says what RepairPublisher did.
type Repair struct {
	// Filled is true where a claim was left open and is padding now.
	Filled bool
	// From and To are the positions that were filled.
	From, To Position
	// Corrupt is true where the intent was not one that a publisher writes; nothing was filled.
	Corrupt bool
}

// CondemnPublisher marks publisher slot i as dead: its client has left or died. Condemn
// all that are known to be dead before repairing the first, so that no repair waits
// for a dead one's intent.
func (r *Ring) CondemnPublisher(i int) error {
	if i < 0 || i >= len(r.publishers) || r.publishers[i].state.Load() == pubFree {
		return fmt.Errorf("%w: publisher slot %d of %d is not in use", ErrSlot, i, len(r.publishers))
	}
	r.publishers[i].state.Store(pubDead)
	failpoint.Hit(FailRepairCondemned)
	return nil
}

// RepairPublisher finishes what the condemned publisher of slot i left, and frees the slot.
// A claim that it made and did not commit becomes padding; one that it committed is
// left alone, and so is everything that belongs to the living.
//
// ErrRepairPending: a living publisher's intent names the same position; one of the
// two lost the compare-and-swap and will move on. Nothing was changed; call again.
//
// The order of the steps is that of docs/model/claim-repair.pml and lap.pml: living
// intents, then the stamp, then tail. Ring both doorbells afterwards.
func (r *Ring) RepairPublisher(i int) (Repair, error) {
	if i < 0 || i >= len(r.publishers) || r.publishers[i].state.Load() != pubDead {
		return Repair{}, fmt.Errorf("%w: publisher slot %d of %d is not condemned", ErrSlot, i, len(r.publishers))
	}
	var done Repair
	if word := r.publishers[i].intent.Load(); word != 0 { // SYNC(intent): acquire
		at, ok := intentAt(word)
		switch {
		case !ok:
			done.Corrupt = true
		case r.claimed(at):
			if r.intended(at, false) {
				return Repair{}, ErrRepairPending
			}
			if !r.settled(at) {
				to := r.hole(at)
				r.fillHole(at, to, i)
				failpoint.Hit(FailRepairFilled)
				done = Repair{Filled: true, From: at, To: to}
			}
		}
	}
	failpoint.Hit(FailRepairBeforeFree)
	r.free(i)
	return done, nil
}

// claimed reports whether tail has passed at: otherwise nobody claimed it.
func (r *Ring) claimed(at Position) bool { return at.Before(r.Tail()) }

// intended reports whether a living publisher's intent names at, or, with dead, any.
func (r *Ring) intended(at Position, dead bool) bool {
	for i := range r.publishers {
		p := &r.publishers[i]
		// SYNC(intent): acquire
		if r.active.has(i) && p.intent.Load() == uint64(at)|intentFlag && (dead || p.state.Load() != pubDead) {
			return true
		}
	}
	return false
}

// settled reports whether nothing is to be done at position at: its claim is
// committed, or tail is so far ahead that the cell belongs to a later lap.
func (r *Ring) settled(at Position) bool {
	if r.data.probe(uint64(at)&r.mask) == stampOf(uint64(at), r.cfg.Key) {
		return true
	}
	arch.LoadLoad() // SYNC(tail): acquire: who writes there in a later lap has moved tail before
	return r.Tail().Sub(at) > int64(r.cfg.Capacity)
}

// hole finds where the open claim at position at ends: at the next position that is
// known to be the start of a claim, by a committed stamp or an intent, or at tail.
// Whose intent it is does not matter: every intent there ever was is the start of a
// claim, and the claims of others that are dead are for their own repair, which counts
// them. Intents come before stamps at every position: in between, a publisher could
// commit and move on. Frames inside a claim are not boundaries: those of a dead
// publisher's batch may be stamped although the claim is not committed.
func (r *Ring) hole(at Position) Position {
	tail := r.Tail()
	if end := at.Add(r.cfg.Capacity); end.Before(tail) {
		tail = end // only a hostile publisher moves tail past what our intent allows
	}
	for q := at + CellSize; q.Before(tail); q += CellSize {
		if r.intended(q, true) {
			return q
		}
		off := uint64(q) & r.mask
		if r.data.word(off).Load() != stampOf(uint64(q), r.cfg.Key) { // SYNC(commit): acquire
			continue
		}
		if !header(r.data.plain(off + offMeta)).inner() {
			return q
		}
	}
	return tail
}

// fillHole makes the positions from at to to padding. Padding never wraps, and its
// length must fit 32 bits, so it may take several frames: the first is stamped last.
func (r *Ring) fillHole(at, to Position, source int) {
	for p := to; at.Before(p); {
		from := r.lastPiece(at, p)
		off := uint64(from) & r.mask
		flags := uint8(flagRepair)
		if from != at {
			flags |= flagInner
		}
		failpoint.Hit(FailRepairBeforeStamp)
		r.data.setPlain(off+offMeta, meta(uint32(p-from-HeaderSize), kindPadding, flags, uint16(source)))
		r.data.word(off).Store(stampOf(uint64(from), r.cfg.Key)) // SYNC(commit): release
		p = from
	}
}

// lastPiece is where the last piece of padding before end begins, in a hole from at on.
func (r *Ring) lastPiece(at, end Position) Position {
	lap := Position((uint64(end) - 1) &^ r.mask) // where end's last byte's lap begins
	from := at
	if from.Before(lap) {
		from = lap
	}
	if end.Sub(from) > maxClaim {
		from = end - maxClaim
	}
	return from
}

// free clears publisher slot i for the next one.
func (r *Ring) free(i int) {
	p := &r.publishers[i]
	// The intent goes first: as long as it stands it keeps others from lapping the hole.
	arch.StoreRelease(&p.intent, 0)
	failpoint.Hit(FailRepairMidFree)
	p.counter.Reset()
	r.active.clear(i)
	p.state.Store(pubFree)
}
