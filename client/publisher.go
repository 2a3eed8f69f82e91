package client

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

// PublisherOptions are what a Publisher may be told. The zero value will do.
type PublisherOptions struct {
	// Name is what logs and `hugebus topic show` call it; empty: the client's name.
	Name string
	// Wait says how Publish waits while the topic is full.
	Wait Wait
}

// A Publisher publishes to one topic. It is safe for concurrent use: calls take turns
// on one lane. A goroutine that publishes much is faster on a Lane of its own.
//
// After the topic's removal every method returns ErrTopicRemoved, and after Close
// os.ErrClosed.
type Publisher struct {
	c      *Client
	topic  string
	opts   PublisherOptions
	lane   *Lane
	turn   chan struct{} // holds one token: who has it uses lane
	passed func()        // pass, made once
	slow   atomic.Bool   // who has the token waits for room, or holds a claim
	mu     sync.Mutex    // guards lanes
	lanes  []*Lane
}

// Publisher attaches to a topic to publish. The topic is made if it does not exist and
// the broker's rules allow it. Close it when it is no longer used.
//
// Errors: ErrBrokerUnavailable, ctx's error, or what the broker refused and why.
func (c *Client) Publisher(ctx context.Context, topic string, o PublisherOptions) (*Publisher, error) {
	lane, err := c.Lane(ctx, topic, o)
	if err != nil {
		return nil, err
	}
	p := &Publisher{c: c, topic: topic, opts: o, lane: lane, turn: make(chan struct{}, 1)}
	p.passed = p.pass
	p.turn <- struct{}{}
	return p, nil
}

// Lane attaches one publisher slot of a topic for one goroutine, without a Publisher: the
// fastest path, and on an exclusive topic, which has a single slot, the only way to it.
// Errors are those of Publisher. Close it when it is no longer used.
func (c *Client) Lane(ctx context.Context, topic string, o PublisherOptions) (*Lane, error) {
	att, err := c.attach(ctx, attachOptions{kind: control.KindPublisher, topic: topic, name: o.Name})
	if err != nil {
		return nil, err
	}
	lane, err := newLane(att, o.Wait)
	if err != nil {
		att.release()
		return nil, sys.Explain(err)
	}
	return lane, nil
}

// Lane attaches one more publisher slot of the topic, for one goroutine. Closing the
// Publisher closes it too.
func (p *Publisher) Lane(ctx context.Context) (*Lane, error) {
	lane, err := p.c.Lane(ctx, p.topic, p.opts)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lane.guard.closed() {
		_ = lane.Close()
		return nil, os.ErrClosed
	}
	p.lanes = append(p.lanes, lane)
	return lane, nil
}

// MaxPayload is the largest payload of the topic, in bytes.
func (p *Publisher) MaxPayload() int { return p.lane.MaxPayload() }

// TryPublish copies payload into the topic as one frame. It does not wait for room:
// ErrBackpressure means that the topic is full, or that another goroutine waits for
// room or holds a claim. ErrTooLarge: a *TooLargeError.
func (p *Publisher) TryPublish(payload []byte) error {
	if !p.take() {
		return ErrBackpressure
	}
	defer p.pass()
	return p.lane.TryPublish(payload)
}

// Publish copies payload into the topic as one frame, and waits while the topic is
// full, until ctx ends: then it returns ctx's error, and nothing was published.
func (p *Publisher) Publish(ctx context.Context, payload []byte) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	defer p.pass()
	err := p.lane.TryPublish(payload)
	if err != ErrBackpressure {
		return err
	}
	p.slow.Store(true)
	return p.lane.Publish(ctx, payload)
}

// PublishBatch publishes payloads in order, and waits while the topic is full, until
// ctx ends. It returns how many were published, also with an error.
func (p *Publisher) PublishBatch(ctx context.Context, payloads [][]byte) (int, error) {
	if err := p.wait(ctx); err != nil {
		return 0, err
	}
	defer p.pass()
	n, err := p.lane.TryPublishBatch(payloads)
	if err != ErrBackpressure {
		return n, err
	}
	p.slow.Store(true)
	m, err := p.lane.PublishBatch(ctx, payloads[n:])
	return n + m, err
}

// Claim claims room for a payload of n bytes, to be written in place, and waits while
// the topic is full, until ctx ends. Until its Commit or Abort no other call of this
// Publisher goes on: claims that take long want a Lane of their own.
func (p *Publisher) Claim(ctx context.Context, n int) (Claim, error) {
	if err := p.wait(ctx); err != nil {
		return Claim{}, err
	}
	p.slow.Store(true)
	c, err := p.lane.Claim(ctx, n)
	if err != nil {
		p.pass()
		return Claim{}, err
	}
	p.lane.done = p.passed
	return c, nil
}

// Close gives the slots of the Publisher and its lanes back. Calls that wait return
// os.ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.lane.Close()
	for _, l := range p.lanes {
		_ = l.Close() // closed before by its user, or now
	}
	p.lanes = nil
	return err
}

// wait takes the turn, until ctx ends.
func (p *Publisher) wait(ctx context.Context) error {
	select {
	case <-p.turn:
		return nil
	default:
	}
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take takes the turn unless whoever has it will keep it for long.
func (p *Publisher) take() bool {
	for {
		select {
		case <-p.turn:
			return true
		default:
			if p.slow.Load() {
				return false
			}
			runtime.Gosched() // somebody is in the middle of a publish: some nanoseconds
		}
	}
}

func (p *Publisher) pass() {
	p.slow.Store(false)
	p.turn <- struct{}{}
}
