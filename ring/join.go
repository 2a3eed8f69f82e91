package ring

import (
	"fmt"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Where a subscription or group starts.
type startKind uint8

const (
	startLatest startKind = iota
	startEarliest
	startAt
)

// A Start says where a subscription or a group begins. The zero value is Latest.
type Start struct {
	kind startKind
	pos  Position
}

// Latest starts with the next frame that is claimed.
func Latest() Start { return Start{} }

// Earliest starts with the earliest frame that is still held.
func Earliest() Start { return Start{kind: startEarliest} }

// At starts with the frame at p, or the next one behind it. If p is no longer held
// the subscription starts at the earliest, and its first Poll reports the gap.
func At(p Position) Start { return Start{kind: startAt, pos: p} }

// Position is the position of a Start made by At; ok is false for the others.
func (s Start) Position() (p Position, ok bool) { return s.pos, s.kind == startAt }

// String is latest, earliest or a decimal position, as ParseStart of package client reads it.
func (s Start) String() string {
	switch s.kind {
	case startEarliest:
		return "earliest"
	case startAt:
		return fmt.Sprintf("%d", uint64(s.pos))
	}
	return "latest"
}

// join makes cursor gate, by activate, at a position from which nothing has been or
// will be overwritten, and returns the first frame's position there. activate is a
// full fence (an atomic read-modify-write); it is nil for who does not gate.
//
// The order of the steps is that of docs/model/join.pml. A publisher may use a limit
// that it computed before it could see us, so the joiner looks how far each limit
// reaches, and at tail, because a limit can be used and then lowered; and it
// raises its cursor, never lowers it.
func (r *Ring) join(cursor *atomic.Uint64, start Start, activate func(), wait func() error) (Position, error) {
	if start.kind == startLatest {
		return r.joinLatest(cursor, activate, wait)
	}
	at, err := r.lowestFor(start)
	if err != nil {
		return 0, err
	}
	arch.StoreFence(cursor, uint64(at))
	failpoint.Hit(FailJoinCursor)
	if activate != nil {
		activate()
		failpoint.Hit(FailJoinGates)
		if at, err = r.raise(cursor, at, wait); err != nil {
			return 0, err
		}
	}
	at = r.firstFrame(at, start)
	failpoint.Hit(FailJoinFound)
	arch.StoreFence(cursor, uint64(at))
	return at, nil
}

// joinLatest joins at tail. Publishers pass over a cursor that is more than a capacity
// behind (room.go). If ours was, between the look at tail and the store that raises it, a
// limit may reach further than the new cursor allows: tail, read after the store,
// shows whether that can have been (docs/model/join.pml), and then we do it again.
func (r *Ring) joinLatest(cursor *atomic.Uint64, activate func(), wait func() error) (Position, error) {
	at := r.Tail()
	arch.StoreFence(cursor, uint64(at))
	if activate == nil {
		return at, nil
	}
	failpoint.Hit(FailJoinCursor)
	activate()
	failpoint.Hit(FailJoinGates)
	for {
		was := at
		at = r.Tail()
		arch.StoreFence(cursor, uint64(at))
		failpoint.Hit(FailJoinRaised)
		if r.Tail().Sub(was) <= int64(r.cfg.Capacity) {
			return at, nil
		}
		if err := wait(); err != nil {
			return 0, fmt.Errorf("ring: join: publishers are too fast: %w", err)
		}
	}
}

// lowestFor is the lowest position that matters to who wants to start at start.
func (r *Ring) lowestFor(start Start) (Position, error) {
	tail := r.Tail()
	at := r.earliest(tail)
	if start.kind == startAt {
		if tail.Before(start.pos) || !start.pos.Aligned() {
			return 0, fmt.Errorf("%w: start position %d is above tail %d, or not a multiple of %d", ErrConfig, start.pos, tail, CellSize)
		}
		// Whether a frame begins at start.pos shows only on the way there from the start
		// of its claim, and that is less than half a capacity away.
		if from := start.pos - Position(r.cfg.Capacity/2); at.Before(from) {
			at = from
		}
	}
	return at, nil
}

// raise raises cursor, which gates at at, until no limit reaches beyond what it allows.
func (r *Ring) raise(cursor *atomic.Uint64, at Position, wait func() error) (Position, error) {
	for first := true; ; first = false {
		reach, err := r.reach(wait)
		if err != nil {
			return 0, err
		}
		if reach.Sub(at) <= int64(r.cfg.Capacity) {
			return at, nil
		}
		at = reach - Position(r.cfg.Capacity)
		arch.StoreFence(cursor, uint64(at))
		failpoint.Hit(FailJoinRaised)
		if first {
			continue
		}
		if err := wait(); err != nil {
			return 0, fmt.Errorf("ring: join: publishers are too fast: %w", err)
		}
	}
}

// firstFrame is where a subscription begins that asked for start and that nothing
// from at on is withheld from.
func (r *Ring) firstFrame(at Position, start Start) Position {
	tail := r.Tail()
	if tail.Before(at) {
		at = tail // limits reach at most a capacity beyond tail
	}
	if earliest := r.earliest(tail); at.Before(earliest) {
		at = earliest // only who does not gate
	}
	if start.kind == startAt && at.Before(start.pos) {
		// Only a hostile publisher's tail, which went back meanwhile, is further away.
		if start.pos.Sub(at) > int64(r.cfg.Capacity) {
			at = start.pos - Position(r.cfg.Capacity)
		}
		if frame, ok := r.frameFrom(at, start.pos); ok {
			return frame
		}
		at = start.pos
	}
	return r.boundary(at, r.open(at, tail))
}

// frameFrom finds the first frame that does not begin before p, an inner one too, by
// walking there over committed frames from somewhere between from and p. It is not ok
// where no such way is known.
func (r *Ring) frameFrom(from, p Position) (frame Position, ok bool) {
	for q := from; ; q += CellSize {
		q = r.boundary(q, p)
		if q == p {
			return 0, false
		}
		if q, ok = r.walk(q, p); ok {
			arch.LoadLoad() // SYNC(tail): acquire: who does not gate may have read a later lap
			return q, r.Tail().Sub(from) <= int64(r.cfg.Capacity)
		}
		// An open claim is in the way: go on behind its first cell.
	}
}

// walk follows committed frames from q until one does not begin before p; ok is false
// where it comes to one that is not committed first.
func (r *Ring) walk(q, p Position) (at Position, ok bool) {
	for q.Before(p) {
		off := uint64(q) & r.mask
		if r.data.probe(off) != stampOf(uint64(q), r.cfg.Key) {
			return q, false
		}
		arch.LoadLoad() // SYNC(commit): acquire
		size := header(r.data.probe(off + offMeta)).size()
		if off+size > r.mask+1 {
			return q, false
		}
		q = q.Add(size)
	}
	return q, true
}

// open is the lowest position from from up to to that a publisher's intent names, and
// to where none does. It is the start of a claim, which is not committed yet, so no
// stamp shows it. Claims below a tail that was read before show either here or, if the intent
// was cleared, by a stamp to who looks afterwards.
func (r *Ring) open(from, to Position) Position {
	for i := range r.publishers {
		// SYNC(intent): acquire
		at, ok := intentAt(r.publishers[i].intent.Load())
		if ok && r.active.has(i) && !at.Before(from) && at.Before(to) {
			to = at
		}
	}
	return to
}

// reach is the highest of tail and the limits that publishers hold.
func (r *Ring) reach(wait func() error) (Position, error) {
	var limits []Position
	for i := range r.publishers {
		if !r.active.has(i) {
			continue
		}
		limit, err := r.limitOf(i, wait)
		if err != nil {
			return 0, err
		}
		limits = append(limits, limit)
	}
	high := r.Tail()
	most := high.Add(r.cfg.Capacity)
	for _, limit := range limits {
		// A limit beyond tail and a capacity is not one that a publisher can have.
		if high.Before(limit) && !most.Before(limit) {
			high = limit
		}
	}
	return high, nil
}

// limitOf reads publisher i's limit when it is not computing one. It is endless only
// as long as wait allows: the publisher may be stopped, and if it is dead, the broker
// resets its counter, or clears it from the active ones.
func (r *Ring) limitOf(i int, wait func() error) (Position, error) {
	p := &r.publishers[i]
	for {
		if v, ok := p.counter.ReadBegin(); ok { // SYNC(join-limit): acquire
			limit := Position(p.limit.Load() &^ (CellSize - 1)) // as Tail does
			if !p.counter.ReadRetry(v) {
				return limit, nil
			}
		}
		if !r.active.has(i) {
			return r.Tail(), nil
		}
		if err := wait(); err != nil {
			return 0, fmt.Errorf("ring: join: publisher slot %d is computing its limit: %w", i, err)
		}
	}
}
