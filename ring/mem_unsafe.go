package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/hugebus/hugebus/internal/invariants"
)

// region is memory with its bounds checked once, at attach. The accessors below do
// not check again: their callers keep offsets inside by construction (a mask, a
// slot number checked against the header's count).
type region struct {
	base unsafe.Pointer
	size uint64
}

// newRegion takes b, whose first byte must lie on a multiple of CellSize and which
// must hold at least need bytes. name is what an error calls it.
func newRegion(name string, b []byte, need int64) (region, error) {
	if int64(len(b)) < need {
		return region{}, fmt.Errorf("%w: %s has %d bytes, need at least %d", ErrGeometry, name, len(b), need)
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if off := uintptr(p) % CellSize; off != 0 {
		return region{}, fmt.Errorf("%w: %s starts %d bytes past a multiple of %d", ErrAlignment, name, off, CellSize)
	}
	return region{base: p, size: uint64(len(b))}, nil
}

// inside panics in the invariants build if a caller was wrong to rely on its offset.
func (m region) inside(off, n uint64) {
	if invariants.Enabled {
		invariants.Check(off%8 == 0 && off <= m.size && n <= m.size-off, "offset outside of a ring's memory")
	}
}

// word is the 64-bit word at off. Sound: off is a multiple of 8 below size, and the
// memory outlives the region's owner (Attach's contract).
func (m region) word(off uint64) *atomic.Uint64 {
	m.inside(off, 8)
	return (*atomic.Uint64)(unsafe.Add(m.base, off))
}

// words are n words from off.
func (m region) words(off uint64, n int) []atomic.Uint64 {
	m.inside(off, uint64(n)*8)
	return unsafe.Slice((*atomic.Uint64)(unsafe.Add(m.base, off)), n)
}

// bytes are the n bytes from off. Sound: off+n is at most size.
func (m region) bytes(off, n uint64) []byte {
	m.inside(off&^7, off&7+n)
	return unsafe.Slice((*byte)(unsafe.Add(m.base, off)), n)
}

// setPlain stores a word that a later release store publishes.
func (m region) setPlain(off, v uint64) {
	m.inside(off, 8)
	*(*uint64)(unsafe.Add(m.base, off)) = v
}

// plain loads a word that an earlier acquire load has made visible.
func (m region) plain(off uint64) uint64 {
	m.inside(off, 8)
	return *(*uint64)(unsafe.Add(m.base, off))
}

// The typed views. Sound: each struct holds only 64-bit words and padding, its size
// and offsets are pinned by TestLayout, and Attach has checked that count times size
// fits the memory.

func (m region) ctlHeader() *ctlHeader { return (*ctlHeader)(m.base) }

func (m region) cursorsHeader() *cursorsHeader { return (*cursorsHeader)(m.base) }

func (m region) bitmap(off uint64) *bitmap { return (*bitmap)(unsafe.Add(m.base, off)) }

func (m region) publisherSlots(n int) []publisherSlot {
	return unsafe.Slice((*publisherSlot)(unsafe.Add(m.base, offPublishers)), n)
}

func (m region) subscriberSlots(n int) []subscriberSlot {
	return unsafe.Slice((*subscriberSlot)(unsafe.Add(m.base, offSubscribers)), n)
}

func (m region) groupRecords(subscribers, n int) []groupRecord {
	return unsafe.Slice((*groupRecord)(unsafe.Add(m.base, offSubscribers+subscribers*slotSize)), n)
}
