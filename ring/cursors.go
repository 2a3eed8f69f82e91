package ring

import (
	"structs"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
)

// The cursors memory. Publishers, subscribers and the broker map it read-write. A
// subscriber may be hostile: nothing here is trusted by publishers or the broker.
//
//	offset  size  field        who writes                ordering
//	 0        40  header       Format                    immutable once the magic is there
//	 128       8  sleepers     subscribers, publishers   bitmap (slot mod 64); exchange by who rings
//	 256       8  roomSleepers publishers, subscribers   the same for publishers that wait for room
//	 264       8  roomPatient  publishers, subscribers   the same for those that wait for half of the capacity, for a short time
//	 384     128  gating       subscribers, broker       one bit per subscriber slot that gates, unless it is evicted
//	 512       8  groups       broker                    one bit per open group
//	 1024  n·128  slots        the slot's subscriber     see subscriberSlot
//	 then  m·2816 groups       members, broker           see groupRecord

const (
	offSleepers     = 128
	offRoomSleepers = 256
	offRoomPatient  = 264
	offGating       = 384
	offGroups       = 512
	offSubscribers  = 1024
)

// cursorsHeader is the immutable head of the cursors memory.
type cursorsHeader struct {
	_ structs.HostLayout

	magic       atomic.Uint64    // cursorsMagic; written last by Format
	topicID     [2]atomic.Uint64 // that of ctl
	subscribers atomic.Uint64    // that of ctl
	groups      atomic.Uint64    // that of ctl
}

// States of a subscriber slot, in the low eight bits of its state word. The bits above are
// a generation, one more for each admission: whoever evicts does so by a
// compare-and-swap of the word that it looked at, so it never hits the slot's next tenant.
const (
	subFree     = 0
	subReserved = 1 // the broker gave it to a client, which has not joined yet
	subJoined   = 2
	subEvicted  = 3
	subLeft     = 4 // its owner has closed it, and the broker has not freed it yet

	subState      = 0xff
	subGeneration = subState + 1
)

// subscriberSlot is one subscriber's, or one group member's, own two cache lines.
//
//	offset  size  field       who writes              ordering
//	 0       8    cursor      subscriber              release (SYNC(cursor)); next position to read
//	 8       8    state       broker, subscriber      publishers evict by compare-and-swap (SYNC(evict)); generation (56 bits), state (8)
//	 16      8    policy      broker                  a Policy
//	 24      8    evictLag    broker                  bytes; 0: no bound
//	 32      8    evictAfter  broker                  ns; 0: no bound
//	 40      8    frames      subscriber              release; frames handed out, for figures
//	 48      8    gaps        subscriber              release; number of gaps
//	 56      8    gapBytes    subscriber              release; positions missed, in bytes
//	 64      8    claim       member, helpers, broker start | state (SYNC(group-claim)); see member.go
//	 72      8    end         member                  before claim: where its claim ends
//	 80      8    missed      subscriber              bounded sleeps that ended with a frame already there
type subscriberSlot struct {
	_ structs.HostLayout

	cursor     atomic.Uint64
	state      atomic.Uint64
	policy     atomic.Uint64
	evictLag   atomic.Uint64
	evictAfter atomic.Uint64
	frames     atomic.Uint64
	gaps       atomic.Uint64
	gapBytes   atomic.Uint64
	claim      atomic.Uint64
	end        atomic.Uint64
	missed     atomic.Uint64
	_          [slotSize - 11*8]byte
}

// groupRecord is one group: its head on lines of its own, then what members look up.
//
//	offset  size  field        who writes        ordering
//	 0       8    head         members           compare-and-swap; position | member that moved it
//	 128     8    members      broker            one bit per member
//	 136     8    orphans      broker, members   one bit per entry in use (SYNC(orphan))
//	 144     8    redelivered  members           ranges taken over, for figures
//	 256   512    table        broker            member number to subscriber slot
//	 768  2048    entries      broker, members   see orphanEntry
type groupRecord struct {
	_ structs.HostLayout

	head        atomic.Uint64
	_           [arch.FalseSharing - 8]byte
	members     atomic.Uint64
	orphans     atomic.Uint64
	redelivered atomic.Uint64
	_           [arch.FalseSharing - 3*8]byte
	table       [MaxMembers]atomic.Uint64
	entries     [MaxMembers]orphanEntry
}

// groupSize is the size of a groupRecord in bytes.
const groupSize = 2*arch.FalseSharing + MaxMembers*8 + MaxMembers*orphanSize

// orphanSize is the size of an orphanEntry in bytes.
const orphanSize = 32

// orphanEntry is a range of a group that its member did not finish.
//
//	offset  size  field  who writes              ordering
//	 0       8    word   broker, members         compare-and-swap: state (8 bits), owner (8), count (16), generation (32)
//	 8       8    start  broker, then its owner  next position that is not finished
//	 16      8    end    broker                  where the range ends
type orphanEntry struct {
	_ structs.HostLayout

	word  atomic.Uint64
	start atomic.Uint64
	end   atomic.Uint64
	_     [orphanSize - 3*8]byte
}
