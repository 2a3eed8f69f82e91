package broker

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// A topic is a ring in shared memory and who is attached to it.
type topic struct {
	broker   *Broker
	log      *slog.Logger
	name     string
	id       string // hexadecimal
	owner    uint32 // uid
	booked   int64  // bytes in the ledger
	created  time.Time
	options  TopicOptions
	segments [3]*shm.Segment // by control.FileCtl, FileCursors, FileData
	ring     *ring.Ring
	subBell  *doorbell.Bell
	pubBell  *doorbell.Bell

	// mu guards what follows, and every call of the ring's broker side.
	mu          sync.Mutex
	removed     bool // has no name any more
	closed      bool // has no memory any more
	users       int  // attachments, and operations that use the memory without mu
	publishers  []*attachment
	subscribers []*attachment // and members
	groups      []*group
	stalls      stalls
	stuck       stuckClaims
	pending     []*attachment // gone, but not yet repaired or reaped
	letters     *ring.Publisher
	counts      counts
	alarm       alarm
}

// counts are a topic's figures that no slot keeps.
type counts struct {
	repairs, repairedBytes uint64
	deadLetters            uint64
	evictions              uint64
	stuck                  uint64 // claims that were held for too long
	revoked                uint64 // of those, taken away by an operator
	violations             uint64
	expulsions             uint64
	redelivered            uint64 // by groups that were closed
	missed                 uint64 // by subscribers that left
	frames                 uint64 // by publishers that left
}

// blankTopic is a topic without memory.
func blankTopic(b *Broker, name string, o TopicOptions, owner uint32, bytes int64) *topic {
	return &topic{
		broker: b, log: b.log.With("topic", name), name: name, owner: owner, booked: bytes,
		created: time.Now(), options: o,
		publishers: make([]*attachment, o.Publishers), subscribers: make([]*attachment, o.Subscribers),
		groups: make([]*group, o.Groups),
	}
}

// newTopic makes the memory of a topic. What it had made is given back on an error.
func newTopic(b *Broker, name string, o TopicOptions, owner uint32, bytes int64) (_ *topic, err error) {
	t := blankTopic(b, name, o, owner, bytes)
	defer func() {
		if err != nil {
			t.release()
		}
	}()
	sizes, _, err := footprint(o)
	if err != nil {
		return nil, err
	}
	pages, err := shm.ParsePages(o.Pages)
	if err != nil {
		return nil, err
	}
	for i, part := range [3]struct {
		name  string
		size  int64
		pages shm.Pages
	}{
		control.FileCtl:     {"ctl", sizes.Ctl, shm.Pages4KiB},
		control.FileCursors: {"cursors", sizes.Cursors, shm.Pages4KiB},
		control.FileData:    {"data", sizes.Data, pages},
	} {
		segment, err := shm.Create(shm.Options{
			Name: "hugebus." + name + "." + part.name, Size: part.size, Pages: part.pages, Lock: o.Lock, Node: o.NUMANode,
		})
		if err != nil {
			return nil, memoryError(name, err)
		}
		t.segments[i] = segment
	}
	return t, t.format()
}

// memoryError tells a client's mistake from a host's shortage.
func memoryError(name string, err error) error {
	code := control.CodeMemory
	if errors.Is(err, syscall.EINVAL) {
		code = control.CodeInvalid
	}
	return control.Errorf(code, "topic %q: %v", name, sys.Explain(err))
}

func (t *topic) format() (err error) {
	var random [24]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("random numbers: %w", err)
	}
	c := ringConfig(t.options)
	copy(c.TopicID[:], random[:16])
	c.Key = binary.NativeEndian.Uint64(random[16:])
	c.Epoch, c.Created, c.PageSize = t.broker.epoch, t.created.UnixNano(), uint64(t.data().PageSize())
	c.Fenced = !t.broker.barriers.Global
	t.id = hex.EncodeToString(c.TopicID[:])
	if t.ring, err = ring.Format(ring.Memory{
		Ctl:     t.segments[control.FileCtl].Bytes(),
		Cursors: t.segments[control.FileCursors].Bytes(),
		Data:    t.data().Bytes(),
	}, c); err != nil {
		return err
	}
	if t.subBell, err = doorbell.New(); err != nil {
		return err
	}
	if t.pubBell, err = doorbell.New(); err != nil {
		return err
	}
	t.publishState()
	return nil
}

func (t *topic) data() *shm.Segment { return t.segments[control.FileData] }

// publishState tells everybody who has the topic mapped what the broker knows.
func (t *topic) publishState() {
	t.ring.SetState(ring.State{
		Epoch: t.broker.epoch, Publishers: uint64(count(t.publishers)), Subscribers: uint64(count(t.subscribers)),
		Groups: uint64(count(t.groups)), Repairs: t.counts.repairs, SkippedBytes: t.counts.repairedBytes, Removed: t.removed,
	})
}

// count counts what is not nil.
func count[T any](slots []*T) (n int) {
	for _, s := range slots {
		if s != nil {
			n++
		}
	}
	return n
}

// wake rings both doorbells, so that everybody looks again.
func (t *topic) wake() {
	if err := errors.Join(t.ring.WakeSubscribers(t.subBell), t.ring.WakePublishers(t.pubBell)); err != nil {
		t.log.Error("cannot ring a doorbell", "error", err)
	}
}

// remove marks a topic that has lost its name, and returns the sessions to tell. The
// memory goes when the last user does; until then it is kept.
func (t *topic) remove() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.removed = true
	if t.users > 0 {
		if err := t.keepChange(); err != nil {
			t.log.Error("the keeper does not take that a topic is removed: it is there again if the broker dies now", "error", err)
		}
		failpoint.Hit(FailRemoveRecorded)
	}
	t.publishState()
	t.wake()
	told := map[*session]bool{}
	var sessions []*session
	for _, slots := range [][]*attachment{t.publishers, t.subscribers} {
		for _, a := range slots {
			if a == nil || a.holder == nil {
				continue
			}
			if s := a.holder.session.Load(); s != nil && !told[s] {
				told[s] = true
				sessions = append(sessions, s)
			}
		}
	}
	t.closeIfUnused()
	return sessions
}

// use keeps the memory until unuse. It is false if the topic is gone. The caller holds mu.
func (t *topic) use() bool {
	if t.closed {
		return false
	}
	t.users++
	return true
}

// unuse ends use. The caller holds mu.
func (t *topic) unuse() {
	t.users--
	t.closeIfUnused()
}

func (t *topic) closeIfUnused() {
	if t.removed && t.users == 0 && !t.closed {
		t.close()
		failpoint.Hit(FailRemoveClosed)
		t.broker.vault.drop(t.key())
		t.broker.ledger.giveTopic(t.owner, t.booked)
		t.broker.topics.forget(t)
	}
}

// shut closes the topic whoever uses it: the broker stops.
func (t *topic) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.close()
	}
}

// close ends timers and gives the memory back. Mappings in other processes stay.
func (t *topic) close() {
	t.closed = true
	t.stalls.stop()
	for _, g := range t.groups {
		if g != nil {
			g.stopLinger()
		}
	}
	t.release()
}

func (t *topic) release() {
	var errs []error
	for _, s := range t.segments {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	for _, b := range []*doorbell.Bell{t.subBell, t.pubBell} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.log.Error("cannot give a topic's memory back", "error", err)
	}
}
