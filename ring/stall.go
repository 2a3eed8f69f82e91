package ring

import "time"

// A StallWatch evicts subscribers with policy Evict that stood still for longer than
// their bound although there were frames to read: their time counts from the first look
// that saw both. It has no timer of its own: whoever has a reason to look calls Check,
// the broker now and then, and a publisher that waits for room. It is for one goroutine at a time.
type StallWatch struct {
	r     *Ring
	since map[int]stall
}

type stall struct {
	state  uint64 // the slot's word: another one is another tenant's
	cursor Position
	at     time.Time
	idle   bool // there was nothing to read when we looked
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
		after, state := time.Duration(s.evictAfter.Load()), s.state.Load()
		if after <= 0 || Policy(s.policy.Load()) != Evict || state&subState != subJoined {
			delete(w.since, i)
			continue
		}
		cursor := Position(s.cursor.Load())
		was, ok := w.since[i]
		idle := !w.r.readable(cursor)
		if !ok || was.state != state || was.cursor != cursor || was.idle || idle {
			was = stall{state: state, cursor: cursor, at: now, idle: idle}
			w.since[i] = was
		}
		due := was.at.Add(after)
		if !now.Before(due) && s.evict(state) {
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

// readable reports whether a subscriber at p would find a frame, or was lapped. A claim
// that is still open is nothing that it could read, however long that takes.
func (r *Ring) readable(p Position) bool {
	return r.lag(p) > r.cfg.Capacity || r.data.probe(uint64(p)&r.mask&^(CellSize-1)) == stampOf(uint64(p), r.cfg.Key)
}
