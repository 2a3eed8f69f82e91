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
	roomPatient  *atomic.Uint64
	openGroups   *atomic.Uint64
	subscribers  []subscriberSlot
	groups       []groupRecord
	state        seqlock.Latch
}

// Format makes a new ring in m, which must be zeroed, and attaches to it. Nothing is
// written unless all of it fits, and the magic is written last, so that nobody attaches
// to half a ring.
func Format(m Memory, c Config) (*Ring, error) {
	sizes, err := c.Footprint()
	if err != nil {
		return nil, err
	}
	c = c.withDefaults()
	ctl, cursors, data, err := m.regions(sizes)
	if err != nil {
		return nil, fmt.Errorf("ring: format: %w", err)
	}
	h := ctl.ctlHeader()
	h.version.Store(LayoutVersion)
	h.size.Store(headerSize)
	h.cell.Store(CellSize)
	id := idWords(c.TopicID)
	h.topicID[0].Store(id[0])
	h.topicID[1].Store(id[1])
	h.epoch.Store(c.Epoch)
	h.capacity.Store(c.Capacity)
	h.maxPayload.Store(uint64(c.MaxPayload))
	h.key.Store(c.Key)
	h.pageSize.Store(c.PageSize)
	h.created.Store(uint64(c.Created))
	h.start.Store(uint64(c.Start))
	h.publishers.Store(uint64(c.Publishers))
	h.subscribers.Store(uint64(c.Subscribers))
	h.groups.Store(uint64(c.Groups))
	h.flags.Store(c.flags())
	ctl.word(offTail).Store(uint64(c.Start))

	k := cursors.cursorsHeader()
	k.topicID[0].Store(id[0])
	k.topicID[1].Store(id[1])
	k.subscribers.Store(uint64(c.Subscribers))
	k.groups.Store(uint64(c.Groups))
	k.magic.Store(cursorsMagic)
	h.magic.Store(ctlMagic)
	return newRing(c, ctl, cursors, data), nil
}

// regions are the three pieces of m, if they fit sizes.
func (m Memory) regions(sizes Sizes) (ctl, cursors, data region, err error) {
	if int64(len(m.Data)) != sizes.Data {
		return ctl, cursors, data, fmt.Errorf("%w: data has %d bytes, the capacity is %d", ErrGeometry, len(m.Data), sizes.Data)
	}
	if ctl, err = newRegion("ctl", m.Ctl, sizes.Ctl); err != nil {
		return
	}
	if cursors, err = newRegion("cursors", m.Cursors, sizes.Cursors); err != nil {
		return
	}
	data, err = newRegion("data", m.Data, sizes.Data)
	return
}

// Attach looks at a ring that Format made, perhaps in another process. Each thing
// that does not fit has an error of its own.
func Attach(m Memory) (*Ring, error) {
	r, _, err := attach(m, func(k *cursorsHeader, c Config) (bool, error) { return false, checkCursors(k, c) })
	return r, err
}

// attach checks the header of ctl itself, and that of cursors by check, whose answer it passes on.
func attach(m Memory, check func(*cursorsHeader, Config) (bool, error)) (*Ring, bool, error) {
	ctl, err := newRegion("ctl", m.Ctl, offPublishers)
	if err != nil {
		return nil, false, fmt.Errorf("ring: attach: %w", err)
	}
	c, err := readHeader(ctl.ctlHeader())
	if err != nil {
		return nil, false, err
	}
	sizes, err := c.Footprint()
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrGeometry, err)
	}
	ctl, cursors, data, err := m.regions(sizes)
	if err != nil {
		return nil, false, fmt.Errorf("ring: attach: %w", err)
	}
	answer, err := check(cursors.cursorsHeader(), c)
	if err != nil {
		return nil, false, err
	}
	return newRing(c, ctl, cursors, data), answer, nil
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
		roomPatient:  cursors.word(offRoomPatient),
		openGroups:   cursors.word(offGroups),
		subscribers:  cursors.subscriberSlots(c.Subscribers),
		groups:       cursors.groupRecords(c.Subscribers, c.Groups),
		state:        seqlock.NewLatch(ctl.words(offState, seqlock.LatchWords(stateWords))),
	}
}

