package broker

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// brokerName is what lists call the broker's own publisher.
const brokerName = "hugebus broker: dead letters"

// buries reports whether frames of the topic's groups ever go to a dead-letter topic.
// Those of a dead-letter topic do not: there would be no end.
func (t *topic) buries() bool {
	return t.options.MaxRedeliveries >= 0 && !control.IsDeadLetterTopic(t.name)
}

// buryLater moves dead letters of a group in the background, if it has any. The caller
// holds t.mu.
func (b *Broker) buryLater(t *topic, g *group) {
	state, err := t.ring.GroupState(g.index)
	if err != nil || state.Orphans == 0 || !t.buries() || b.isStopping() || !t.use() {
		return
	}
	b.background.Go(func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.unuse()
		}()
		if _, err := b.bury(t, g.name); err != nil {
			t.log.Warn("frames that nobody finishes stay in their group", "group", g.name, "error", err)
		}
	})
}

// errNoLetters ends a round of DeadLetters that found a frame before the dead-letter
// topic was there.
var errNoLetters = errors.New("broker: the dead-letter topic is not there yet")

// bury moves the frames of a group that were redelivered too often into the
// dead-letter topic, and returns how many. Members do not take such frames; those that
// cannot be moved are for them again.
func (b *Broker) bury(t *topic, name string) (int, error) {
	if !t.buries() {
		return 0, nil
	}
	moved, err := b.buryAll(t, name)
	if err != nil {
		t.reoffer(name)
	}
	return moved, err
}

// reoffer hands frames of a group that could not be buried to its members.
func (t *topic) reoffer(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.group(name)
	if t.closed || g == nil || g.opening != nil {
		return
	}
	if n, err := t.ring.Reoffer(g.index, t.options.MaxRedeliveries); err != nil || n > 0 {
		t.wake()
	}
}

func (b *Broker) buryAll(t *topic, name string) (int, error) {
	var dead *topic
	moved := 0
	for {
		n, err := t.buryRound(name, dead)
		moved += n
		if !errors.Is(err, errNoLetters) {
			return moved, err
		}
		// Making it takes time, and memory: not while t is locked.
		if dead, err = b.letterTopic(t); err != nil {
			return moved, fmt.Errorf("dead-letter topic: %w", err)
		}
	}
}

func (t *topic) buryRound(name string, dead *topic) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, notFound(t.name)
	}
	g := t.group(name)
	if g == nil || g.opening != nil {
		return 0, control.Errorf(control.CodeNotFound, "topic %q has no group %q", t.name, name)
	}
	n, err := t.ring.DeadLetters(g.index, t.options.MaxRedeliveries, func(f ring.Frame) error {
		if dead == nil {
			return errNoLetters
		}
		return dead.publishLetter(f.Payload)
	})
	if n > 0 {
		t.counts.deadLetters += uint64(n)
		t.log.Warn("frames were redelivered too often: they are dead letters now", "group", name, "frames", n,
			"limit", t.options.MaxRedeliveries, "to", control.DeadLetterTopic(t.name))
		t.wake()
	}
	return n, err
}

// letterTopic finds or makes the dead-letter topic of t, for t's owner.
func (b *Broker) letterTopic(t *topic) (*topic, error) {
	name := control.DeadLetterTopic(t.name)
	if dead := b.topics.get(name); dead != nil {
		return dead, nil
	}
	payload := t.ring.Config().MaxPayload
	capacity := max(int64(ring.CapacityFor(int(payload))), min(t.options.Capacity, 1<<20))
	dead, err := b.create(name, TopicOptions{Capacity: capacity, MaxPayload: int64(payload)}, t.owner)
	if errors.Is(err, &control.Error{Code: control.CodeExists}) {
		if dead = b.topics.get(name); dead != nil {
			return dead, nil
		}
	}
	return dead, err
}

// publishLetter publishes into a dead-letter topic from the broker's own slot.
func (t *topic) publishLetter(payload []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.removed {
		return notFound(t.name)
	}
	if t.letters == nil {
		a := &attachment{
			topic: t, kind: control.KindPublisher, name: brokerName, since: time.Now(),
			who: control.Identity{PID: int32(os.Getpid()), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())},
		}
		if err := t.admitPublisher(a); err != nil {
			return err
		}
		var err error
		if t.letters, err = t.ring.Publisher(a.slot, ring.PublisherOptions{Doorbell: t.subBell}); err != nil {
			return err
		}
		t.publishState()
	}
	if err := t.letters.TryPublish(payload); err != nil {
		return fmt.Errorf("dead-letter topic %q: %w", t.name, err)
	}
	return nil
}
