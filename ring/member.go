package ring

import (
	"fmt"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// A group is a work queue: each frame goes to one member. The group's head is one
// word: the position behind the last claim, and in its low six bits the member that
// moved it there. A member's claim word is the start of what it holds, and a state.
//
// The order of the steps is that of docs/model/group-claim.pml: help, find the end, write
// the end, write INTENT(start), compare-and-swap the head, write CLAIMED. Helping means
// that who claims next first records the claim before it, so that the head, which
// remembers one claim only, never forgets one whose owner died on the way.

// States of a claim word, in its low six bits.
const (
	claimIdle   = 0
	claimIntent = 1 // about to claim from start to end
	claimHeld   = 2 // start to end is ours; start moves up as frames are acknowledged
	claimState  = CellSize - 1
)

// Failpoints of groups.
const (
	FailGroupFound       = "ring/group/found"
	FailGroupAfterIntent = "ring/group/after-intent"
	FailGroupAfterHead   = "ring/group/after-head"
	FailGroupMidWork     = "ring/group/mid-work"
	FailGroupAfterAck    = "ring/group/after-ack"
	FailGroupAfterTake   = "ring/group/after-take"
)

// A Member reads its share of a group's frames. It is for one goroutine at a time.
type Member struct {
	_     apart
	r     *Ring
	data  region
	mask  uint64
	key   uint64
	max   uint64
	group *groupRecord
	slot  *subscriberSlot
	room  *atomic.Uint64
	// patient is the word of publishers that wait for half of the capacity.
	patient *atomic.Uint64
	bell    Doorbell

	peers Doorbell

	id     uint64 // member number
	most   uint16 // how often a range may have been handed out that we take over
	frames uint64
	closed bool

	// What is ours. A Poll ends with all of it finished or put back, unless no orphan
	// entry is free, or the handler panics: then it is first in the next Poll.
	claimed    bool       // start to end is our claim
	start, end uint64     // a copy of what our slot says, which others can write
	again      uint16     // how often the frame at start was handed out before
	taken      int        // orphan entry that we work on, or -1
	word       orphanWord // its word
	inside     bool       // the handler runs
	_          apart
}

// Member attaches to a member that the broker has admitted (AdmitMember) and that
// nobody else uses.
func (r *Ring) Member(group, member int, o SubscriberOptions) (*Member, error) {
	g, err := r.openGroup(group)
	if err != nil {
		return nil, err
	}
	if member < 0 || member >= MaxMembers || g.members.Load()&(1<<member) == 0 {
		return nil, fmt.Errorf("%w: member %d of group %d is not admitted", ErrSlot, member, group)
	}
	slot := g.table[member].Load()
	if slot >= uint64(len(r.subscribers)) {
		return nil, fmt.Errorf("%w: member %d of group %d has subscriber slot %d of %d", ErrCorrupt, member, group, slot, len(r.subscribers))
	}
	return &Member{
		r: r, data: r.data, mask: r.mask, key: r.cfg.Key, max: uint64(r.cfg.MaxPayload),
		group: g, slot: &r.subscribers[slot], room: r.roomSleepers, patient: r.roomPatient, bell: o.Doorbell, peers: o.Peers,
		id: uint64(member), most: mostRedeliveries(o.MaxRedeliveries), taken: -1,
	}, nil
}

// openGroup is the record of a group that is open.
func (r *Ring) openGroup(g int) (*groupRecord, error) {
	if g < 0 || g >= len(r.groups) || r.openGroups.Load()&(1<<g) == 0 {
		return nil, fmt.Errorf("%w: group %d of %d is not open", ErrSlot, g, len(r.groups))
	}
	return &r.groups[g], nil
}

// ID is the member's number in its group.
func (m *Member) ID() int { return int(m.id) }

// Poll claims up to limit frames that nobody else gets, and hands them to fn. It
// never waits. Ranges that a member before did not finish come first, with
// Redelivered above 0.
//
// A nil from fn acknowledges the frame: it is finished, whatever happens to this
// process. An error ends Poll with that error; that frame and the rest of the claim
// are put back at once for the group's members, marked as redelivered. ErrStop
// acknowledges the frame, puts the rest back and is no error. What fn had
// not returned for when the process dies is redelivered to another member, and after a
// panic of fn to the next Poll: at least once.
//
// Errors of its own: ErrCorrupt, ErrClosed.
func (m *Member) Poll(limit int, fn func(Frame) error) (int, error) {
	if m.closed {
		return 0, ErrClosed
	}
	if limit <= 0 {
		return 0, nil
	}
	if m.claimed {
		return m.work(limit, fn)
	}
	if m.taken >= 0 || m.group.orphans.Load() != 0 && m.adopt() {
		return m.workOrphan(limit, fn)
	}
	if err := m.claim(limit); err != nil || !m.claimed {
		return 0, err
	}
	return m.work(limit, fn)
}

// claim moves the group's head over up to limit committed frames, if there are any.
func (m *Member) claim(limit int) error {
	intent := false
	for {
		// SYNC(group-claim): acquire
		head := m.group.head.Load()
		start := head &^ claimState
		m.help(head)
		end, err := m.find(start, limit)
		if end == start || err != nil {
			if intent {
				m.r.publish(&m.slot.claim, claimIdle) // of an earlier turn: it would gate
			}
			if err != nil && m.group.head.Load() != head {
				return nil // others went on, and what we read may have been overwritten
			}
			return err
		}
		arch.StoreRelease(&m.slot.end, end)
		// SYNC(group-claim): release. The compare-and-swap of the head is a full fence.
		arch.StoreRelease(&m.slot.claim, start|claimIntent)
		failpoint.Hit(FailGroupAfterIntent)
		if !m.group.head.CompareAndSwap(head, end|m.id) {
			intent = true
			continue
		}
		failpoint.Hit(FailGroupAfterHead)
		arch.StoreRelease(&m.slot.claim, start|claimHeld)
		m.claimed, m.start, m.end, m.again = true, start, end, 0
		return nil
	}
}

// help records the claim that moved the head to where it is, in case its owner has
// not come to it yet.
func (m *Member) help(head uint64) {
	owner := head & claimState
	if owner == m.id || m.group.members.Load()&(1<<owner) == 0 {
		return // ours, or of one that was reaped, whose slot may be in another group by now
	}
	i := m.group.table[owner].Load()
	if i >= uint64(len(m.r.subscribers)) {
		return
	}
	slot := &m.r.subscribers[i]
	word := slot.claim.Load()
	if word&claimState == claimIntent && slot.end.Load() == head&^claimState {
		slot.claim.CompareAndSwap(word, word&^claimState|claimHeld)
		failpoint.Hit(FailGroupHelped)
	}
}

// find walks over up to limit committed frames from start, and returns where they end. A
// corrupt one is an error when it is the first. Nothing gates there once another member
// has moved the head: then what is found is worth nothing, and the compare-and-swap of the
// head will say so.
func (m *Member) find(start uint64, limit int) (uint64, error) {
	pos := start
	for n := 0; n < limit; {
		off := pos & m.mask
		if m.data.probe(off) != stampOf(pos, m.key) {
			break
		}
		arch.LoadLoad() // SYNC(commit): acquire
		failpoint.Hit(FailGroupFound)
		h := header(m.data.probe(off + offMeta))
		if !h.sound(off, m.mask+1, m.max) {
			if pos == start {
				return start, ErrCorrupt
			}
			break
		}
		if h.kind() == kindData {
			n++
		}
		pos += h.size()
		if pos-start > m.mask/2 {
			break // so that a claim is never near a capacity
		}
	}
	return pos, nil
}

// work hands up to limit frames of our own claim to fn, one after the other, and moves
// the claim's start behind each that is finished.
func (m *Member) work(limit int, fn func(Frame) error) (int, error) {
	if m.inside {
		m.again = oneMore(m.again) // the handler panicked
	}
	m.inside = true
	n, at, err := m.deliver(m.start, m.end, limit, m.again, fn, func(next uint64, again uint16) {
		m.start, m.again = next, again
		// SYNC(cursor): release. The payload was read before publishers may write there.
		arch.StoreRelease(&m.slot.claim, next|claimHeld)
	})
	m.inside = false
	if refused(err) {
		m.again = oneMore(m.again)
	}
	if at == m.end || err == ErrCorrupt || m.group.file(at, m.end, m.again, m.id) {
		m.claimed = false
		failpoint.Hit(FailGroupBeforeIdle)
		m.r.publish(&m.slot.claim, claimIdle) // SYNC(cursor): release
	}
	m.finish(n, at != m.end)
	return n, unlessStop(err)
}

// refused reports whether err is a handler's about its frame.
func refused(err error) bool { return err != nil && err != ErrStop && err != ErrCorrupt }

// oneMore is count plus one, which stops at the most that fits.
func oneMore(count uint16) uint16 {
	if count == 1<<16-1 {
		return count
	}
	return count + 1
}

// unlessStop is err, but nil for ErrStop.
func unlessStop(err error) error {
	if err == ErrStop {
		return nil
	}
	return err
}

// finish counts frames, and wakes publishers that wait for room, and other members
// where something was put back.
func (m *Member) finish(n int, rest bool) {
	m.frames += uint64(n)
	arch.StoreRelease(&m.slot.frames, m.frames)
	failpoint.Hit(FailGroupAfterAck)
	if m.room.Load()|m.patient.Load() != 0 {
		ringFor(m.room, m.bell)
		if m.patient.Load() != 0 && m.r.halfFree(m.group) {
			ringFor(m.patient, m.bell)
		}
	}
	if rest {
		ringFor(m.r.sleepers, m.peers)
	}
}

// deliver hands up to limit frames from start to end to fn, and returns how many fn took
// and where it stopped. The first frame was handed out again times before; the ones
// behind it were in the same claim at most once. After each frame it calls done with the
// position behind it, and with how often what stands there was handed out.
func (m *Member) deliver(start, end uint64, limit int, again uint16, fn func(Frame) error, done func(next uint64, again uint16)) (int, uint64, error) {
	n := 0
	for pos := start; int64(end-pos) > 0; {
		off := pos & m.mask
		if m.data.word(off).Load() != stampOf(pos, m.key) {
			return n, pos, ErrCorrupt
		}
		h := header(m.data.plain(off + offMeta))
		if !h.sound(off, m.mask+1, m.max) {
			return n, pos, ErrCorrupt
		}
		size := h.size()
		if h.kind() == kindData {
			if n == limit {
				return n, pos, nil
			}
			f := Frame{
				Payload: m.data.bytes(off+offPayload, h.length()), Position: Position(pos),
				Source: h.source(), Redelivered: again,
			}
			failpoint.Hit(FailGroupMidWork)
			err := fn(f)
			if err != nil && err != ErrStop {
				return n, pos, err
			}
			n++
			again = min(again, 1)
			if err != nil {
				done(pos+size, again)
				return n, pos + size, err
			}
		}
		pos += size
		done(pos, again)
	}
	return n, end, nil
}

// Ready reports whether Poll would return something.
func (m *Member) Ready() bool {
	if m.closed || m.claimed || m.taken >= 0 || m.group.orphans.Load() != 0 && m.offered() {
		return true
	}
	pos := m.group.head.Load() &^ claimState
	return m.data.probe(pos&m.mask) == stampOf(pos, m.key)
}

// Missed counts a bounded sleep that ended with a frame already there, for figures.
func (m *Member) Missed() { m.slot.missed.Add(1) }

// Close ends the membership. What a handler refused to finish, and could not be put
// back, is redelivered when the broker reaps the member (ReapMember).
func (m *Member) Close() error {
	if m.closed {
		return ErrClosed
	}
	m.closed = true
	return nil
}
