package broker

import (
	"time"

	"github.com/hugebus/hugebus/ring"
)

// stalls evicts subscribers that stand still for too long. Its timer runs only while
// there is a subscriber that may be evicted for that.
type stalls struct {
	watch *ring.StallWatch
	timer *time.Timer
}

func (s *stalls) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = nil
}

// soonest bounds how often a topic is looked at, whatever bound a subscriber asks for.
const soonest = 5 * time.Millisecond

// watchStalls looks at the subscribers now, and again when the next one may be due. The
// caller holds mu.
func (t *topic) watchStalls() {
	if t.stalls.watch == nil {
		t.stalls.watch = ring.NewStallWatch(t.ring)
	}
	t.stalls.stop()
	now := time.Now()
	evicted, next := t.stalls.watch.Check(now)
	for _, slot := range evicted {
		t.counts.evictions++
		if a := t.subscribers[slot]; a != nil {
			t.log.Warn("subscriber stood still for too long: it is evicted, and lossy from now on", a.logged()...)
		}
	}
	if len(evicted) > 0 {
		t.audit()
		t.wake()
	}
	if next.IsZero() {
		if next = t.mayStall(now); next.IsZero() {
			return
		}
	}
	var timer *time.Timer
	timer = time.AfterFunc(max(next.Sub(now), soonest), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.closed && t.stalls.timer == timer {
			t.watchStalls()
		}
	})
	t.stalls.timer = timer
}

// mayStall is when to look at subscribers again that have a bound, and have not joined
// yet: they do that without us. Zero: there is none.
func (t *topic) mayStall(now time.Time) (next time.Time) {
	for _, a := range t.subscribers {
		if a == nil || a.evictAfter <= 0 {
			continue
		}
		s, err := t.ring.SubscriberState(a.slot)
		if due := now.Add(a.evictAfter); err == nil && !s.Joined && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}
