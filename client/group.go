package client

import (
	"context"
	"iter"
	"os"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
)

// GroupOptions are what a Group may be told. The zero value begins with the next frame
// that is published, if the group does not exist yet.
type GroupOptions struct {
	// Name is what logs and `hugebus topic show` call the member; empty: the client's name.
	Name string
	// Start is where the group begins if it does not exist yet.
	Start Start
	// Wait says how the member waits for frames.
	Wait Wait
	// Batch is how many frames Run and Frames take at a time. More is faster for small
	// work; but a frame that waits behind a slow one cannot go to another member any
	// more. 0 means 1.
	Batch int
}

// A Group is one member's view of a group: a work queue, in which each frame goes to one
// member. It is for one goroutine at a time; only Close may be called from any other.
//
// Frames are delivered at least once: one that a member did not finish (its handler
// returned an error, or its process died) goes to the group again, with Redelivered
// above 0, and after the topic's limit to its dead-letter topic.
//
// When the topic is removed it reads what is left, and then returns
// ErrTopicRemoved. After Close every method returns os.ErrClosed.
type Group struct {
	_     apart
	guard guard
	m     *ring.Member
	wait  sleeper
	att   *attachment
	ready func() bool
	batch int

	// Of the Poll that runs; kept here so that Poll allocates nothing.
	handle  func(Frame) error
	fn      func(Frame) error
	refused error
	last    uint16 // how often the refused frame was delivered before
	_       apart
}

// Group joins a group of a topic, and makes both if they do not exist and the broker's
// rules allow it. Close it when it is no longer used.
//
// Errors: ErrBrokerUnavailable, ctx's error, or what the broker refused and why.
func (c *Client) Group(ctx context.Context, topic, group string, o GroupOptions) (*Group, error) {
	att, err := c.attach(ctx, attachOptions{
		kind: control.KindMember, topic: topic, name: o.Name, group: group, start: startPoint(o.Start),
	})
	if err != nil {
		return nil, err
	}
	g, err := newGroup(att, o)
	if err != nil {
		att.release()
		return nil, sys.Explain(err)
	}
	return g, nil
}

// startPoint is what the control protocol calls a Start.
func startPoint(s Start) *control.StartPoint {
	if p, ok := s.Position(); ok {
		return &control.StartPoint{From: control.FromPosition, Position: uint64(p)}
	}
	if s == Earliest() {
		return &control.StartPoint{From: control.FromEarliest}
	}
	return &control.StartPoint{From: control.FromLatest}
}

func newGroup(att *attachment, o GroupOptions) (*Group, error) {
	m, err := att.ring.Member(att.group, att.member, ring.SubscriberOptions{
		Doorbell: att.pubBell, Peers: att.subBell, MaxRedeliveries: att.maxRedeliveries,
	})
	if err != nil {
		return nil, err
	}
	g := &Group{m: m, att: att, batch: max(o.Batch, 1)}
	g.ready = func() bool { return att.over() || m.Ready() || g.guard.closed() }
	g.handle = g.handleOne
	g.wait, err = att.sleeper(att.subBell, att.ring.SubscriberSleepers(), att.ring.Config().Subscribers, o.Wait, m.Missed)
	if err != nil {
		return nil, err
	}
	g.guard.init(att.barriers.Private, func() {
		_ = m.Close()
		g.wait.close()
		att.release()
	})
	if err := att.closeWith(g.Close); err != nil {
		g.wait.close()
		return nil, err
	}
	return g, nil
}

// Poll takes up to limit frames that no other member gets, and hands them to fn, in
// place. It does not wait. Payloads are valid until fn returns.
//
// A nil from fn acknowledges the frame. An error ends Poll with that error and puts
// that frame, and the rest that was taken, back into the group, to be redelivered;
// ErrStop acknowledges the frame, puts the rest back and is no error. Errors of its
// own: ErrCorrupt, ErrTopicRemoved, ErrDetached, ErrExpelled, os.ErrClosed, ErrInUse.
func (g *Group) Poll(limit int, fn func(Frame) error) (int, error) {
	if err := g.guard.enter(); err != nil {
		return 0, err
	}
	defer g.guard.exit() // also when the handler panics, and who called it recovers
	if g.att.lost() {
		return 0, g.att.why()
	}
	g.fn, g.refused = fn, nil
	n, err := g.m.Poll(limit, g.handle)
	g.fn = nil
	if g.refused != nil {
		g.putBack()
	} else if n == 0 && err == nil && g.att.removed() && !g.m.Ready() {
		err = ErrTopicRemoved
	}
	return n, hotError(err)
}

// handleOne calls the handler, and remembers what it refused.
func (g *Group) handleOne(f Frame) error {
	err := g.fn(f)
	if err != nil {
		g.refused, g.last = err, f.Redelivered
	}
	return err
}

// putBack wakes the other members for what we put back, and asks the broker for the
// dead-letter topic when a frame was refused too often.
func (g *Group) putBack() {
	_ = g.att.subBell.Ring() // fails only when closed
	if g.refused != ErrStop && int(g.last) >= g.att.maxRedeliveries {
		g.att.deadLetter()
	}
}

// Wait blocks until Poll may return something, or ctx ends. Another member may be faster.
func (g *Group) Wait(ctx context.Context) error {
	if err := g.guard.enter(); err != nil {
		return err
	}
	defer g.guard.exit()
	return g.wait.wait(ctx, time.Time{}, g.ready)
}

// Run hands frames to fn, waiting for more, until fn returns an error (which puts the
// frame back; ErrStop ends it with nil), ctx ends (its error), or an error that Poll returns.
func (g *Group) Run(ctx context.Context, fn func(Frame) error) error {
	return run(ctx, g.Wait, g.Poll, g.batch, fn)
}

// Frames is this member's share of the frames, in place, for a range loop:
//
//	for f, err := range group.Frames(ctx) {
//
// A frame is acknowledged when the loop's body ends, also by break. Any err is the last.
func (g *Group) Frames(ctx context.Context) iter.Seq2[Frame, error] {
	return frames(ctx, g.Wait, g.Poll, g.batch)
}

// Close leaves the group. What this member had not finished goes to the others. A
// call that waits returns os.ErrClosed; a handler that runs goes on to its end.
func (g *Group) Close() error {
	if !g.guard.close() {
		return os.ErrClosed
	}
	g.wait.interrupt()
	return nil
}
