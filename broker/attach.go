package broker

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// An attachment is a slot of a topic that somebody holds.
type attachment struct {
	id     uint64
	topic  *topic
	holder *holder // nil: the broker itself, for dead letters, or nobody that is known
	who    control.Identity
	kind   control.Kind
	name   string
	slot   int
	group  *group // members only
	member int
	since  time.Time
	// evictAfter is the bound on standing still that a subscriber asked for.
	evictAfter time.Duration
	policy     ring.Policy // subscribers only
	expelled   string      // why its slot does nothing any more; guarded by topic.mu
	away       bool        // it was adopted, and its client has not come back; guarded by topic.mu
	died       bool        // set when it goes
	revoked    atomic.Bool // it goes because its claim was taken away
	repaired   uint64      // bytes that its repair skipped
	settled    atomic.Bool // it has gone, and its slot is free
	note       atomic.Pointer[string]
}

// logged are the attributes that name an attachment in the log.
func (a *attachment) logged() []any {
	out := []any{"kind", a.kind, "name", a.name, "pid", a.who.PID, "uid", a.who.UID, "command", a.who.Command, "slot", a.slot}
	if a.group != nil {
		out = append(out, "group", a.group.name)
	}
	return out
}

// attach gives a slot of t to a, as the request says.
func (t *topic) attach(a *attachment, r control.AttachRequest) error {
	if a.kind == control.KindMember {
		return t.attachMember(a, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed || t.closed {
		return notFound(t.name)
	}
	var err error
	if a.kind == control.KindPublisher {
		err = t.admitPublisher(a)
	} else {
		err = t.admitSubscriber(a, r)
	}
	if err != nil {
		return err
	}
	t.attached(a)
	return nil
}

// attached counts a new attachment. The caller holds mu, and has held it since a got its slot:
// so the ids of those who had a slot one after the other grow, and of two records that name it
// the later one is right (docs/model/adopt.pml, IDFIRST).
func (t *topic) attached(a *attachment) {
	a.id = t.broker.lastAttachment.Add(1)
	t.users++
	t.publishState()
	t.audit()
	select {
	case t.broker.somethingAttached <- struct{}{}:
	default: // it will look anyway
	}
}

func (t *topic) admitPublisher(a *attachment) error {
	slot, err := freeSlot(t.publishers, "publisher")
	if err != nil {
		if t.options.Exclusive {
			holder := t.publishers[0]
			return control.Errorf(control.CodeNoSlot, "topic %q is exclusive, and %q (pid %d) publishes to it: it must detach first",
				t.name, holder.name, holder.who.PID)
		}
		return t.noSlot(err)
	}
	if err := t.ring.AdmitPublisher(slot); err != nil {
		return err
	}
	a.slot, t.publishers[slot] = slot, a
	if t.stuck.watch != nil {
		t.stuck.watch.Forget(slot)
	}
	return nil
}

func (t *topic) admitSubscriber(a *attachment, r control.AttachRequest) error {
	config, err := subscriberConfig(r)
	if err != nil {
		return err
	}
	slot, err := freeSlot(t.subscribers, "subscriber")
	if err != nil {
		return t.noSlot(err)
	}
	t.reclaim(slot)
	if err := t.ring.AdmitSubscriber(slot, config); err != nil {
		if errors.Is(err, ring.ErrConfig) {
			return control.Errorf(control.CodeInvalid, "topic %q: %v", t.name, err)
		}
		return err
	}
	a.slot, a.policy, a.evictAfter, t.subscribers[slot] = slot, config.Policy, config.EvictAfter, a
	if a.evictAfter > 0 {
		t.watchStalls()
	}
	return nil
}

// reclaim frees a subscriber slot that nobody has, whatever the memory says: subscribers
// can write there, and a hostile one must not keep others out.
func (t *topic) reclaim(slot int) {
	// An error would be a slot that is out of range, which Admit reports.
	_ = t.ring.ReleaseSubscriber(slot)
}

// subscriberConfig reads what a request says about a subscriber.
func subscriberConfig(r control.AttachRequest) (ring.SubscriberConfig, error) {
	c := ring.SubscriberConfig{Policy: ring.Reliable, EvictLag: uint64(max(r.EvictLag, 0)), EvictAfter: r.EvictAfter}
	switch r.Policy {
	case "", control.PolicyReliable:
	case control.PolicyLossy:
		c.Policy = ring.Lossy
	case control.PolicyEvict:
		c.Policy = ring.Evict
	default:
		return c, control.Errorf(control.CodeInvalid, "policy %.32q is not one of reliable, lossy, evict", r.Policy)
	}
	if r.EvictLag < 0 {
		return c, control.Errorf(control.CodeInvalid, "evict_lag of %d bytes is negative", r.EvictLag)
	}
	if err := c.Check(); err != nil {
		return c, control.Errorf(control.CodeInvalid, "%v", err)
	}
	return c, nil
}

// freeSlot is the lowest slot that nobody has.
func freeSlot[T any](slots []*T, what string) (int, error) {
	for i, s := range slots {
		if s == nil {
			return i, nil
		}
	}
	return 0, fmt.Errorf("all %d %s slots are taken", len(slots), what)
}

// noSlot adds what to do. A slot of a dead publisher is free only after its repair.
func (t *topic) noSlot(err error) error {
	if n := len(t.pending); n > 0 {
		return control.Errorf(control.CodeBusy, "topic %q: %v, but %d of them wait for repair after a death: try again", t.name, err, n)
	}
	return control.Errorf(control.CodeNoSlot, "topic %q: %v: detach one, or create the topic with more slots", t.name, err)
}

// files are the descriptors for an attachment of this kind, and a function that closes
// those of them that were made for it.
func (t *topic) files(kind control.Kind) (files []*os.File, done func(), err error) {
	files = make([]*os.File, control.MaxDescriptors)
	files[control.FileSubscriberBell], files[control.FilePublisherBell] = t.subBell.File(), t.pubBell.File()
	for i, s := range t.segments {
		files[i] = s.File()
	}
	if kind.Publishes() {
		return files, func() {}, nil
	}
	var own []*os.File
	done = func() {
		for _, f := range own {
			_ = f.Close() // it was made for reading
		}
	}
	for _, i := range []int{control.FileCtl, control.FileData} {
		f, err := t.segments[i].ReadOnlyFile()
		if err != nil {
			done()
			return nil, nil, err
		}
		own = append(own, f)
		files[i] = f
	}
	return files, done, nil
}
