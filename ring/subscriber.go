package ring

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// A Policy says what happens when a subscriber is slow.
type Policy uint64

const (
	// Reliable gates: publishers wait for it, and it never misses a frame.
	Reliable Policy = 1
	// Lossy never gates: it may be lapped, and is told exactly what it missed.
	Lossy Policy = 2
	// Evict gates until its lag or its stall passes a bound; then it is told so and
	// is lossy.
	Evict Policy = 3
	// GroupMember is the policy of slots that members of groups use.
	GroupMember Policy = 4
)

// String is the policy's name: reliable, lossy, evict or member.
func (p Policy) String() string {
	switch p {
	case Reliable:
		return "reliable"
	case Lossy:
		return "lossy"
	case Evict:
		return "evict"
	case GroupMember:
		return "member"
	}
	return fmt.Sprintf("policy(%d)", uint64(p))
}

// SubscriberConfig is what the broker decides about a subscriber slot.
type SubscriberConfig struct {
	Policy Policy
	// EvictLag, in bytes of positions, is how far an Evict subscriber may fall behind; 0
	// means no bound, and what is above the capacity means the capacity. One that has
	// read everything is not evicted by a single claim above the bound, and publishers
	// use up the limits that they computed before it joined.
	EvictLag uint64
	// EvictAfter is how long an Evict subscriber may stand still with frames to read; 0
	// means no bound. A StallWatch applies it.
	EvictAfter time.Duration
}

// Check tells what is wrong with c.
func (c SubscriberConfig) Check() error {
	switch {
	case c.Policy < Reliable || c.Policy > GroupMember:
		return fmt.Errorf("%w: policy %d is not one of reliable, lossy, evict", ErrConfig, uint64(c.Policy))
	case c.EvictAfter < 0:
		return fmt.Errorf("%w: evict after %v is negative", ErrConfig, c.EvictAfter)
	case c.Policy != Evict && (c.EvictLag != 0 || c.EvictAfter != 0):
		return fmt.Errorf("%w: bounds on lag or stall need policy evict, not %s", ErrConfig, c.Policy)
	case c.Policy == Evict && c.EvictLag == 0 && c.EvictAfter == 0:
		return fmt.Errorf("%w: policy evict needs a bound on lag or on stall", ErrConfig)
	}
	return nil
}

// A Subscriber reads frames with one subscriber slot. It is for one goroutine at a time.
type Subscriber struct {
	_    apart
	r    *Ring
	data region
	mask uint64
	key  uint64
	max  uint64 // maximum payload
	pos  uint64 // next position to read
	slot *subscriberSlot
	room *atomic.Uint64 // sleeper word of publishers that wait for room
	// patient is that of publishers which wait for much room.
	patient *atomic.Uint64
	bell    Doorbell // rings for them

	policy Policy
	gates  bool           // the cursor in the slot holds publishers back
	gate   *atomic.Uint64 // word of the gating bitmap, and our bit there
	bit    uint64
	idle   uint64 // looks that found nothing
	joined bool
	closed bool
	frames uint64
	gaps   uint64
	lost   uint64
	index  int
	gap    GapError
	behind bool // gap is to be reported by the next Poll
	copies copies
	stream stream
	batch  [BatchFrames]Frame // what borrow found; kept, so that nothing is allocated
	_      apart
}

// SubscriberOptions are what a Subscriber may be told.
type SubscriberOptions struct {
	// Doorbell wakes publishers that wait for room; nil where none sleeps.
	Doorbell Doorbell
	// Peers wakes other members of a group for what a member puts back; nil where none
	// sleeps, and for subscribers.
	Peers Doorbell
	// MaxRedeliveries is how often a frame may be handed out again to a member: ranges that
	// begin with one that was handed out more often are left to DeadLetters. 0: no bound.
	MaxRedeliveries int
}

// Subscriber attaches to subscriber slot index, which the broker has admitted
// (AdmitSubscriber) and which nobody else uses. Join comes next.
func (r *Ring) Subscriber(index int, o SubscriberOptions) (*Subscriber, error) {
	if index < 0 || index >= len(r.subscribers) || r.subscribers[index].state.Load()&subState != subReserved {
		return nil, fmt.Errorf("%w: subscriber slot %d of %d is not admitted, or in use", ErrSlot, index, len(r.subscribers))
	}
	slot := &r.subscribers[index]
	policy := Policy(slot.policy.Load())
	if policy != Reliable && policy != Lossy && policy != Evict {
		return nil, fmt.Errorf("%w: subscriber slot %d has policy %s", ErrSlot, index, policy)
	}
	s := &Subscriber{
		r: r, data: r.data, mask: r.mask, key: r.cfg.Key, max: uint64(r.cfg.MaxPayload),
		slot: slot, room: r.roomSleepers, patient: r.roomPatient, bell: o.Doorbell,
		policy: policy, gates: policy != Lossy, index: index,
		gate: &r.gating.words[index/64], bit: 1 << (index % 64),
	}
	if policy != Reliable {
		s.copies.init(r.cfg.Capacity)
	}
	return s, nil
}

