package ring

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/seqlock"
)

// Memory is what a ring lives in. Ctl and Data may be mapped read-only by those who
// only subscribe; Cursors must be writable for everybody.
//
// The memory must start on a multiple of CellSize and stay mapped until the Ring and
// everything made from it is no longer used.
type Memory struct {
	Ctl, Cursors, Data []byte
}

// A Ring is one process's view of a ring. It is immutable and safe for concurrent
// use; the Publisher, Subscriber and Member made from it are not.
type Ring struct {
	cfg  Config
	mask uint64

	ctl, cursors, data region

	tail         *atomic.Uint64
	active       *bitmap
	publishers   []publisherSlot
	gating       *bitmap
	sleepers     *atomic.Uint64
	roomSleepers *atomic.Uint64
	openGroups   *atomic.Uint64
	subscribers  []subscriberSlot
	groups       []groupRecord
	state        seqlock.Latch
}

// Format makes a new ring in m, which must be zeroed, and attaches to it. The magic
// is written last, so that nobody attaches to half a ring.
func Format(m Memory, c Config) (*Ring, error) {
	sizes, err := c.Footprint()
	if err != nil {
		return nil, err
	}
	c = c.withDefaults()
	ctl, err := newRegion(m.Ctl, uint64(sizes.Ctl))
	if err != nil {
		return nil, fmt.Errorf("ring: format ctl: %d bytes, need %d: %w", len(m.Ctl), sizes.Ctl, err)
	}
	cursors, err := newRegion(m.Cursors, uint64(sizes.Cursors))
	if err != nil {
		return nil, fmt.Errorf("ring: format cursors: %d bytes, need %d: %w", len(m.Cursors), sizes.Cursors, err)
	}
	h := ctl.ctlHeader()
	h.version, h.size, h.cell = LayoutVersion, headerSize, CellSize
	h.topicID = idWords(c.TopicID)
	h.epoch, h.capacity, h.maxPayload, h.key = c.Epoch, c.Capacity, uint64(c.MaxPayload), c.Key
	h.pageSize, h.created, h.start = c.PageSize, uint64(c.Created), uint64(c.Start)
	h.publishers, h.subscribers, h.groups = uint64(c.Publishers), uint64(c.Subscribers), uint64(c.Groups)
	h.flags = 0
	if c.Exclusive {
		h.flags |= flagExclusive
	}
	if c.Fenced {
		h.flags |= flagFenced
	}
	ctl.word(offTail).Store(uint64(c.Start))

	k := cursors.cursorsHeader()
	k.topicID, k.subscribers, k.groups = h.topicID, h.subscribers, h.groups
	k.magic.Store(cursorsMagic)
	h.magic.Store(ctlMagic)
	return Attach(m)
}

// Attach looks at a ring that Format made, perhaps in another process. Each thing
// that does not fit has an error of its own.
func Attach(m Memory) (*Ring, error) {
	ctl, err := newRegion(m.Ctl, offPublishers)
	if err != nil {
		return nil, fmt.Errorf("ring: attach ctl: %d bytes, need at least %d: %w", len(m.Ctl), offPublishers, err)
	}
	c, err := readHeader(ctl.ctlHeader())
	if err != nil {
		return nil, err
	}
	sizes, err := c.Footprint()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGeometry, err)
	}
	for _, p := range []struct {
		name string
		have int
		need int64
	}{{"ctl", len(m.Ctl), sizes.Ctl}, {"cursors", len(m.Cursors), sizes.Cursors}} {
		if int64(p.have) < p.need {
			return nil, fmt.Errorf("%w: %s has %d bytes, need %d", ErrGeometry, p.name, p.have, p.need)
		}
	}
	if int64(len(m.Data)) != sizes.Data {
		return nil, fmt.Errorf("%w: data has %d bytes, the capacity is %d", ErrGeometry, len(m.Data), sizes.Data)
	}
	cursors, err := newRegion(m.Cursors, uint64(sizes.Cursors))
	if err != nil {
		return nil, fmt.Errorf("ring: attach cursors: %w", err)
	}
	data, err := newRegion(m.Data, c.Capacity)
	if err != nil {
		return nil, fmt.Errorf("ring: attach data: %w", err)
	}
	if err := checkCursors(cursors.cursorsHeader(), c); err != nil {
		return nil, err
	}
	return newRing(c, ctl, cursors, data), nil
}

