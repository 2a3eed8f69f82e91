package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
)

// Failpoints of attaching, in their order: about to be asked; asked, and nothing is known; the reply is there, and nobody was
// given it; the broker has given a slot, and descriptors; its memory is mapped; the slot is registered. And of detaching: about to
// be asked; asked. And of coming back to the next broker: it is connected to; it is asked; it has answered, and nobody goes by that.
const (
	FailBeforeAttach     = "client/attach/before-request"
	FailAttachSent       = "client/attach/sent"
	FailAttachReceived   = "client/attach/received"
	FailAttachReplied    = "client/attach/replied"
	FailAttachMapped     = "client/attach/mapped"
	FailAttached         = "client/attach/attached"
	FailBeforeDetach     = "client/detach/before-request"
	FailDetachSent       = "client/detach/sent"
	FailReattachGreeted  = "client/reattach/greeted"
	FailReattachSent     = "client/reattach/sent"
	FailReattachAnswered = "client/reattach/answered"
)

// An attachment is a slot of a topic that the broker gave to this client.
//
// The memory behind ring stays mapped until release: whoever uses ring must have ended
// before. Both bells are shared by all attachments of the mapping: Ring them from
// anywhere, but make a Dup to Wait on.
type attachment struct {
	client *Client
	mem    *mapping
	id     uint64
	once   sync.Once
	ended  atomic.Uint32 // notEnded or one of the others

	topic           string
	kind            control.Kind
	groupName       string
	ring            *ring.Ring
	slot            int // publisher or subscriber slot; that of a member's words
	group           int // members only
	member          int // members only
	maxRedeliveries int // members only; math.MaxInt for no bound
	subBell         *doorbell.Bell
	pubBell         *doorbell.Bell
	barriers        sys.Barriers

	onClose func() error // guarded by Client.mu
	lane    *Lane        // of a publisher; guarded by Client.mu
}

// An attachOptions says what to attach.
type attachOptions struct {
	kind  control.Kind
	topic string
	// name is what the broker calls the attachment; empty: the client's name.
	name string
	// policy, evictLag and evictAfter are for subscribers.
	policy     ring.Policy
	evictLag   int64
	evictAfter time.Duration
	// group and start are for members; start counts if the group does not exist yet.
	group string
	start *control.StartPoint
}

// attach asks the broker for a slot, and for the topic's memory unless it is mapped
// already in this direction.
func (c *Client) attach(ctx context.Context, o attachOptions) (*attachment, error) {
	request := control.AttachRequest{
		Topic: o.topic, Kind: o.kind, Name: o.name, Group: o.group, Start: o.start,
		EvictLag: o.evictLag, EvictAfter: o.evictAfter,
	}
	if o.kind == control.KindSubscriber {
		request.Policy = o.policy.String()
	}
	for {
		held := c.holdMapping(o.topic, o.kind.Publishes())
		request.LaneOnly = held != nil
		var reply control.AttachReply
		failpoint.Hit(FailBeforeAttach)
		files, err := c.conn.requestFiles(ctx, control.OpAttach, request, &reply)
		if err != nil {
			c.dropMapping(held)
			return nil, err
		}
		if held != nil && held.key.topicID != reply.TopicID {
			// The topic was removed and made anew, and the event is on its way.
			c.markRemoved(held.key.topicID)
			c.dropMapping(held)
			closeFiles(files)
			if err := c.askDetach(reply.Attachment); err != nil {
				return nil, err
			}
			continue
		}
		failpoint.Hit(FailAttachReplied)
		return c.attachedTo(o, reply, held, files)
	}
}

// attachedTo makes an attachment of the broker's reply. It takes over the reference on
// held, or else the files.
func (c *Client) attachedTo(o attachOptions, reply control.AttachReply, held *mapping, files []*os.File) (*attachment, error) {
	m := held
	if m == nil {
		var err error
		if m, err = c.newMapping(mappingKey{topicID: reply.TopicID, publish: o.kind.Publishes()}, o.topic, files); err != nil {
			return nil, errors.Join(fmt.Errorf("client: attach %s: %w", o.topic, sys.Explain(err)), c.askDetach(reply.Attachment))
		}
	}
	failpoint.Hit(FailAttachMapped)
	a := &attachment{
		client: c, mem: m, id: reply.Attachment, topic: o.topic, kind: o.kind, groupName: o.group,
		ring: m.ring, slot: reply.Slot, group: reply.Group, member: reply.Member, maxRedeliveries: reply.MaxRedeliveries,
		subBell: m.subBell, pubBell: m.pubBell, barriers: c.barriers,
	}
	if reply.MaxRedeliveries < 0 {
		a.maxRedeliveries = math.MaxInt
	}
	c.mu.Lock()
	closing := c.closing
	c.attached[a] = struct{}{}
	if m.gone.Load() {
		a.ended.Store(endedByRemoval)
	} else if !c.conn.holds(a.id) {
		a.detach() // the broker died, and the next one does not know it
	}
	c.mu.Unlock()
	failpoint.Hit(FailAttached)
	if closing {
		a.release()
		return nil, os.ErrClosed
	}
	return a, nil
}

