package ring

import (
	"fmt"
	"math/bits"

	"github.com/hugebus/hugebus/internal/failpoint"
)

// The broker's side: who may use which slot. One goroutine of one process at a time may
// call these; publishers and subscribers go on meanwhile.

// AdmitPublisher makes publisher slot i ready for a client (Publisher). ErrSlot: out
// of range, or in use.
func (r *Ring) AdmitPublisher(i int) error {
	if i < 0 || i >= len(r.publishers) {
		return fmt.Errorf("%w: publisher slot %d of %d", ErrSlot, i, len(r.publishers))
	}
	p := &r.publishers[i]
	if s := p.state.Load(); s != pubFree {
		return fmt.Errorf("%w: publisher slot %d is in use", ErrSlot, i)
	}
	p.intent.Store(0)
	p.frames.Store(0)
	p.counter.Reset()
	p.limit.Store(uint64(r.Tail())) // no room until it has looked for itself
	p.state.Store(pubActive)
	r.active.set(i)
	return nil
}

// AdmitSubscriber makes subscriber slot i ready for a client (Subscriber, Join).
// ErrSlot: out of range, or in use.
func (r *Ring) AdmitSubscriber(i int, c SubscriberConfig) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Policy == GroupMember {
		return fmt.Errorf("%w: members of groups are admitted by AdmitMember", ErrConfig)
	}
	if c.EvictLag != 0 {
		c.EvictLag = min(max(c.EvictLag, uint64(CellSize)), r.cfg.Capacity)
	}
	return r.admit(i, c, subReserved)
}

func (r *Ring) admit(i int, c SubscriberConfig, state uint64) error {
	if i < 0 || i >= len(r.subscribers) {
		return fmt.Errorf("%w: subscriber slot %d of %d", ErrSlot, i, len(r.subscribers))
	}
	s := &r.subscribers[i]
	word := s.state.Load()
	if word&subState != subFree {
		return fmt.Errorf("%w: subscriber slot %d is in use", ErrSlot, i)
	}
	s.cursor.Store(uint64(r.Tail()))
	s.policy.Store(uint64(c.Policy))
	s.evictLag.Store(c.EvictLag)
	s.evictAfter.Store(uint64(c.EvictAfter))
	s.frames.Store(0)
	s.gaps.Store(0)
	s.gapBytes.Store(0)
	s.claim.Store(claimIdle)
	s.end.Store(0)
	s.missed.Store(0)
	s.state.Store(word&^subState + subGeneration + state)
	return nil
}

// ReleaseSubscriber frees subscriber slot i, whose client has left or died:
// publishers that it held back go on. Ring their doorbell (WakePublishers) afterwards.
func (r *Ring) ReleaseSubscriber(i int) error {
	if i < 0 || i >= len(r.subscribers) {
		return fmt.Errorf("%w: subscriber slot %d of %d", ErrSlot, i, len(r.subscribers))
	}
	r.gating.clear(i)
	failpoint.Hit(FailReleased)
	s := &r.subscribers[i]
	s.state.Store(s.state.Load()&^subState | subFree)
	return nil
}

// OpenGroup makes group g, which gates from start on, also while it has no members.
// wait is called between looks at a publisher that is computing its limit, and ends the
// call by an error. ErrSlot: out of range, or open already.
func (r *Ring) OpenGroup(g int, start Start, wait func() error) error {
	if g < 0 || g >= len(r.groups) || r.openGroups.Load()&(1<<g) != 0 {
		return fmt.Errorf("%w: group %d of %d, or it is open already", ErrSlot, g, len(r.groups))
	}
	rec := &r.groups[g]
	rec.members.Store(0)
	rec.orphans.Store(0)
	rec.redelivered.Store(0)
	for i := range rec.entries {
		rec.entries[i].word.Store(0)
	}
	_, err := r.join(&rec.head, start, func() { r.openGroups.Or(1 << g) }, wait)
	if err != nil {
		r.openGroups.And(^uint64(1 << g))
	}
	return err
}

// CloseGroup ends group g: it does not gate any more, and what its members did not
// finish is gone. Its members must have been reaped (ReapMember).
func (r *Ring) CloseGroup(g int) error {
	rec, err := r.openGroup(g)
	if err != nil {
		return err
	}
	if rec.members.Load() != 0 {
		return fmt.Errorf("%w: group %d still has %d members", ErrSlot, g, bits.OnesCount64(rec.members.Load()))
	}
	r.openGroups.And(^uint64(1 << g))
	return nil
}

// AdmitMember makes subscriber slot i a member of group g, and returns the member's
// number. ErrFull: the group has MaxMembers.
func (r *Ring) AdmitMember(g, i int) (member int, err error) {
	rec, err := r.openGroup(g)
	if err != nil {
		return 0, err
	}
	member = bits.TrailingZeros64(^rec.members.Load())
	if member == MaxMembers {
		return 0, fmt.Errorf("%w: group %d has %d members", ErrFull, g, MaxMembers)
	}
	if err := r.admit(i, SubscriberConfig{Policy: GroupMember}, subJoined); err != nil {
		return 0, err
	}
	rec.table[member].Store(uint64(i))
	rec.members.Or(1 << member)
	return member, nil
}

// WakeSubscribers rings the doorbell of subscribers whether or not one sleeps: a publisher
// may have died between taking the sleepers' word and ringing.
func (r *Ring) WakeSubscribers(b Doorbell) error {
	r.sleepers.Store(0)
	return b.Ring()
}

// WakePublishers rings the doorbell of publishers that wait for room.
func (r *Ring) WakePublishers(b Doorbell) error {
	r.roomSleepers.Store(0)
	r.roomPatient.Store(0)
	return b.Ring()
}
