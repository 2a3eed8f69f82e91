package broker

import (
	"errors"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// depart takes attachments back that were detached, or whose client has died. All are of
// this topic. Publishers are condemned before the first is repaired, so that no repair
// waits for the intent of another dead one.
func (t *topic) depart(gone []*attachment, died bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for _, a := range gone {
		a.died = died
		if a.kind == control.KindPublisher {
			if err := t.ring.CondemnPublisher(a.slot); err != nil {
				t.log.Error("cannot condemn a publisher", append(a.logged(), "error", err)...)
			}
		}
	}
	left := map[*group]bool{}
	for _, a := range gone {
		if !t.settle(a) {
			t.later(a)
		} else if a.group != nil {
			left[a.group] = true
		}
	}
	for g := range left {
		t.afterLeaving(g)
	}
	t.afterDepartures()
}

// afterDepartures tells everybody. The caller holds mu, and the topic may be closed when
// it returns.
func (t *topic) afterDepartures() {
	t.audit()
	t.publishState()
	t.wake()
	t.closeIfUnused()
}

// settle frees the slot of an attachment that has gone. It is false when that must wait.
func (t *topic) settle(a *attachment) bool {
	switch a.kind {
	case control.KindPublisher:
		return t.repair(a)
	case control.KindMember:
		return t.reap(a)
	}
	t.freeSubscriber(a)
	if a.died {
		t.log.Info("subscriber died: its slot is free", a.logged()...)
	}
	t.settled(a)
	return true
}

// settled notes that the slot of an attachment is free.
func (t *topic) settled(a *attachment) {
	a.settled.Store(true)
	t.users--
}

// freeSubscriber frees a subscriber slot, and keeps its figures.
func (t *topic) freeSubscriber(a *attachment) {
	if s, err := t.ring.SubscriberState(a.slot); err == nil {
		t.counts.missed += s.Missed
	}
	if err := t.ring.ReleaseSubscriber(a.slot); err != nil {
		t.log.Error("cannot release a subscriber", append(a.logged(), "error", err)...)
	}
	t.subscribers[a.slot] = nil
}

// repair finishes what a publisher left, and frees its slot.
func (t *topic) repair(a *attachment) bool {
	state, stateErr := t.ring.PublisherState(a.slot)
	done, err := t.ring.RepairPublisher(a.slot)
	if errors.Is(err, ring.ErrRepairPending) {
		return false
	}
	if err != nil {
		t.log.Error("cannot repair a publisher's slot: it is lost", append(a.logged(), "error", err)...)
		t.settled(a)
		return true
	}
	if stateErr == nil {
		t.counts.frames += state.Frames
	}
	switch {
	case done.Filled:
		skipped := uint64(done.To - done.From)
		t.counts.repairs++
		t.counts.repairedBytes += skipped
		a.repaired = skipped
		if a.revoked.Load() {
			t.counts.revoked++
		}
		t.log.Warn("publisher left an open claim: it is padding now",
			append(a.logged(), "died", a.died, "revoked", a.revoked.Load(), "from", uint64(done.From), "to", uint64(done.To), "skipped_bytes", skipped)...)
	case done.Corrupt:
		t.counts.violations++
		t.log.Warn("publisher left an impossible intent: nothing was repaired", append(a.logged(), "died", a.died)...)
	case a.died:
		t.log.Info("publisher died: it had nothing open", a.logged()...)
	}
	t.publishers[a.slot] = nil
	t.settled(a)
	return true
}

// later tries again what could not be settled, until it is done.
func (t *topic) later(a *attachment) {
	t.pending = append(t.pending, a)
	if len(t.pending) == 1 {
		t.broker.background.Go(t.settlePending)
	}
}

// settlePending runs only while something is pending. What it waits for is a living
// process that is in the middle of a claim, so it ends soon, unless that one is stopped.
func (t *topic) settlePending() {
	const shortest, longest = time.Millisecond, 250 * time.Millisecond
	for wait := shortest; ; wait = min(2*wait, longest) {
		select {
		case <-time.After(wait):
		case <-t.broker.stopping:
			return
		}
		holders, done := t.settleSome()
		for _, h := range holders {
			h.settledLater()
		}
		if done {
			return
		}
	}
}

// settleSome tries all that is pending once. It is true when nothing is left. holders are
// those of what was settled.
func (t *topic) settleSome() (holders []*holder, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, true
	}
	var still []*attachment
	left := map[*group]bool{}
	for _, a := range t.pending {
		if !t.settle(a) {
			still = append(still, a)
			continue
		}
		if a.group != nil {
			left[a.group] = true
		}
		if a.holder != nil {
			holders = append(holders, a.holder)
		}
	}
	settled := len(still) < len(t.pending)
	t.pending = still
	for g := range left {
		t.afterLeaving(g)
	}
	if settled {
		t.afterDepartures()
	}
	return holders, len(still) == 0
}
