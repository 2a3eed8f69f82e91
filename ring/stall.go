package ring

import "time"

// A StallWatch evicts subscribers with policy Evict that stood still for longer than
// their bound although there were frames to read. It has no timer of its own: whoever
// has a reason to look calls Check, the broker now and then, and a publisher that waits
// for room. It is for one goroutine at a time.
type StallWatch struct {
	r     *Ring
	since map[int]stall
}

type stall struct {
	cursor Position
	at     time.Time
}

// NewStallWatch watches r's subscribers.
func NewStallWatch(r *Ring) *StallWatch {
	return &StallWatch{r: r, since: map[int]stall{}}
}

// Check looks at every subscriber that may be evicted for a stall, and evicts those
// whose bound has passed at now. It returns the slots evicted, and the time at which
// to look next: zero where nobody can be evicted for a stall.
func (w *StallWatch) Check(now time.Time) (evicted []int, next time.Time) {
	for i := range w.r.subscribers {
		s := &w.r.subscribers[i]
		after := time.Duration(s.evictAfter.Load())
		if after <= 0 || Policy(s.policy.Load()) != Evict || s.state.Load() != subJoined {
			delete(w.since, i)
			continue
		}
		cursor := Position(s.cursor.Load())
		was, ok := w.since[i]
		if !ok || was.cursor != cursor || w.r.lag(cursor) == 0 {
			was = stall{cursor: cursor, at: now}
			w.since[i] = was
		}
		due := was.at.Add(after)
		if !now.Before(due) && w.r.evict(i) {
			evicted = append(evicted, i)
			delete(w.since, i)
			continue
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return evicted, next
}