func newRing(c Config, ctl, cursors, data region) *Ring {
	return &Ring{
		cfg: c, mask: c.Capacity - 1,
		ctl: ctl, cursors: cursors, data: data,
		tail:         ctl.word(offTail),
		active:       ctl.bitmap(offActive),
		publishers:   ctl.publisherSlots(c.Publishers),
		gating:       cursors.bitmap(offGating),
		sleepers:     cursors.word(offSleepers),
		roomSleepers: cursors.word(offRoomSleepers),
		openGroups:   cursors.word(offGroups),
		subscribers:  cursors.subscriberSlots(c.Subscribers),
		groups:       cursors.groupRecords(c.Subscribers, c.Groups),
		state:        seqlock.NewLatch(ctl.words(offState, seqlock.LatchWords(stateWords))),
	}
}

// readHeader checks the parts of the header that say how to read the rest.
func readHeader(h *ctlHeader) (Config, error) {
	if magic := h.magic.Load(); magic != ctlMagic {
		return Config{}, fmt.Errorf("%w: ctl starts with %#x, not %#x", ErrMagic, magic, uint64(ctlMagic))
	}
	if h.version != LayoutVersion {
		return Config{}, fmt.Errorf("%w: ring has %d, this program %d", ErrVersion, h.version, LayoutVersion)
	}
	if h.size != headerSize {
		return Config{}, fmt.Errorf("%w: header of %d bytes, not %d", ErrGeometry, h.size, headerSize)
	}
	if h.cell != CellSize {
		return Config{}, fmt.Errorf("%w: cell size %d, not %d", ErrGeometry, h.cell, CellSize)
	}
	if h.publishers > MaxSlots || h.subscribers > MaxSlots || h.groups > MaxGroups || h.maxPayload > maxClaim ||
		h.publishers == 0 || h.subscribers == 0 || h.groups == 0 || h.maxPayload == 0 {
		return Config{}, fmt.Errorf("%w: %d publishers, %d subscribers, %d groups, maximum payload %d: out of range", ErrGeometry,
			h.publishers, h.subscribers, h.groups, h.maxPayload)
	}
	if h.key&1 == 0 {
		return Config{}, fmt.Errorf("%w: stamp key %#x is even", ErrGeometry, h.key)
	}
	c := Config{
		Epoch: h.epoch, Capacity: h.capacity, MaxPayload: uint32(h.maxPayload), Key: h.key,
		PageSize: h.pageSize, Created: int64(h.created), Start: Position(h.start),
		Publishers: int(h.publishers), Subscribers: int(h.subscribers), Groups: int(h.groups),
		Exclusive: h.flags&flagExclusive != 0, Fenced: h.flags&flagFenced != 0,
	}
	binary.NativeEndian.PutUint64(c.TopicID[:8], h.topicID[0])
	binary.NativeEndian.PutUint64(c.TopicID[8:], h.topicID[1])
	return c, nil
}

func checkCursors(k *cursorsHeader, c Config) error {
	if magic := k.magic.Load(); magic != cursorsMagic {
		return fmt.Errorf("%w: cursors start with %#x, not %#x", ErrMagic, magic, uint64(cursorsMagic))
	}
	if k.topicID != idWords(c.TopicID) {
		return fmt.Errorf("%w: ctl has %x", ErrTopicID, c.TopicID)
	}
	if k.subscribers != uint64(c.Subscribers) || k.groups != uint64(c.Groups) {
		return fmt.Errorf("%w: cursors for %d subscribers and %d groups, ctl says %d and %d", ErrGeometry,
			k.subscribers, k.groups, c.Subscribers, c.Groups)
	}
	return nil
}

func idWords(id [16]byte) [2]uint64 {
	return [2]uint64{binary.NativeEndian.Uint64(id[:8]), binary.NativeEndian.Uint64(id[8:])}
}

// Config is what the ring was made with.
func (r *Ring) Config() Config { return r.cfg }

// Tail is the next position that will be claimed.
func (r *Ring) Tail() Position { return Position(r.tail.Load()) }

// Earliest is the lowest position that may still be held: a capacity behind Tail, or
// the ring's start. It need not be the start of a frame.
func (r *Ring) Earliest() Position { return r.earliest(r.Tail()) }

func (r *Ring) earliest(tail Position) Position {
	if uint64(tail-r.cfg.Start) <= r.cfg.Capacity {
		return r.cfg.Start
	}
	return tail - Position(r.cfg.Capacity)
}

// boundary finds the first cell from from up to to that is the start of a committed
// claim, and returns to where there is none. Frames inside a claim are passed over:
// theirs may not be committed yet.
func (r *Ring) boundary(from, to Position) Position {
	for q := from; q.Before(to); q += CellSize {
		off := uint64(q) & r.mask
		if r.data.probe(off) != stampOf(uint64(q), r.cfg.Key) {
			continue
		}
		arch.LoadLoad() // SYNC(commit): acquire: the stamp before the header that it vouches for
		if !header(r.data.probe(off + offMeta)).inner() {
			return q
		}
	}
	return to
}