// closeWith tells Client.Close how to end the use of the attachment: fn stops its
// user, and sees to it that release is called in the end. An error means that the client
// was closed meanwhile, and that fn will not be called.
func (a *attachment) closeWith(fn func() error) error {
	a.client.mu.Lock()
	defer a.client.mu.Unlock()
	if a.client.closing {
		return os.ErrClosed
	}
	a.onClose = fn
	return nil
}

// setLane says which lane uses the attachment.
func (a *attachment) setLane(l *Lane) {
	a.client.mu.Lock()
	defer a.client.mu.Unlock()
	a.lane = l
}

// How an attachment ended before its release.
const (
	notEnded       = iota
	endedByRemoval // its topic was removed: what is there can still be read
	endedByBroker  // its slot may be somebody else's
	// An operator took its claim away. Its slot may be somebody else's.
	endedByOperator
	endedByExpulsion // what stands in its slot was impossible
)

// over reports whether the attachment has ended. It is cheap. Sleepers are woken when it
// becomes true.
func (a *attachment) over() bool { return a.ended.Load() != notEnded }

// removed reports whether it ended by the topic's removal.
func (a *attachment) removed() bool { return a.ended.Load() == endedByRemoval }

// lost reports whether its slot may be somebody else's: it must not be touched.
func (a *attachment) lost() bool { return a.ended.Load() >= endedByBroker }

// why is the error of an attachment that is over.
func (a *attachment) why() error {
	switch a.ended.Load() {
	case endedByBroker:
		return ErrDetached
	case endedByOperator:
		return ErrClaimRevoked
	case endedByExpulsion:
		return ErrExpelled
	}
	return ErrTopicRemoved
}

// release gives the slot back and unmaps the memory if this was its last use. The ring
// must not be used any more, not even by another goroutine. Calling it again does nothing.
func (a *attachment) release() {
	a.once.Do(func() {
		c := a.client
		c.mu.Lock()
		delete(c.attached, a)
		c.mu.Unlock()
		failpoint.Hit(FailBeforeDetach)
		if err := c.askDetach(a.id); err != nil {
			c.log.Warn("hugebus: broker does not take an attachment back", "topic", a.topic, "kind", a.kind, "error", err)
		}
		c.dropMapping(a.mem)
	})
}

// patience is how long a request may take that no caller's context bounds.
const patience = 5 * time.Second

// deadLetter asks the broker to move frames of a member's group that were redelivered too
// often, which members do not take any more. Nobody waits for the answer. If the broker
// cannot do it, or is not there, they are for the members again, or they would hold
// publishers back for good. The caller is inside its guard.
func (a *attachment) deadLetter() {
	a.client.retainMapping(a.mem)
	go func() {
		defer a.client.dropMapping(a.mem)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var moved control.DeadLetterReply
		err := a.client.conn.request(ctx, control.OpDeadLetter, control.DeadLetterRequest{Topic: a.topic, Group: a.groupName}, &moved)
		if err == nil {
			return
		}
		if n, err := a.ring.Reoffer(a.group, a.maxRedeliveries); n > 0 && err == nil {
			_ = a.subBell.Ring() // fails only when closed
		}
		if !errors.Is(err, os.ErrClosed) {
			a.client.log.Warn("hugebus: frames that nobody finishes stay in the group", "topic", a.topic, "group", a.groupName, "error", err)
		}
	}()
}

// askDetach tells the broker that an attachment is not used any more. Without a broker
// there is nobody to tell, and nothing is wrong: the next one is told.
func (c *Client) askDetach(id uint64) error {
	if !c.conn.holds(id) {
		return nil // no broker knows it
	}
	return c.conn.detach(id)
}
