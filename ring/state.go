package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// Figures: what the slots say, for people and for the broker. Values come from memory
// that peers write and may be stale or, with a hostile peer, wrong.

// A PublisherState is what a publisher slot says.
type PublisherState struct {
	Active  bool
	Frames  uint64   // committed since it was admitted
	Claimed bool     // an intent stands: it is claiming, or holds a claim
	Claim   Position // of the intent
	Bytes   uint64   // of the intent
	Limit   Position // as far as it may claim without looking again
}

// PublisherState reads publisher slot i.
func (r *Ring) PublisherState(i int) (PublisherState, error) {
	if i < 0 || i >= len(r.publishers) {
		return PublisherState{}, fmt.Errorf("%w: publisher slot %d of %d", ErrSlot, i, len(r.publishers))
	}
	p := &r.publishers[i]
	s := PublisherState{
		Active: p.state.Load() == pubActive, Frames: p.frames.Load(),
		Bytes: p.bytes.Load(), Limit: Position(p.limit.Load()),
	}
	s.Claim, s.Claimed = intentAt(p.intent.Load())
	return s, nil
}

// A SubscriberState is what a subscriber slot says.
type SubscriberState struct {
	Policy     Policy
	Taken      bool // admitted, and not freed
	Joined     bool
	Evicted    bool
	Position   Position // cursor; for a member, what it holds, or the group's head
	Lag        uint64   // bytes behind tail
	Frames     uint64   // handed out
	Gaps       uint64
	GapBytes   uint64
	Missed     uint64 // bounded sleeps that ended with a frame already there
	EvictLag   uint64
	EvictAfter time.Duration
}

// SubscriberState reads subscriber slot i.
func (r *Ring) SubscriberState(i int) (SubscriberState, error) {
	if i < 0 || i >= len(r.subscribers) {
		return SubscriberState{}, fmt.Errorf("%w: subscriber slot %d of %d", ErrSlot, i, len(r.subscribers))
	}
	s := &r.subscribers[i]
	state := s.state.Load() & subState
	out := SubscriberState{
		Policy: Policy(s.policy.Load()), Joined: state == subJoined || state == subEvicted, Taken: state != subFree, Evicted: state == subEvicted,
		Frames: s.frames.Load(), Gaps: s.gaps.Load(), GapBytes: s.gapBytes.Load(), Missed: s.missed.Load(),
		EvictLag: s.evictLag.Load(), EvictAfter: time.Duration(s.evictAfter.Load()),
	}
	out.Position = Position(s.cursor.Load())
	if word := s.claim.Load(); word&claimState != claimIdle {
		out.Position = Position(word &^ claimState)
	} else if head, ok := r.headOf(i); ok && out.Policy == GroupMember {
		out.Position = head
	}
	out.Lag = r.lag(out.Position)
	return out, nil
}

// headOf is the head of the open group that subscriber slot i is a member of.
func (r *Ring) headOf(i int) (head Position, ok bool) {
	for g := range r.groups {
		rec := &r.groups[g]
		if r.openGroups.Load()&(1<<g) == 0 {
			continue
		}
		for set := rec.members.Load(); set != 0; set &= set - 1 {
			if rec.table[bits.TrailingZeros64(set)].Load() == uint64(i) {
				return Position(rec.head.Load() &^ claimState), true
			}
		}
	}
	return 0, false
}

// lag is how far p is behind tail, 0 if it is ahead.
func (r *Ring) lag(p Position) uint64 {
	if n := r.Tail().Sub(p); n > 0 {
		return uint64(n)
	}
	return 0
}

// A GroupState is what a group says.
type GroupState struct {
	Open        bool
	Head        Position // behind the last claim
	Lag         uint64   // bytes from the lowest unfinished position to tail
	Members     []MemberState
	Orphans     int    // ranges that wait for a member, or that one has taken over
	Redelivered uint64 // ranges taken over
}

// A MemberState is one member of a group.
type MemberState struct {
	Member, Slot int
	Holding      bool
	From, To     Position // what it holds
}