// Join starts the subscription at start. wait is called between looks at a publisher
// that is computing its limit; an error from it ends Join with that error. The slot
// stays admitted, and Join may be called again.
func (s *Subscriber) Join(start Start, wait func() error) error {
	if s.closed || s.joined {
		return fmt.Errorf("%w: subscriber %d is joined or closed", ErrSlot, s.index)
	}
	var activate func()
	if s.gates {
		activate = func() { s.r.gating.set(s.index) }
	}
	at, err := s.r.join(&s.slot.cursor, start, activate, wait)
	if err != nil {
		s.r.gating.clear(s.index)
		return err
	}
	s.pos = uint64(at)
	if start.kind == startAt && start.pos.Before(at) {
		s.gap, s.behind = GapError{From: start.pos, To: at}, true
		s.missed(uint64(at - start.pos))
	}
	s.joined = true
	// A publisher can evict only who is joined.
	if word := s.slot.state.Load(); word&subState == subReserved {
		s.slot.state.CompareAndSwap(word, word&^subState|subJoined)
	}
	failpoint.Hit(FailJoined)
	return nil
}

// Position is the next position that Poll will look at.
func (s *Subscriber) Position() Position { return Position(s.pos) }

// Index is the subscriber's slot.
func (s *Subscriber) Index() int { return s.index }

// Policy is the policy in force: an evicted subscriber's is Lossy.
func (s *Subscriber) Policy() Policy {
	if s.policy == Evict && !s.gates {
		return Lossy
	}
	return s.policy
}

// publish is a release store of a word that publishers which sleep for room wait for. On
// hosts without membarrier it is a full fence, as commits are.
func (r *Ring) publish(word *atomic.Uint64, v uint64) {
	if r.cfg.Fenced {
		arch.StoreFence(word, v)
		return
	}
	arch.StoreRelease(word, v)
}

// ringFor takes the whole sleeper word, so that one sleep costs one ring however much
// happens next, and rings the bell of those that it named. Who has no bell leaves the
// word to those who have.
func ringFor(sleepers *atomic.Uint64, bell Doorbell) {
	if bell != nil && sleepers.Load() != 0 && sleepers.Swap(0) != 0 {
		failpoint.Hit(FailRoomBeforeRing)
		_ = bell.Ring() // cannot fail but by a closed bell
	}
}

// pollOther is Poll for everything but a reliable subscription that goes well.
func (s *Subscriber) pollOther(limit int, fn handler) (int, error) {
	switch {
	case s.closed:
		return 0, ErrClosed
	case !s.joined:
		return 0, fmt.Errorf("%w: subscriber %d has not joined", ErrSlot, s.index)
	case s.behind:
		s.behind = false
		return 0, &s.gap
	case s.gates && s.evicted():
		return 0, ErrEvicted
	}
	return s.pollCopy(limit, fn)
}

// evicted notices that a publisher, or the broker, ended our gating.
func (s *Subscriber) evicted() bool {
	if s.slot.state.Load()&subState != subEvicted { // SYNC(evict): acquire
		return false
	}
	failpoint.Hit(FailEvictNoticed)
	s.gates = false
	s.r.gating.clear(s.index)
	return true
}

// Ready reports whether Poll would return something: a frame, padding to pass, a gap
// or an error. It is safe to call from another goroutine only while Poll is not running.
func (s *Subscriber) Ready() bool {
	if s.closed || s.behind {
		return true
	}
	if s.data.probe(s.pos&s.mask) == stampOf(s.pos, s.key) {
		return true
	}
	s.stream.cool()
	if s.policy == Reliable {
		return s.joined && s.gate.Load()&s.bit == 0
	}
	return s.gates && s.slot.state.Load()&subState == subEvicted || s.r.Tail().Sub(Position(s.pos)) > int64(s.mask+1)
}

// Missed counts a bounded sleep that ended with a frame already there, for figures.
func (s *Subscriber) Missed() { s.slot.missed.Add(1) }

// Abandon closes the subscriber without another look at the memory, and keeps no pointer into it.
func (s *Subscriber) Abandon() {
	s.closed = true
	clear(s.batch[:])
}

// Close ends the subscription: it does not gate any more. The broker frees the slot.
func (s *Subscriber) Close() error {
	if s.closed {
		return ErrClosed
	}
	s.Abandon()
	// Not joined any more: who looks at the slot would miss the gating otherwise.
	if word := s.slot.state.Load(); word&subState == subJoined {
		s.slot.state.CompareAndSwap(word, word&^subState|subLeft)
	}
	s.r.gating.clear(s.index)
	ringFor(s.room, s.bell)
	ringFor(s.patient, s.bell)
	return nil
}
