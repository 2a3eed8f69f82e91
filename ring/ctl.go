package ring

import (
	"structs"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/seqlock"
)

// The ctl memory. Publishers and the broker map it read-write, subscribers read-only.
//
//	offset  size  field         who writes             ordering
//	 0       256  header        Format                 immutable once the magic is there
//	 512     120  state         broker                 seqlock.Latch of stateWords words
//	 1024      8  tail          publishers             compare-and-swap; release (SYNC(tail))
//	 1152    128  publishers    broker                 active bitmap, one bit per slot
//	 2048    n·128 slots        the slot's publisher   see publisherSlot
//
// Header words, all 64 bits: magic, version, header size, topic id (two words), epoch,
// capacity, maximum payload, cell size, stamp key, page size, creation time, publisher
// slots, subscriber slots, groups, flags, start.

const (
	ctlMagic     = 0x3153554245475548 // "HUGEBUS1" in memory order
	cursorsMagic = 0x3152554345475548 // "HUGECUR1" in memory order

	// LayoutVersion is the version of the memory layout; broker and clients must agree on it.
	LayoutVersion = 1

	headerSize = 256

	flagExclusive = 1 // header flag: one publisher at a time
	flagFenced    = 2 // header flag: commits are full fences

	offState       = 512
	offTail        = 1024
	offActive      = offTail + arch.FalseSharing
	offPublishers  = 2048
	slotSize       = arch.FalseSharing // 128: slots are written by different processes
	bitmapWords    = MaxSlots / 64
	stateWords     = 7
	stateLatchSize = (1 + 2*stateWords) * 8
)

// ctlHeader is the immutable head of the ctl memory. All words are atomic because a
// hostile publisher may write there while Attach reads.
type ctlHeader struct {
	_ structs.HostLayout

	magic       atomic.Uint64    // ctlMagic; written last by Format
	version     atomic.Uint64    // LayoutVersion
	size        atomic.Uint64    // headerSize
	topicID     [2]atomic.Uint64 // random
	epoch       atomic.Uint64    // broker incarnation
	capacity    atomic.Uint64    // power of two
	maxPayload  atomic.Uint64    // at most MaxPayload(capacity)
	cell        atomic.Uint64    // CellSize
	key         atomic.Uint64    // odd
	pageSize    atomic.Uint64    // bytes, for information
	created     atomic.Uint64    // ns since 1970, for information
	publishers  atomic.Uint64    // 1 to MaxSlots
	subscribers atomic.Uint64    // 1 to MaxSlots
	groups      atomic.Uint64    // 1 to MaxGroups
	flags       atomic.Uint64    // flagExclusive | flagFenced
	start       atomic.Uint64    // first position
	_           [headerSize - 17*8]byte
}

// States of a publisher slot.
const (
	pubFree   = 0
	pubActive = 1
	pubDead   = 2 // condemned: being repaired
)

// publisherSlot is one publisher's own two cache lines.
//
//	offset  size  field    who writes           ordering
//	 0       8    intent   publisher, repair    release before tail moves (SYNC(intent)); position | 1, or 0
//	 8       8    bytes    publisher            before intent; for figures only
//	 16      8    counter  publisher, repair    seqlock.Counter around limit (SYNC(join-limit))
//	 24      8    limit    publisher            inside counter; the position that it may claim up to
//	 32      8    frames   publisher            release; frames committed, for figures
//	 40      8    state    broker               pubFree, pubActive, pubDead
type publisherSlot struct {
	_ structs.HostLayout

	intent  atomic.Uint64
	bytes   atomic.Uint64
	counter seqlock.Counter
	limit   atomic.Uint64
	frames  atomic.Uint64
	state   atomic.Uint64
	_       [slotSize - 6*8]byte
}

// intentFlag tells an intent at position 0 from none.
const intentFlag = 1

// intentAt takes an intent word apart. A word that no publisher writes says not ok.
func intentAt(word uint64) (at Position, ok bool) {
	at = Position(word &^ intentFlag)
	return at, word&intentFlag != 0 && at.Aligned()
}

// bitmap is one bit per slot.
type bitmap struct {
	_     structs.HostLayout
	words [bitmapWords]atomic.Uint64
}

func (b *bitmap) set(i int)      { b.words[i/64].Or(1 << (i % 64)) }
func (b *bitmap) clear(i int)    { b.words[i/64].And(^uint64(1 << (i % 64))) }
func (b *bitmap) has(i int) bool { return b.words[i/64].Load()&(1<<(i%64)) != 0 }
