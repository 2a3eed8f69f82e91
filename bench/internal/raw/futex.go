package raw

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/sys"
)

// ScenarioFutex is the round trip of two threads that sleep and wake each other.
const ScenarioFutex = "raw-futex"

// The roles of the two sides of a futex round trip.
const (
	RoleFutexPing = "raw/futex-ping"
	RoleFutexEcho = "raw/futex-echo"
)

// FutexParams are what both sides of a round are told.
type FutexParams struct {
	// Base is the number before the first of the round: above all that earlier ones left.
	Base     uint32        `json:"base"`
	Count    int64         `json:"count"`
	Duration time.Duration `json:"duration"`
}

// futexStop, added to a number, ends the round.
const futexStop = 1 << 31

// asleep bounds one sleep, so that a lost wake-up is an error and not a hang.
const asleep = 10 * time.Second

// rest sleeps until *bell is not last, and returns what it is then. It does not look
// before: what is measured is the sleep.
func rest(bell *atomic.Uint32, last uint32) (uint32, error) {
	for {
		err := sys.FutexWait(bell, last, asleep)
		if now := bell.Load(); now != last {
			return now, nil
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("raw: the other side did not ring: %w", err)
		}
	}
}

func ring(bell *atomic.Uint32, n uint32) error {
	bell.Store(n)
	_, err := sys.FutexWake(bell, 1)
	return err
}

// futexPing rings first and takes the times; its result is a histogram.
func (s *side) futexPing(t *worker.Task) (any, error) {
	var p FutexParams
	if err := errors.Join(t.Decode(&p), s.open(t)); err != nil {
		return nil, err
	}
	s.m.pongBell.Store(p.Base)
	if err := t.Await(); err != nil {
		return nil, err
	}
	h := report.NewHistogram()
	last := p.Base
	trip := func(n uint32) error {
		if err := ring(s.m.pingBell, n); err != nil {
			return err
		}
		_, err := rest(s.m.pongBell, last)
		last = n
		return err
	}
	start := time.Now()
	for i := int64(0); p.Count == 0 || i < p.Count; i++ {
		before := time.Since(start)
		if err := trip(last + 1); err != nil {
			return nil, err
		}
		after := time.Since(start)
		h.Record(int64(after - before))
		if p.Duration != 0 && after > p.Duration {
			break
		}
	}
	return h, trip((last + 1) | futexStop)
}

// futexEcho rings back whatever comes. It has no result.
func (s *side) futexEcho(t *worker.Task) (any, error) {
	var p FutexParams
	if err := errors.Join(t.Decode(&p), s.open(t)); err != nil {
		return nil, err
	}
	s.m.pingBell.Store(p.Base)
	if err := t.Await(); err != nil {
		return nil, err
	}
	for last := p.Base; last&futexStop == 0; {
		n, err := rest(s.m.pingBell, last)
		if err != nil {
			return nil, err
		}
		last = n
		if err := ring(s.m.pongBell, n); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// A Futex is the case of sleeping and waking with nothing in between: what a
// sleep-and-wake round trip is compared with.
type Futex struct {
	// Bounds are those of a round.
	Bounds Bounds
	times  []*report.Histogram
}

// Name says what it is.
func (f *Futex) Name() string { return "raw futex round trip" }

// Round measures once.
func (f *Futex) Round(ctx context.Context, team *worker.Team, n int) error {
	// A round has far less trips than there are numbers from one base to the next.
	p := FutexParams{Base: uint32(n%64) << 24, Count: f.Bounds.Count, Duration: f.Bounds.Duration}
	h := report.NewHistogram()
	if err := team.Run(ctx, worker.Call{Role: RoleFutexPing, Params: p, Into: h}, worker.Call{Role: RoleFutexEcho, Params: p}); err != nil {
		return err
	}
	f.times = append(f.times, h)
	return nil
}

// Result joins the rounds.
func (f *Futex) Result() report.Result {
	r := report.Result{Scenario: ScenarioFutex, System: System, Variant: "two threads, pinned"}
	r.Latency(f.times)
	return r
}
