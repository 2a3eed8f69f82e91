package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/ring"
)

// Records are what the store has beside descriptors, as JSON. Another release may read
// them: fields are added, and never change their meaning.

// Keys of entries: one socket, and one for each topic and each client with attachments.
const (
	socketKey       = "socket"
	topicKeyPrefix  = "topic/"
	clientKeyPrefix = "client/"
)

// A topicRecord is a topic. Its descriptors are those of an attach reply, all writable.
type topicRecord struct {
	Name    string        `json:"name"`
	ID      string        `json:"id"`
	Owner   uint32        `json:"owner"`
	Booked  int64         `json:"booked"`
	Created time.Time     `json:"created"`
	Options TopicOptions  `json:"options"`
	Removed bool          `json:"removed,omitempty"`
	Groups  []groupRecord `json:"groups,omitempty"`
}

// A groupRecord is a group that is open.
type groupRecord struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
}

// A clientRecord is a client that has attachments. Its descriptor, if it has one, is a
// pidfd of its process.
type clientRecord struct {
	Secret      string             `json:"secret"`
	Name        string             `json:"name"`
	PID         int32              `json:"pid"`
	UID         uint32             `json:"uid"`
	GID         uint32             `json:"gid"`
	Groups      []uint32           `json:"groups,omitempty"`
	Command     string             `json:"command,omitempty"`
	Attachments []attachmentRecord `json:"attachments"`
}

// An attachmentRecord is a slot that a client holds.
type attachmentRecord struct {
	// ID grows with time: of two that name one slot, the higher one has it.
	ID         uint64        `json:"id"`
	TopicID    string        `json:"topic"`
	Kind       control.Kind  `json:"kind"`
	Name       string        `json:"name"`
	Slot       int           `json:"slot"`
	Group      int           `json:"group,omitempty"`
	Member     int           `json:"member,omitempty"`
	Since      time.Time     `json:"since"`
	EvictAfter time.Duration `json:"evict_after_ns,omitempty"`
	Policy     ring.Policy   `json:"policy,omitempty"`
	// Leaving says that the client has given it up, and that the slot is not free yet.
	Leaving bool `json:"leaving,omitempty"`
}

// A socketRecord says which file the listening socket is bound to.
type socketRecord struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	Dev  uint64      `json:"dev"`
	Ino  uint64      `json:"ino"`
}

func (r clientRecord) identity() control.Identity {
	return control.Identity{PID: r.PID, UID: r.UID, GID: r.GID, Groups: r.Groups, Command: r.Command}
}

// record is t as it is kept. The caller holds mu.
func (t *topic) record() topicRecord {
	r := topicRecord{Name: t.name, ID: t.id, Owner: t.owner, Booked: t.booked, Created: t.created, Options: t.options, Removed: t.removed}
	for _, g := range t.groups {
		if g != nil && g.opening == nil {
			r.Groups = append(r.Groups, groupRecord{Name: g.name, Index: g.index})
		}
	}
	return r
}

func (t *topic) key() string { return topicKeyPrefix + t.id }

// keep puts t into the store, with its memory.
func (t *topic) keep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	files, done, err := t.files(control.KindPublisher) // all writable
	if err != nil {
		return err
	}
	defer done()
	return t.broker.vault.put(t.key(), t.record(), files...)
}

// keepChange brings t's record up to date. The caller holds mu.
func (t *topic) keepChange() error {
	v := &t.broker.vault
	err := v.update(t.key(), t.record())
	if errors.Is(err, keeper.ErrNotFound) && v.isRefilling() {
		return nil // refill comes to it, when mu is free
	}
	return err
}

// record is an attachment as it is kept.
func (a *attachment) record(leaving bool) attachmentRecord {
	r := attachmentRecord{
		ID: a.id, TopicID: a.topic.id, Kind: a.kind, Name: a.name, Slot: a.slot, Member: a.member,
		Since: a.since, EvictAfter: a.evictAfter, Policy: a.policy, Leaving: leaving,
	}
	if a.group != nil {
		r.Group = a.group.index
	}
	return r
}

// decodeRecord reads the data of an entry.
func decodeRecord(key string, data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("entry %s is not a record: %w", key, err)
	}
	return nil
}

// kindOf tells entries apart.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	return kind
}