// readHeader checks the parts of the header that say how to read the rest. It loads
// each word once, since a hostile publisher may change one after it was checked.
func readHeader(h *ctlHeader) (Config, error) {
	if magic := h.magic.Load(); magic != ctlMagic {
		return Config{}, fmt.Errorf("%w: ctl starts with %#x, not %#x", ErrMagic, magic, uint64(ctlMagic))
	}
	if version := h.version.Load(); version != LayoutVersion {
		return Config{}, fmt.Errorf("%w: ring has %d, this program %d", ErrVersion, version, LayoutVersion)
	}
	if size := h.size.Load(); size != headerSize {
		return Config{}, fmt.Errorf("%w: header of %d bytes, not %d", ErrGeometry, size, headerSize)
	}
	if cell := h.cell.Load(); cell != CellSize {
		return Config{}, fmt.Errorf("%w: cell size %d, not %d", ErrGeometry, cell, CellSize)
	}
	publishers, subscribers, groups, payload := h.publishers.Load(), h.subscribers.Load(), h.groups.Load(), h.maxPayload.Load()
	if publishers > MaxSlots || subscribers > MaxSlots || groups > MaxGroups || payload > maxClaim ||
		publishers == 0 || subscribers == 0 || groups == 0 || payload == 0 {
		return Config{}, fmt.Errorf("%w: %d publishers, %d subscribers, %d groups, maximum payload %d: out of range", ErrGeometry,
			publishers, subscribers, groups, payload)
	}
	key := h.key.Load()
	if key&1 == 0 {
		return Config{}, fmt.Errorf("%w: stamp key %#x is even", ErrGeometry, key)
	}
	flags := h.flags.Load()
	c := Config{
		Epoch: h.epoch.Load(), Capacity: h.capacity.Load(), MaxPayload: uint32(payload), Key: key,
		PageSize: h.pageSize.Load(), Created: int64(h.created.Load()), Start: Position(h.start.Load()),
		Publishers: int(publishers), Subscribers: int(subscribers), Groups: int(groups),
		Exclusive: flags&flagExclusive != 0, Fenced: flags&flagFenced != 0,
	}
	binary.NativeEndian.PutUint64(c.TopicID[:8], h.topicID[0].Load())
	binary.NativeEndian.PutUint64(c.TopicID[8:], h.topicID[1].Load())
	return c, nil
}

func checkCursors(k *cursorsHeader, c Config) error {
	if magic := k.magic.Load(); magic != cursorsMagic {
		return fmt.Errorf("%w: cursors start with %#x, not %#x", ErrMagic, magic, uint64(cursorsMagic))
	}
	if id := idWords(c.TopicID); k.topicID[0].Load() != id[0] || k.topicID[1].Load() != id[1] {
		return fmt.Errorf("%w: ctl has %x", ErrTopicID, c.TopicID)
	}
	if subscribers, groups := k.subscribers.Load(), k.groups.Load(); subscribers != uint64(c.Subscribers) || groups != uint64(c.Groups) {
		return fmt.Errorf("%w: cursors for %d subscribers and %d groups, ctl says %d and %d", ErrGeometry,
			subscribers, groups, c.Subscribers, c.Groups)
	}
	return nil
}

func idWords(id [16]byte) [2]uint64 {
	return [2]uint64{binary.NativeEndian.Uint64(id[:8]), binary.NativeEndian.Uint64(id[8:])}
}

// Config is what the ring was made with.
func (r *Ring) Config() Config { return r.cfg }

// Tail is the next position that will be claimed. A value that no publisher writes is
// rounded down to a cell, so that what is derived from it stays inside the memory.
func (r *Ring) Tail() Position { return Position(r.tail.Load() &^ (CellSize - 1)) }

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
// theirs may not be committed yet. from and to are cells at most a capacity apart.
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
