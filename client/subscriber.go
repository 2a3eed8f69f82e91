package client

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strconv"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
)

// A Policy says what happens when a subscriber is slow; see ring.Policy.
type Policy = ring.Policy

// The policies of a subscription.
const (
	// Reliable holds publishers back rather than miss a frame. It is the default.
	Reliable = ring.Reliable
	// Lossy never holds publishers back, and is told exactly what it missed.
	Lossy = ring.Lossy
	// Evict is reliable until its lag or stall passes a bound, then lossy, and told so.
	Evict = ring.Evict
)

// A Start says where a subscription or a new group begins; the zero value is Latest.
type Start = ring.Start

// Latest starts with the next frame that is published.
func Latest() Start { return ring.Latest() }

// Earliest starts with the earliest frame that the topic still holds.
func Earliest() Start { return ring.Earliest() }

// At starts with the frame at p, or the next behind it; if p is no longer held the
// first Poll reports the gap.
func At(p Position) Start { return ring.At(p) }

// ParseStart reads latest, earliest or a decimal position.
func ParseStart(s string) (Start, error) {
	switch s {
	case "latest":
		return Latest(), nil
	case "earliest":
		return Earliest(), nil
	}
	p, err := strconv.ParseUint(s, 10, 64)
	if err != nil || p%ring.CellSize != 0 {
		return Start{}, fmt.Errorf("client: start %q: use latest, earliest or a position (a multiple of %d)", s, ring.CellSize)
	}
	return At(Position(p)), nil
}

// SubscriberOptions are what a Subscriber may be told. The zero value is a reliable
// subscription from now on.
type SubscriberOptions struct {
	// Name is what logs and `hugebus topic show` call it; empty: the client's name.
	Name string
	// Policy is Reliable (also the zero value), Lossy or Evict.
	Policy Policy
	// EvictLag is the bound on lag of Evict, in bytes of positions; 0: none.
	EvictLag int64
	// EvictAfter is the bound on standing still of Evict; 0: none.
	EvictAfter time.Duration
	// Start is where it begins.
	Start Start
	// Wait says how it waits for frames.
	Wait Wait
}

// pollLimit is how many frames Run and Frames of a Subscriber take at a time: many
// enough to make the cursor's store cheap, few enough that publishers see it move.
const pollLimit = 64

// A Subscriber reads a topic. It is for one goroutine at a time; only Close may be
// called from any other.
//
// When the topic is removed it reads what is left, and then returns
// ErrTopicRemoved. After Close every method returns os.ErrClosed.
type Subscriber struct {
	_     apart
	guard guard
	s     *ring.Subscriber
	wait  sleeper
	att   *attachment
	ready func() bool
	next  nextFrame
	_     apart
}

// Subscriber attaches to a topic to read all of its frames. The topic is made if it
// does not exist and the broker's rules allow it. Close it when it is no longer used: a
// reliable one that nobody reads stops the topic's publishers.
//
// Errors: ErrBrokerUnavailable, ctx's error, or what the broker refused and why.
func (c *Client) Subscriber(ctx context.Context, topic string, o SubscriberOptions) (*Subscriber, error) {
	if o.Policy == 0 {
		o.Policy = Reliable
	}
	att, err := c.attach(ctx, attachOptions{
		kind: control.KindSubscriber, topic: topic, name: o.Name,
		policy: o.Policy, evictLag: o.EvictLag, evictAfter: o.EvictAfter,
	})
	if err != nil {
		return nil, err
	}
	s, err := newSubscriber(ctx, att, o)
	if err != nil {
		att.release()
		return nil, sys.Explain(err)
	}
	return s, nil
}

func newSubscriber(ctx context.Context, att *attachment, o SubscriberOptions) (*Subscriber, error) {
	rs, err := att.ring.Subscriber(att.slot, ring.SubscriberOptions{Doorbell: att.pubBell})
	if err != nil {
		return nil, err
	}
	if err := rs.Join(o.Start, pauseUntil(ctx)); err != nil {
		return nil, err
	}
	s := &Subscriber{s: rs, att: att}
	s.ready = func() bool { return att.over() || s.s.Ready() || s.guard.closed() }
	s.wait, err = att.sleeper(att.subBell, att.ring.SubscriberSleepers(), att.ring.Config().Subscribers, o.Wait, rs.Missed)
	if err != nil {
		return nil, err
	}
	s.next.init()
	s.guard.init(att.barriers.Private, func() {
		if att.lost() {
			rs.Abandon()
		}
		_ = rs.Close() // abandoned, or now
		s.wait.close()
		att.release()
	})
	if err := att.closeWith(s.Close); err != nil {
		s.wait.close()
		return nil, err
	}
	return s, nil
}

// pauseUntil waits a little between two looks at a publisher, until ctx ends.
func pauseUntil(ctx context.Context) func() error {
	return func() error {
		t := time.NewTimer(50 * time.Microsecond)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		}
	}
}

