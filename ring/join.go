package ring

import (
	"fmt"
	"sync/atomic"
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

// At starts with the frame at p, or the next claim behind it. If p is no longer held
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
// full fence (an atomic read-modify-write).
//
// The order of the steps is that of docs/model/join.pml. A publisher may use a limit
// that it computed before it could see us, so the joiner looks how far each limit
// reaches, and at tail, because a limit can be used and then lowered; and it
// raises its cursor, never lowers it.
func (r *Ring) join(cursor *atomic.Uint64, start Start, activate func(), wait func() error) (Position, error) {
	tail := r.Tail()
	if start.kind == startLatest {
		cursor.Store(uint64(tail))
		activate()
		tail = r.Tail()
		cursor.Store(uint64(tail))
		return tail, nil
	}
	at := r.earliest(tail)
	if start.kind == startAt {
		if tail.Before(start.pos) || !start.pos.Aligned() {
			return 0, fmt.Errorf("%w: start position %d is above tail %d, or not a multiple of %d", ErrConfig, start.pos, tail, CellSize)
		}
		if at.Before(start.pos) {
			at = start.pos
		}
	}
	cursor.Store(uint64(at))
	activate()
	for {
		reach, err := r.reach(wait)
		if err != nil {
			return 0, err
		}
		if reach.Sub(at) <= int64(r.cfg.Capacity) {
			break
		}
		at = reach - Position(r.cfg.Capacity)
		cursor.Store(uint64(at))
	}
	tail = r.Tail()
	if tail.Before(at) {
		at = tail // limits reach at most a capacity beyond tail
	}
	at = r.boundary(at, tail)
	cursor.Store(uint64(at))
	return at, nil
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
			limit := Position(p.limit.Load())
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
