package raw

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/shm"
)

// The roles of the two sides.
const (
	RolePing = "raw/ping"
	RoleEcho = "raw/echo"
)

// A Trip is one way to send a cache line there and back.
type Trip struct {
	// Exchange stores with XCHG, as sync/atomic does on amd64, instead of a plain MOV.
	Exchange bool `json:"exchange"`
	// Pause is the number of PAUSE instructions between two looks.
	Pause uint32 `json:"pause"`
}

// Trips are the ways that are tried; the best is the machine's limit.
var Trips = []Trip{
	{false, 0}, {false, 1}, {false, 4}, {true, 0}, {true, 1}, {true, 4},
}

// String names the way, such as "mov, 1 pause".
func (t Trip) String() string {
	store := "mov"
	if t.Exchange {
		store = "xchg"
	}
	return fmt.Sprintf("%s, pause %d", store, t.Pause)
}

// TripParams are what both sides of a round are told.
type TripParams struct {
	Trip
	// Round numbers the rounds over one segment, from 1: what an earlier one left there
	// must not pass for an answer.
	Round uint64 `json:"round"`
	// Count and Duration bound the round; 0: no bound. One must be set.
	Count    int64         `json:"count"`
	Duration time.Duration `json:"duration"`
}

// roundBits are the low bits of a number that count within its round.
const roundBits = 40

// base is the number before the first of the round.
func (p TripParams) base() uint64 { return p.Round << roundBits }

// stop is the number that ends the round.
func (p TripParams) stop() uint64 { return p.base() | (1<<roundBits - 1) }

// Trips that are made before the clock runs, and how long that may take: on a single
// core a trip takes milliseconds.
const (
	warmTrips = 1000
	warmTime  = 10 * time.Millisecond
)

// A side is what a worker keeps from one round to the next: the segment, whose mapping
// takes longer than a round.
type side struct {
	seg *shm.Segment
	m   memory
}

// open maps the parent's segment, once. It stays mapped to the end of the process.
func (s *side) open(t *worker.Task) error {
	if s.seg != nil {
		return nil
	}
	f, err := t.File(0)
	if err != nil {
		return err
	}
	seg, err := shm.Open(f, true)
	if err != nil {
		return err
	}
	m, err := view(seg.Bytes())
	if err != nil {
		_ = seg.Close() // err says what matters
		return err
	}
	s.seg, s.m = seg, m
	return nil
}

// ping is the side that sends first and takes the times; its result is a histogram.
func (s *side) ping(t *worker.Task) (any, error) {
	var p TripParams
	if err := errors.Join(t.Decode(&p), s.open(t)); err != nil {
		return nil, err
	}
	h := report.NewHistogram()
	if err := t.Await(); err != nil {
		return nil, err
	}
	ping(s.m, p, h)
	return h, nil
}

// ping makes round trips. Each is timed alone, so that the figure holds one reading of
// the clock, as that of the bus does.
func ping(m memory, p TripParams, h *report.Histogram) {
	n := p.base()
	start := time.Now()
	for i := 0; i < warmTrips && time.Since(start) < warmTime; i++ {
		n++
		p.store(m.ping, n)
		p.await(m.pong, n)
	}
	start = time.Now()
	for i := int64(0); p.Count == 0 || i < p.Count; i++ {
		n++
		before := time.Since(start)
		p.store(m.ping, n)
		p.await(m.pong, n)
		after := time.Since(start)
		h.Record(int64(after - before))
		if p.Duration != 0 && after > p.Duration {
			break
		}
	}
	m.ping.Store(p.stop())
	p.await(m.pong, p.stop())
}

// echo is the side that answers. It has no result.
func (s *side) echo(t *worker.Task) (any, error) {
	var p TripParams
	if err := errors.Join(t.Decode(&p), s.open(t)); err != nil {
		return nil, err
	}
	if err := t.Await(); err != nil {
		return nil, err
	}
	echo(s.m, p)
	return nil, nil
}

func echo(m memory, p TripParams) {
	for last := p.base(); last != p.stop(); {
		n := m.ping.Load()
		if n <= last { // nothing new, or what an earlier round left
			if p.Pause != 0 {
				arch.Pause(p.Pause)
			}
			continue
		}
		p.store(m.pong, n)
		last = n
	}
}

func (t Trip) store(word *atomic.Uint64, n uint64) {
	if t.Exchange {
		word.Store(n)
		return
	}
	arch.StoreRelease(word, n)
}

func (t Trip) await(word *atomic.Uint64, n uint64) {
	for word.Load() != n {
		if t.Pause != 0 {
			arch.Pause(t.Pause)
		}
	}
}
