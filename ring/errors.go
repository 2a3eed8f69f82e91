package ring

import (
	"errors"
	"fmt"
)

// Errors of the hot path. They are plain values: returning one allocates nothing.
var (
	// ErrBackpressure means that the ring is full: a reliable subscriber, a group or
	// a claim that is still open holds the room. Try again when it has moved on.
	ErrBackpressure = errors.New("ring: full: the slowest reliable subscriber, group or open claim holds the room")
	// ErrTooLarge means that a payload is above the ring's MaxPayload, or that a
	// commit is above what was claimed. It will never fit; see CapacityFor.
	ErrTooLarge = errors.New("ring: payload above the maximum of this ring")
	// ErrClaimed means that the publisher already holds a claim: commit or abort it first.
	ErrClaimed = errors.New("ring: publisher already holds a claim: commit or abort it first")
	// ErrNotClaimed means that the claim was committed or aborted before.
	ErrNotClaimed = errors.New("ring: claim was already committed or aborted")
	// ErrOverrun means that publishers lapped a subscriber that does not gate. A
	// *GapError, which is one, tells exactly what was missed.
	ErrOverrun = errors.New("ring: overrun: publishers lapped this subscriber")
	// ErrEvicted is returned once by a subscriber with policy Evict that was too slow:
	// it does not gate any more, and reads like a lossy one from now on.
	ErrEvicted = errors.New("ring: evicted: lag or stall passed the bound, the subscription is lossy from here on")
	// ErrUngated means that a reliable subscriber does not hold publishers back any more, and may have
	// missed frames: the broker has expelled it, because its words in shared memory were impossible, or
	// a broken or hostile subscriber of the topic has written over them. Close it, and attach again.
	ErrUngated = errors.New("ring: this subscriber does not hold publishers back any more, and may have missed frames: its words in shared memory were written over; close it and attach again")
	// ErrCorrupt means that shared memory holds a value that no correct peer writes.
	ErrCorrupt = errors.New("ring: corrupt: shared memory holds an impossible value")
	// ErrStop, returned by a handler, ends Poll without an error. The frame counts as
	// handled, as fs.SkipAll does for files.
	ErrStop = errors.New("ring: stop this poll")
	// ErrClosed means that the publisher, subscriber or member was closed.
	ErrClosed = errors.New("ring: closed")
	// ErrRepairPending means that a living publisher's intent names the dead one's
	// position: one of the two lost, and will move on. Call again later.
	ErrRepairPending = errors.New("ring: repair must wait for a living publisher to move on")
	// ErrSlot means that a slot, group or member number is out of range or in a state
	// that does not allow the call.
	ErrSlot = errors.New("ring: slot is out of range or in the wrong state")
	// ErrFull means that every slot, member or orphan entry of a kind is taken.
	ErrFull = errors.New("ring: every slot of this kind is taken")
)

// Errors of Attach and Format; each is wrapped with the values that differ.
var (
	// ErrMagic means that the memory is not a hugebus ring, or not yet a whole one.
	ErrMagic = errors.New("ring: not a hugebus ring (bad magic)")
	// ErrVersion means that the ring was made by a hugebus with another layout.
	ErrVersion = errors.New("ring: layout version differs: use the same hugebus release for broker and clients")
	// ErrGeometry means that sizes in the header contradict each other or the memory.
	ErrGeometry = errors.New("ring: header does not fit the memory")
	// ErrTopicID means that the pieces of memory belong to different rings.
	ErrTopicID = errors.New("ring: ctl and cursors belong to different topics")
	// ErrConfig means that a Config asks for something that cannot be.
	ErrConfig = errors.New("ring: bad configuration")
	// ErrAlignment means that memory does not start on a multiple of CellSize.
	ErrAlignment = errors.New("ring: memory is not aligned to a cell")
)

// A GapError tells a subscriber what it missed: the positions From (first one
// missed) up to To (where it goes on). It is an ErrOverrun.
//
// The value that Poll returns belongs to the subscriber and is overwritten by its
// next Poll: copy it to keep it.
type GapError struct {
	From, To Position
}

// Error says how many bytes of positions were missed, and where.
func (e *GapError) Error() string {
	return fmt.Sprintf("ring: overrun: missed %d bytes of positions, from %d up to %d", e.To.Sub(e.From), e.From, e.To)
}

// Is reports whether target is ErrOverrun.
func (e *GapError) Is(target error) bool { return target == ErrOverrun }

// Bytes is the size of the gap in positions.
func (e *GapError) Bytes() uint64 { return uint64(e.To - e.From) }
