package broker

import (
	"fmt"
	"slices"
	"sync"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// A catalogue holds the topics by name. It is the one place that knows which there are.
// It is safe for concurrent use.
type catalogue struct {
	mu      sync.Mutex
	entries map[string]*entry
	removed map[*topic]struct{} // without a name, still in use
}

// An entry is a topic, or one that is being made: that may take a second, during which
// its name is taken and others wait.
type entry struct {
	made  chan struct{} // closed when topic and err are set
	topic *topic
	err   error
}

func newCatalogue() *catalogue {
	return &catalogue{entries: map[string]*entry{}, removed: map[*topic]struct{}{}}
}

// make takes the name, and calls fn to make the topic. A name that is taken is an error
// of code exists.
func (c *catalogue) make(name string, fn func() (*topic, error)) (*topic, error) {
	c.mu.Lock()
	if c.entries[name] != nil {
		c.mu.Unlock()
		return nil, control.Errorf(control.CodeExists, "topic %q exists already", name)
	}
	e := &entry{made: make(chan struct{})}
	c.entries[name] = e
	c.mu.Unlock()

	e.topic, e.err = fn()
	if e.err != nil {
		c.mu.Lock()
		delete(c.entries, name)
		c.mu.Unlock()
	}
	close(e.made)
	return e.topic, e.err
}

// get finds a topic, waiting for one that is being made. nil: there is none.
func (c *catalogue) get(name string) *topic {
	c.mu.Lock()
	e := c.entries[name]
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	<-e.made
	return e.topic
}

// take removes a topic from the names, and remembers it until forget. nil: there is none.
func (c *catalogue) take(name string) *topic {
	t := c.get(name)
	if t == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[name]; e == nil || e.topic != t {
		return nil // somebody else was faster
	}
	delete(c.entries, name)
	c.removed[t] = struct{}{}
	return t
}

// adopt takes in a topic of an earlier broker. It is false if the name is taken.
func (c *catalogue) adopt(t *topic) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.removed {
		c.removed[t] = struct{}{}
		return true
	}
	if c.entries[t.name] != nil {
		return false
	}
	made := make(chan struct{})
	close(made)
	c.entries[t.name] = &entry{made: made, topic: t}
	return true
}

// everything lists all topics that have memory, removed ones too.
func (c *catalogue) everything() []*topic {
	topics := c.all("")
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.removed {
		topics = append(topics, t)
	}
	return topics
}

// awaited is everything, with the topics that are being made, for which it waits.
func (c *catalogue) awaited() []*topic {
	c.mu.Lock()
	var making []chan struct{}
	for _, e := range c.entries {
		making = append(making, e.made)
	}
	c.mu.Unlock()
	for _, made := range making {
		<-made
	}
	return c.everything()
}

// forget drops a removed topic whose memory is gone.
func (c *catalogue) forget(t *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.removed, t)
}

// all lists the topics whose names come after after, sorted by name.
func (c *catalogue) all(after string) []*topic {
	c.mu.Lock()
	names := make([]string, 0, len(c.entries))
	for name, e := range c.entries {
		if name > after && e.isMade() {
			names = append(names, name)
		}
	}
	topics := make([]*topic, 0, len(names))
	slices.Sort(names)
	for _, name := range names {
		topics = append(topics, c.entries[name].topic)
	}
	c.mu.Unlock()
	return topics
}

func (e *entry) isMade() bool {
	select {
	case <-e.made:
		return e.err == nil
	default:
		return false
	}
}

func (c *catalogue) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// closeAll gives the memory of all topics back. Nobody uses the catalogue any more.
func (c *catalogue) closeAll() {
	topics := c.everything()
	c.mu.Lock()
	c.entries, c.removed = map[string]*entry{}, map[*topic]struct{}{}
	c.mu.Unlock()
	for _, t := range topics {
		t.shut()
	}
}

// create makes a topic for owner, or says what is in the way.
func (b *Broker) create(name string, o TopicOptions, owner uint32) (*topic, error) {
	if err := control.CheckTopicName(name); err != nil {
		return nil, control.Errorf(control.CodeInvalid, "%v", err)
	}
	o = mergeOptions(o, b.config.Defaults)
	if err := checkOptions(o); err != nil {
		return nil, control.Errorf(control.CodeInvalid, "topic %q: %v", name, err)
	}
	_, bytes, err := footprint(o)
	if err != nil {
		return nil, control.Errorf(control.CodeInvalid, "topic %q: %v", name, err)
	}
	return b.topics.make(name, func() (*topic, error) {
		if err := b.ledger.takeTopic(owner, bytes); err != nil {
			return nil, fmt.Errorf("topic %q: %w", name, err)
		}
		t, err := newTopic(b, name, o, owner, bytes)
		if err != nil {
			b.ledger.giveTopic(owner, bytes)
			return nil, err
		}
		failpoint.Hit(FailCreateMade)
		if err := t.keep(); err != nil {
			t.shut()
			b.ledger.giveTopic(owner, bytes)
			return nil, fmt.Errorf("topic %q: %w", name, err)
		}
		failpoint.Hit(FailCreateRecorded)
		b.log.Info("topic was made", "topic", name, "id", t.id, "capacity", o.Capacity, "pages", t.data().Pages(), "owner_uid", owner)
		return t, nil
	})
}

// remove takes a topic away, and tells who is attached.
func (b *Broker) remove(name, reason string) error {
	t := b.topics.take(name)
	if t == nil {
		return notFound(name)
	}
	b.log.Info("topic was removed", "topic", name, "id", t.id, "reason", reason)
	event := control.TopicRemoved{Topic: name, TopicID: t.id, Reason: reason}
	for _, s := range t.remove() {
		s.notify(control.EventTopicRemoved, event)
	}
	return nil
}

func notFound(name string) error {
	return control.Errorf(control.CodeNotFound, "topic %q does not exist: create it with `hugebus topic create %s`", name, name)
}
