package client

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/ring"
)

// A Lane publishes from one publisher slot, for one goroutine at a time: the fastest
// path. Lanes of one topic, in one process or many, need no coordination; each has its
// own place in the topic's total order, in which its own frames keep theirs. The one
// method that any goroutine may call is Close.
//
// After the topic's removal every method returns ErrTopicRemoved, after a broker has given
// the lane up ErrDetached, after an operator has taken a claim of it away ErrClaimRevoked,
// and after Close os.ErrClosed.
type Lane struct {
	_     apart
	guard guard
	p     *ring.Publisher
	ended *atomic.Uint32 // the attachment's
	room  sleeper
	watch *ring.StallWatch
	att   *attachment
	need  int         // bytes of payload that a wait for room is for
	fits  func() bool // built once, so that waiting allocates nothing

	open       ring.Claim // the claim that is open
	done       func()     // tells its Publisher that it is no longer
	turn       uint64     // of TryClaim; tells which of tickets it has
	tickets    [claimTickets]ticket
	revocation revocation
	_          apart
}

// apart keeps what one goroutine writes for every frame off the lines of its neighbours
// on the heap.
type apart [arch.FalseSharing]byte

func newLane(att *attachment, how Wait) (*Lane, error) {
	p, err := att.ring.Publisher(att.slot, ring.PublisherOptions{Doorbell: att.subBell, Room: att.pubBell})
	if err != nil {
		return nil, err
	}
	l := &Lane{p: p, att: att, ended: &att.ended, watch: ring.NewStallWatch(att.ring)}
	for i := range l.tickets {
		l.tickets[i].l = l
	}
	l.fits = func() bool { return l.att.over() || l.guard.closed() || l.p.Fits(l.need) }
	l.room, err = att.sleeper(att.pubBell, att.ring.PublisherSleepers(), att.ring.Config().Publishers, how, func() {})
	if err != nil {
		return nil, err
	}
	l.room.patient = att.ring.PatientPublishers()
	l.revocation.fenced = !att.barriers.Private
	l.guard.init(att.barriers.Private, func() {
		if att.lost() {
			l.p.Abandon()
		}
		_ = l.p.Close() // closed before, or now
		l.room.close()
		l.revocation.close()
		att.release()
	})
	att.setLane(l)
	if err := att.closeWith(l.Close); err != nil {
		l.room.close()
		return nil, err
	}
	return l, nil
}

// MaxPayload is the largest payload of the topic, in bytes.
func (l *Lane) MaxPayload() int { return l.p.MaxPayload() }

// Err is why the lane is of no use any more (ErrTopicRemoved, ErrDetached, ErrClaimRevoked), or nil. It does not tell that Close was
// called. Any goroutine may call it, also after Close.
func (l *Lane) Err() error {
	if l.ended.Load() == notEnded {
		return nil
	}
	return l.att.why()
}

// TryPublish copies payload into the topic as one frame, without waiting and without
// allocating. ErrBackpressure: the topic is full. ErrTooLarge: a *TooLargeError.
func (l *Lane) TryPublish(payload []byte) error {
	if l.ended.Load() != notEnded {
		return l.att.why()
	}
	if l.guard.used() {
		return ErrInUse
	}
	if !l.guard.mark() {
		if err := l.guard.enterSlow(); err != nil {
			return err
		}
	}
	err := l.p.TryPublish(payload)
	l.guard.exit()
	if err != nil {
		return l.failed(err, len(payload))
	}
	return nil
}

// Publish is TryPublish, but waits while the topic is full, until ctx ends: then it
// returns ctx's error, and nothing was published.
func (l *Lane) Publish(ctx context.Context, payload []byte) error {
	for {
		err := l.TryPublish(payload)
		if err != ErrBackpressure {
			return err
		}
		if err := l.waitRoom(ctx, len(payload)); err != nil {
			return err
		}
	}
}

// TryPublishBatch publishes payloads in order, as few claims as they need, and
// returns how many. The frames of one claim become visible together. ErrBackpressure:
// the topic is full, try the rest again. ErrTooLarge: the next one does not fit.
func (l *Lane) TryPublishBatch(payloads [][]byte) (int, error) {
	if err := l.enter(); err != nil {
		return 0, err
	}
	n, err := l.p.TryPublishBatch(payloads)
	l.guard.exit()
	if err != nil {
		size := 0
		if n < len(payloads) {
			size = len(payloads[n])
		}
		return n, l.failed(err, size)
	}
	return n, nil
}

// PublishBatch is TryPublishBatch, but waits while the topic is full, until ctx ends.
// It returns how many were published, also with an error.
func (l *Lane) PublishBatch(ctx context.Context, payloads [][]byte) (int, error) {
	done := 0
	for {
		n, err := l.TryPublishBatch(payloads[done:])
		done += n
		if err != ErrBackpressure {
			return done, err
		}
		if err := l.waitRoom(ctx, len(payloads[done])); err != nil {
			return done, err
		}
	}
}

// A Claim is room for one frame, to be written in place. Commit or Abort it soon:
// readers come to a stop in front of it. It stays valid when its lane is closed
// meanwhile. One that is held for long may be taken away by an operator: what is written to it
// then goes nowhere, and Commit and Abort say ErrClaimRevoked.
type Claim struct {
	// Payload is the room. It is not zeroed, and must not be touched after Commit or Abort.
	Payload []byte
	t       *ticket
}