// Poll hands up to limit frames to fn, in order and in place, and returns how many fn
// took. It neither waits nor allocates. Payloads are valid until fn returns.
//
// An error from fn ends Poll with that error, and the next Poll begins with that
// frame; ErrStop ends it without an error, with the frame handled. Errors of its own:
// *GapError (an ErrOverrun: frames were missed; the next Poll goes on behind the
// gap), ErrEvicted once, ErrCorrupt, ErrTopicRemoved, ErrDetached, ErrExpelled, os.ErrClosed, ErrInUse.
func (s *Subscriber) Poll(limit int, fn func(Frame) error) (int, error) {
	return s.poll(limit, fn, nil)
}

// PollBatch is Poll for a handler that takes several frames at once, which costs less for each: in order, at
// least one and at most ring.BatchFrames (64) in a call, and as many calls as limit allows. The slice and the
// payloads are valid until fn returns. An error from fn refuses all frames of that call: they come again. ErrStop refuses none.
func (s *Subscriber) PollBatch(limit int, fn func([]Frame) error) (int, error) {
	return s.poll(limit, nil, fn)
}

// poll is Poll, with one of two handlers.
func (s *Subscriber) poll(limit int, one func(Frame) error, many func([]Frame) error) (n int, err error) {
	if s.guard.used() {
		return 0, ErrInUse
	}
	if !s.guard.mark() {
		if err := s.guard.enterSlow(); err != nil {
			return 0, err
		}
	}
	defer s.guard.exit() // also when a handler panics, and who called it recovers
	if s.att.lost() {
		return 0, s.att.why()
	}
	if many != nil {
		n, err = s.s.PollBatch(limit, many)
	} else {
		n, err = s.s.Poll(limit, one)
	}
	if n == 0 && err == nil && s.att.removed() && !s.s.Ready() {
		err = ErrTopicRemoved
	}
	return n, hotError(err)
}

// Wait blocks until Poll would return something, or ctx ends.
func (s *Subscriber) Wait(ctx context.Context) error {
	if err := s.guard.enter(); err != nil {
		return err
	}
	defer s.guard.exit()
	return s.wait.wait(ctx, time.Time{}, s.ready)
}

// Run hands every frame to fn, waiting for more, until fn returns an error (ErrStop
// ends it with nil), ctx ends (its error), or an error that Poll returns. A gap, or
// being evicted, ends it as well: call it again to go on.
func (s *Subscriber) Run(ctx context.Context, fn func(Frame) error) error {
	return run(ctx, s.Wait, s.Poll, pollLimit, fn)
}

// RunBatch is Run for a handler that takes several frames at once, as PollBatch does.
func (s *Subscriber) RunBatch(ctx context.Context, fn func([]Frame) error) error {
	return run(ctx, s.Wait, s.PollBatch, pollLimit, fn)
}

// Frames is every frame from here on, in place, for a range loop:
//
//	for f, err := range sub.Frames(ctx) {
//
// A payload is valid until the loop's body ends. A *GapError and ErrEvicted come as
// err with an empty frame, and the loop goes on; any other err is the last.
func (s *Subscriber) Frames(ctx context.Context) iter.Seq2[Frame, error] {
	return frames(ctx, s.Wait, s.Poll, pollLimit)
}

// Next waits for one frame, until ctx ends. Its payload is a copy, valid until the next call of Next.
func (s *Subscriber) Next(ctx context.Context) (Frame, error) {
	for {
		n, err := s.Poll(1, s.next.take)
		if n == 1 || err != nil {
			return s.next.frame, err
		}
		if err := s.Wait(ctx); err != nil {
			return Frame{}, err
		}
	}
}

// nextFrame holds the copy that Next returns.
type nextFrame struct {
	frame Frame
	buf   []byte
	take  func(Frame) error
}

func (n *nextFrame) init() {
	n.take = func(f Frame) error {
		n.buf = append(n.buf[:0], f.Payload...)
		f.Payload = n.buf
		n.frame = f
		return nil
	}
}

// Position is the next position that the subscriber will read.
func (s *Subscriber) Position() Position { return s.s.Position() }

// Policy is the policy in force: that of an evicted subscriber is Lossy.
func (s *Subscriber) Policy() Policy { return s.s.Policy() }

// Note tells the broker something about the subscription, which `hugebus topic show` has beside it until the next note, an empty one, or
// the broker's end: up to 512 bytes of printable UTF-8. It may be called by any goroutine. ErrInvalid: the text; ErrBrokerUnavailable: nobody
// is told; os.ErrClosed: it is closed.
func (s *Subscriber) Note(ctx context.Context, text string) error {
	if err := control.CheckNote(text); err != nil {
		return fmt.Errorf("client: %w", control.Errorf(control.CodeInvalid, "%v", err))
	}
	if !s.att.client.conn.holds(s.att.id) {
		return os.ErrClosed
	}
	return s.att.client.conn.request(ctx, control.OpNote, control.NoteRequest{Attachment: s.att.id, Text: text}, &control.Empty{})
}

// Close ends the subscription; publishers that it held back go on. A call that waits
// returns os.ErrClosed; a handler that runs goes on to its end.
func (s *Subscriber) Close() error {
	if !s.guard.close() {
		return os.ErrClosed
	}
	s.wait.interrupt()
	return nil
}
