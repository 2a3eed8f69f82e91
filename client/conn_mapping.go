package client

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// A mappingKey tells mappings apart: one topic may be mapped for writing, for its
// publishers, and again read-only, for its subscribers.
type mappingKey struct {
	topicID string
	publish bool
}

// A mapping is a topic's memory in this process, shared by all attachments of one
// direction.
type mapping struct {
	key      mappingKey
	topic    string
	segments [3]*shm.Segment // by control.FileCtl, FileCursors, FileData
	ring     *ring.Ring
	subBell  *doorbell.Bell
	pubBell  *doorbell.Bell
	gone     atomic.Bool // the topic was removed

	refs int // guarded by Client.mu
}

// holdMapping takes a reference on the mapping of a topic, if there is one.
func (c *Client) holdMapping(topic string, publish bool) *mapping {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.mappings {
		if m.topic == topic && m.key.publish == publish && !m.gone.Load() {
			m.refs++
			return m
		}
	}
	return nil
}

// retainMapping takes another reference on a mapping that the caller uses.
func (c *Client) retainMapping(m *mapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.refs++
}

// dropMapping gives a reference back; the last one unmaps.
func (c *Client) dropMapping(m *mapping) {
	if m == nil {
		return
	}
	c.mu.Lock()
	m.refs--
	last := m.refs == 0
	if last {
		delete(c.mappings, m.key)
	}
	c.mu.Unlock()
	if last {
		m.close()
	}
}

// newMapping maps what came with an attach reply, and returns it with one reference. It
// owns the files in every case.
func (c *Client) newMapping(key mappingKey, topic string, files []*os.File) (*mapping, error) {
	fresh, err := openMapping(key, topic, files)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	m := c.mappings[key]
	if m == nil {
		m = fresh
		c.mappings[key] = m
	}
	m.refs++
	c.mu.Unlock()
	if m != fresh {
		fresh.close() // two goroutines attached at the same time
	}
	// The event may have come before there was a mapping to be told.
	if s, err := m.ring.State(); err == nil && s.Removed {
		m.gone.Store(true)
	}
	return m, nil
}

func openMapping(key mappingKey, topic string, files []*os.File) (_ *mapping, err error) {
	if len(files) != control.MaxDescriptors {
		closeFiles(files)
		return nil, fmt.Errorf("%d descriptors came from the broker instead of %d", len(files), control.MaxDescriptors)
	}
	m := &mapping{key: key, topic: topic}
	defer func() {
		if err != nil {
			m.close()
			closeFiles(files) // again, for some: os.File knows
		}
	}()
	writable := [3]bool{control.FileCtl: key.publish, control.FileCursors: true, control.FileData: key.publish}
	for i, w := range writable {
		if m.segments[i], err = shm.Open(files[i], w); err != nil {
			return nil, err
		}
	}
	if m.subBell, err = doorbell.FromFile(files[control.FileSubscriberBell]); err != nil {
		return nil, err
	}
	if m.pubBell, err = doorbell.FromFile(files[control.FilePublisherBell]); err != nil {
		return nil, err
	}
	m.ring, err = ring.Attach(ring.Memory{
		Ctl:     m.segments[control.FileCtl].Bytes(),
		Cursors: m.segments[control.FileCursors].Bytes(),
		Data:    m.segments[control.FileData].Bytes(),
	})
	return m, err
}

// close unmaps everything. Nobody uses the ring any more.
func (m *mapping) close() {
	for _, s := range m.segments {
		if s != nil {
			_ = s.Close() // unmapping a mapping of our own cannot fail
		}
	}
	for _, b := range []*doorbell.Bell{m.subBell, m.pubBell} {
		if b != nil {
			_ = b.Close()
		}
	}
}
