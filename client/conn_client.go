// Package client is what applications import: it attaches to topics of a hugebus broker
// on the same host, and publishes and reads frames there in shared memory, without a
// system call on the way.
//
//	c, err := client.Dial(ctx, client.Options{})
//	pub, err := c.Publisher(ctx, "orders", client.PublisherOptions{})
//	err = pub.Publish(ctx, []byte("hello"))
//
//	sub, err := c.Subscriber(ctx, "orders", client.SubscriberOptions{})
//	for frame, err := range sub.Frames(ctx) {
//
// The broker is needed to attach, and for nothing else: what is attached goes on at
// full speed when it is gone. The client looks for the next broker by itself, which knows what
// is attached if a keeper has kept it; otherwise those who use it get ErrDetached.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
)

// A Client is a connection to a broker, and the memory of the topics that it is attached
// to. It is safe for concurrent use.
type Client struct {
	options  Options
	log      *slog.Logger
	barriers sys.Barriers
	conn     *connection

	mu       sync.Mutex
	closing  bool // Close was called: nothing new is attached
	mappings map[mappingKey]*mapping
	attached map[*attachment]struct{}
}

// Dial connects to the broker. ErrBrokerUnavailable: there is none; ErrVersion: it is of
// another release; ErrQuota: it has too many clients.
func Dial(ctx context.Context, o Options) (*Client, error) {
	o = o.withDefaults()
	barriers, err := sys.MembarrierRegister()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c := &Client{
		options: o, log: o.Logger, barriers: barriers,
		mappings: map[mappingKey]*mapping{}, attached: map[*attachment]struct{}{},
	}
	hello := control.NewHello(ring.LayoutVersion)
	hello.Name = o.Name
	c.conn = &connection{socket: o.Socket, hello: hello, log: o.Logger, wait: o.WaitForBroker, patience: patience, event: c.event, lost: c.markDetached}
	if err := c.conn.dial(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends all use of what is attached, and the connection. It does not wait for
// callers that are inside a publisher or subscriber, each of which gets os.ErrClosed, nor
// for open claims: the last one that leaves closes the connection. Closing again is
// os.ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return os.ErrClosed
	}
	c.closing = true
	var hooks []func() error
	for a := range c.attached {
		if a.onClose != nil {
			hooks = append(hooks, a.onClose)
		}
	}
	c.mu.Unlock()
	var errs []error
	for _, hook := range hooks {
		if err := hook(); err != nil && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, c.conn.close())...)
}

// event handles what the broker says without having been asked. It runs on the
// connection's reader.
func (c *Client) event(m control.Message) {
	switch m.Event {
	case control.EventTopicRemoved:
		var gone control.TopicRemoved
		if err := m.Decode(&gone); err != nil {
			c.log.Warn("hugebus: bad event from the broker", "event", m.Event, "error", err)
			return
		}
		c.log.Info("hugebus: topic was removed", "topic", gone.Topic, "reason", gone.Reason)
		c.markRemoved(gone.TopicID)
	case control.EventShutdown:
		var stop control.Shutdown
		if err := m.Decode(&stop); err != nil {
			c.log.Warn("hugebus: bad event from the broker", "event", m.Event, "error", err)
			return
		}
		c.log.Info("hugebus: the broker stops; what is attached goes on without it", "message", stop.Message)
	case control.EventExpelled:
		var e control.Expelled
		if err := m.Decode(&e); err != nil {
			c.log.Warn("hugebus: bad event from the broker", "event", m.Event, "error", err)
			return
		}
		c.markExpelled(e)
	case control.EventRevoke:
		var r control.Revoke
		if err := m.Decode(&r); err != nil {
			c.log.Warn("hugebus: bad event from the broker", "event", m.Event, "error", err)
			return
		}
		c.revoke(r)
	default:
		c.log.Debug("hugebus: unknown event from a newer broker", "event", m.Event)
	}
}

// markRemoved tells the attachments of a topic that it was removed, and wakes those
// who sleep: in other processes too, which look again.
func (c *Client) markRemoved(topicID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone []*mapping
	for key, m := range c.mappings {
		if key.topicID == topicID {
			m.gone.Store(true)
			gone = append(gone, m)
		}
	}
	for a := range c.attached {
		if a.mem.key.topicID == topicID {
			a.ended.CompareAndSwap(notEnded, endedByRemoval)
		}
	}
	for _, m := range gone { // when all know, so that nobody who wakes finds one that goes on
		m.wake()
	}
}

// markDetached tells attachments that the broker does not know them any more. Those of a
// topic that was removed before can go on to read what is left there.
func (c *Client) markDetached(ids []uint64) {
	gone := map[uint64]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var lost []*attachment
	for a := range c.attached {
		if gone[a.id] {
			a.giveIn()
			lost = append(lost, a)
		}
	}
	for _, a := range lost { // when all know, so that nobody who wakes finds one that goes on
		a.mem.wake()
	}
}

// markExpelled tells an attachment that the broker has expelled it.
func (c *Client) markExpelled(e control.Expelled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.attached {
		if a.id == e.Attachment && a.ended.CompareAndSwap(notEnded, endedByExpulsion) {
			c.log.Warn("hugebus: the broker has expelled a subscription: its words in shared memory are impossible", "topic", e.Topic, "kind", a.kind, "reason", e.Reason)
			a.mem.wake()
		}
	}
}

// detach ends an attachment whose slot may be somebody else's. The caller holds Client.mu.
func (a *attachment) detach() {
	a.giveIn()
	a.mem.wake()
}

// giveIn is detach without waking who sleeps. The caller holds Client.mu.
func (a *attachment) giveIn() {
	how := uint32(endedByBroker)
	if s, err := a.ring.State(); err == nil && s.Removed {
		how = endedByRemoval
	}
	if a.ended.CompareAndSwap(notEnded, how) {
		a.client.log.Warn("hugebus: the broker has given an attachment up; attach again", "topic", a.topic, "kind", a.kind)
	}
}

// wake makes everybody look again, who sleeps on the topic in this process or another.
func (m *mapping) wake() {
	for _, b := range []*doorbell.Bell{m.subBell, m.pubBell} {
		_ = b.Ring() // fails only when closed, and then nobody sleeps
	}
}