// A ticket tells a claim from those just before it, as ring's does, and for the same reason.
type ticket struct{ l *Lane }

// claimTickets is how many claims in a row have tickets of their own.
const claimTickets = 32

// TryClaim claims room for a payload of n bytes, without waiting. The lane can do
// nothing else until Commit or Abort. Errors are those of TryPublish. The first claim of a
// lane maps the topic's frames once more, for which memory may be short.
func (l *Lane) TryClaim(n int) (Claim, error) {
	if l.ended.Load() != notEnded {
		return Claim{}, l.att.why()
	}
	if l.guard.used() {
		return Claim{}, ErrInUse
	}
	if !l.guard.mark() {
		if err := l.guard.enterSlow(); err != nil {
			return Claim{}, err
		}
	}
	if l.revocation.window == nil {
		if err := l.openWindow(); err != nil {
			l.guard.exit()
			return Claim{}, err
		}
	}
	c, err := l.p.Claim(n)
	if err != nil {
		l.guard.exit()
		return Claim{}, l.failed(err, n)
	}
	l.open = c
	l.turn++
	l.revocation.hold(c)
	return Claim{Payload: c.Payload, t: &l.tickets[l.turn%claimTickets]}, nil
}

// Claim is TryClaim, but waits while the topic is full, until ctx ends.
func (l *Lane) Claim(ctx context.Context, n int) (Claim, error) {
	for {
		c, err := l.TryClaim(n)
		if err != ErrBackpressure {
			return c, err
		}
		if err := l.waitRoom(ctx, n); err != nil {
			return Claim{}, err
		}
	}
}

// Commit makes the frame visible. ErrNotClaimed: that was done before. ErrClaimRevoked: an
// operator has taken the claim away, and nothing of it was published; the lane is of no use
// any more.
func (c Claim) Commit() error { return c.CommitN(len(c.Payload)) }

// CommitN makes the first n bytes of the payload the frame. ErrTooLarge: n is above
// what was claimed; the claim stays open. Other errors are those of Commit.
func (c Claim) CommitN(n int) error {
	if !c.valid() {
		return ErrNotClaimed
	}
	l := c.t.l
	if !l.take() {
		if err := l.takeSlow(); err != nil {
			return err
		}
	}
	if err := l.open.CommitN(n); err != nil {
		if err == ErrTooLarge {
			l.revocation.hold(l.open)
		}
		return err
	}
	l.leave()
	return nil
}

// Abort gives the room up. Readers skip it. Errors are those of Commit.
func (c Claim) Abort() error {
	if !c.valid() {
		return ErrNotClaimed
	}
	l := c.t.l
	if !l.take() {
		if err := l.takeSlow(); err != nil {
			return err
		}
	}
	if err := l.open.Abort(); err != nil {
		return err
	}
	l.leave()
	return nil
}

// valid reports whether c is its lane's last claim; that one knows whether it is open.
func (c Claim) valid() bool { return c.t != nil && c.t == &c.t.l.tickets[c.t.l.turn%claimTickets] }

// take takes the open claim back from its user, for Commit and Abort. It is false where it takes
// a closer look whether it is still ours.
func (l *Lane) take() bool { return l.revocation.take() && l.ended.Load() < endedByBroker }

// takeSlow is that look.
func (l *Lane) takeSlow() error {
	if !l.revocation.takeSlow() {
		return l.abandon(ErrClaimRevoked)
	}
	if l.att.lost() {
		return l.abandon(ErrDetached)
	}
	return nil
}

// abandon ends a claim whose room may be somebody else's, which is why.
func (l *Lane) abandon(why error) error {
	if err := l.open.Abandon(); err != nil {
		return err
	}
	l.leave()
	return why
}

// leave ends what TryClaim began.
func (l *Lane) leave() {
	l.guard.exit()
	if l.done != nil {
		l.leaveTurn()
	}
}

// leaveTurn gives the turn back that a Publisher's claim kept.
func (l *Lane) leaveTurn() {
	done := l.done
	l.done = nil
	done()
}

// Close gives the slot back. Calls that run go on to their end; one that waits for
// room returns os.ErrClosed. An open claim stays valid until it is committed or aborted.
func (l *Lane) Close() error {
	if !l.guard.close() {
		return os.ErrClosed
	}
	l.room.interrupt()
	return nil
}

func (l *Lane) enter() error {
	if l.ended.Load() != notEnded {
		return l.att.why()
	}
	return l.guard.enter()
}

// failed makes the error of a size of bytes that did not fit readable.
func (l *Lane) failed(err error, size int) error {
	if err == ring.ErrTooLarge {
		return &TooLargeError{Topic: l.att.topic, Size: size, Max: l.p.MaxPayload()}
	}
	return hotError(err)
}

// longestSleep is how long who waits for room sleeps at a time.
const longestSleep = time.Second

// waitRoom waits until a payload of n bytes may fit. While it waits it applies the
// bounds of evicting subscribers, since the broker may be away.
func (l *Lane) waitRoom(ctx context.Context, n int) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.guard.exit()
	l.need = n
	now := time.Now()
	_, until := l.watch.Check(now)
	// A hostile subscriber can take our bit out of the sleepers' word.
	if latest := now.Add(longestSleep); until.IsZero() || until.After(latest) {
		until = latest
	}
	err := l.room.wait(ctx, until, l.fits)
	if err == errUntil {
		return nil
	}
	return err
}