// GroupState reads group g.
func (r *Ring) GroupState(g int) (GroupState, error) {
	if g < 0 || g >= len(r.groups) {
		return GroupState{}, fmt.Errorf("%w: group %d of %d", ErrSlot, g, len(r.groups))
	}
	rec := &r.groups[g]
	s := GroupState{
		Open: r.openGroups.Load()&(1<<g) != 0, Head: Position(rec.head.Load() &^ claimState),
		Orphans: bits.OnesCount64(rec.orphans.Load()), Redelivered: rec.redelivered.Load(),
	}
	low := lowest{tail: r.Tail(), capacity: r.cfg.Capacity}
	r.gateGroup(&low, rec)
	s.Lag = low.lag
	for set := rec.members.Load(); set != 0; set &= set - 1 {
		m := bits.TrailingZeros64(set)
		slot := rec.table[m].Load()
		if slot >= uint64(len(r.subscribers)) {
			continue
		}
		word := r.subscribers[slot].claim.Load()
		ms := MemberState{Member: m, Slot: int(slot), Holding: word&claimState == claimHeld}
		if ms.Holding {
			ms.From, ms.To = Position(word&^claimState), Position(r.subscribers[slot].end.Load())
		}
		s.Members = append(s.Members, ms)
	}
	return s, nil
}

// SubscriberSleepers is the bitmap of subscribers that sleep (slot mod 64), for
// package client's waiting.
func (r *Ring) SubscriberSleepers() *atomic.Uint64 { return r.sleepers }

// PublisherSleepers is the bitmap of publishers that wait for room (slot mod 64).
func (r *Ring) PublisherSleepers() *atomic.Uint64 { return r.roomSleepers }

// PatientPublishers is the bitmap of publishers that wait until a subscriber has made half of the capacity free. Nobody promises that they
// are woken: they wait so for a short time only.
func (r *Ring) PatientPublishers() *atomic.Uint64 { return r.roomPatient }

// A Violation is a value that only a broken or hostile subscriber writes.
type Violation struct {
	Slot  int // subscriber slot, or -1 for a group's head
	Group int // group, or -1
	Value Position
	Why   string
}

// CheckCursors looks for values that no correct subscriber writes. Publishers ignore
// them; who wrote one is for the caller to find.
func (r *Ring) CheckCursors() []Violation {
	var bad []Violation
	for i := range r.subscribers {
		s := &r.subscribers[i]
		before := r.Tail()
		state, p := s.state.Load(), Position(s.cursor.Load())
		if state&subState != subJoined || !r.gating.has(i) {
			continue
		}
		// Somebody may have evicted it, or freed the slot, while we looked.
		if why := r.impossible(before, p); why != "" && s.state.Load() == state {
			bad = append(bad, Violation{Slot: i, Group: -1, Value: p, Why: why})
		}
	}
	for g := range r.groups {
		before := r.Tail()
		p := Position(r.groups[g].head.Load() &^ claimState)
		if r.openGroups.Load()&(1<<g) == 0 {
			continue
		}
		if why := r.impossible(before, p); why != "" {
			bad = append(bad, Violation{Slot: -1, Group: g, Value: p, Why: why})
		}
	}
	return bad
}

// impossible says why no gating position can be p. A correct one is not ahead of a tail
// that is read after it, and not more than a capacity behind one that was read before.
func (r *Ring) impossible(before, p Position) string {
	switch {
	case !p.Aligned():
		return "not a multiple of the cell size"
	case r.Tail().Before(p):
		return "ahead of tail"
	case before.Sub(p) > int64(r.cfg.Capacity):
		return "lapped although it gates"
	}
	return ""
}

// State is what the broker tells everybody who has the ring mapped.
type State struct {
	Epoch        uint64 // of the broker that serves it now
	Publishers   uint64 // attached
	Subscribers  uint64 // attached, members included
	Groups       uint64 // open
	Repairs      uint64
	SkippedBytes uint64 // by repairs
	Removed      bool   // the topic was removed: nothing published from now on has a reader
}

// SetState publishes s. One process, the broker, calls it.
func (r *Ring) SetState(s State) {
	var removed uint64
	if s.Removed {
		removed = 1
	}
	r.state.Store([]uint64{s.Epoch, s.Publishers, s.Subscribers, s.Groups, s.Repairs, s.SkippedBytes, removed})
}

// State reads what the broker published last. It never waits for a broker that died
// in the middle of it. ErrCorrupt: the memory does not settle.
func (r *Ring) State() (State, error) {
	var w [stateWords]uint64
	if _, ok := r.state.Load(w[:]); !ok {
		return State{}, ErrCorrupt
	}
	return State{
		Epoch: w[0], Publishers: w[1], Subscribers: w[2], Groups: w[3],
		Repairs: w[4], SkippedBytes: w[5], Removed: w[6] != 0,
	}, nil
}
