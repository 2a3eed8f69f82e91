package client

import (
	"errors"
	"fmt"
	"os"

	"github.com/hugebus/hugebus/ring"
)

// Errors that come from the ring itself; see package ring for what each means.
var (
	// ErrBackpressure means that the topic is full: TryPublish again later, or use Publish.
	ErrBackpressure = ring.ErrBackpressure
	// ErrTooLarge means that a payload is above the topic's maximum. The error that a
	// publisher returns is a *TooLargeError, which names the limit and the remedy.
	ErrTooLarge = ring.ErrTooLarge
	// ErrOverrun means that a subscriber which does not gate missed frames. The error
	// is a *GapError, which says exactly what.
	ErrOverrun = ring.ErrOverrun
	// ErrEvicted is returned once by a subscriber with policy Evict that was too slow.
	ErrEvicted = ring.ErrEvicted
	// ErrCorrupt means that shared memory holds what no correct peer writes.
	ErrCorrupt = ring.ErrCorrupt
	// ErrNotClaimed means that a claim was committed or aborted before.
	ErrNotClaimed = ring.ErrNotClaimed
	// ErrStop, returned by a handler, ends a Poll or Run without an error, with the frame
	// handled.
	ErrStop = ring.ErrStop
)

var (
	// ErrInUse means that a Lane, Subscriber or Group is used by two goroutines at once, or
	// by its own handler, or that a lane's claim is still open.
	ErrInUse = errors.New("client: in use by another goroutine, by its own handler, or by an open claim: use a lane or subscriber for each goroutine")
	// ErrTopicRemoved means that the topic was removed. What was published before can
	// still be read.
	ErrTopicRemoved = errors.New("client: the topic was removed")
	// ErrDetached means that a broker does not know this attachment any more: it began anew
	// without a keeper, or had to take this process for dead. Attach again.
	ErrDetached = errors.New("client: the broker has given this attachment up: attach again")
	// ErrExpelled means that a subscription does not hold publishers back any more, and may have missed
	// frames: what stands in its slot was impossible. This process wrote it, or another subscriber of the
	// topic, which the broker cannot tell. Close it, and attach again.
	ErrExpelled = errors.New("client: expelled: the words of this subscription in shared memory were written over, and frames may be missing: close it and attach again")
	// ErrClaimRevoked means that a claim was held for so long that an operator has taken it away
	// (`hugebus topic unstick`). Nothing of it was published. Close the Lane or Publisher, and
	// attach again.
	ErrClaimRevoked = errors.New("client: an operator has taken the claim away, which was held for too long; nothing of it was published: close this publisher and attach again")
)

// A Frame is one message; see ring.Frame. Its payload is borrowed for the handler's duration.
type Frame = ring.Frame

// A Position is where a frame stands in its topic's total order; see ring.Position.
type Position = ring.Position

// A GapError tells what a subscriber missed; see ring.GapError.
type GapError = ring.GapError

// A TooLargeError says that a payload does not fit the topic, and what would. It is an
// ErrTooLarge.
type TooLargeError struct {
	Topic string
	Size  int // bytes of the payload
	Max   int // most that the topic takes
}

// Error names the size, the limit and the capacity that would do.
func (e *TooLargeError) Error() string {
	remedy := "no capacity is large enough: split it"
	if c := ring.CapacityFor(e.Size); c != 0 {
		remedy = fmt.Sprintf("a topic created with a capacity of %d bytes takes it", c)
	}
	return fmt.Sprintf("client: payload of %d bytes is above the maximum of %d of topic %q: %s", e.Size, e.Max, e.Topic, remedy)
}

// Is reports whether target is ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// hotError turns what the ring says into what this package promises.
func hotError(err error) error {
	switch err {
	case ring.ErrClosed:
		return os.ErrClosed
	case ring.ErrUngated:
		return ErrExpelled
	}
	return err
}
