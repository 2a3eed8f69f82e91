package raw

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/session"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/shm"
)

// Bounds say how long a round of one case lasts; 0: no bound. One must be set.
type Bounds struct {
	Count    int64
	Duration time.Duration
}

// Limits measures what the machine can do, way by way, beside other cases of a session.
type Limits struct {
	seg       *shm.Segment
	trips     []*tripCase
	transfers []*transferCase
	rounds    uint64 // over the segment, so far
}

// Scenarios of the results.
const (
	ScenarioRoundTrip = "raw-rtt"
	ScenarioTransfer  = "raw-transfer"
)

// NewLimits makes the segment for all trips and transfers, which the workers get as
// their first file. Close it after the session.
func NewLimits(trips []Trip, transfers []Transfer, pages shm.Pages, b Bounds) (*Limits, error) {
	size := int64(arch.CacheLine)
	for _, t := range transfers {
		size = max(size, t.Region)
	}
	for _, t := range transfers {
		if err := t.Check(size); err != nil {
			return nil, err
		}
	}
	seg, err := shm.Create(shm.Options{Name: "hugebus-bench-raw", Size: segmentSize(size, pages), Pages: pages})
	if err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	l := &Limits{seg: seg}
	for _, t := range trips {
		l.trips = append(l.trips, &tripCase{limits: l, trip: t, bounds: b})
	}
	for _, t := range transfers {
		l.transfers = append(l.transfers, &transferCase{limits: l, transfer: t, bounds: b})
	}
	return l, nil
}

// segmentSize is enough for the region and the words before it, in whole huge pages.
func segmentSize(region int64, pages shm.Pages) int64 {
	page := int64(2 << 20)
	if pages == shm.Pages1GiB {
		page = 1 << 30
	}
	return (region + offLines + page - 1) / page * page
}

// Segment is the memory that both sides share.
func (l *Limits) Segment() *shm.Segment { return l.seg }

// Close releases the memory.
func (l *Limits) Close() error { return l.seg.Close() }

// Cases are what is to be run.
func (l *Limits) Cases() []session.Case {
	var cases []session.Case
	for _, c := range l.trips {
		cases = append(cases, c)
	}
	for _, c := range l.transfers {
		cases = append(cases, c)
	}
	return cases
}

// RoundTrip is the result of the way with the lowest median round trip.
func (l *Limits) RoundTrip() report.Result {
	results := l.RoundTrips()
	if len(results) == 0 {
		return report.Result{}
	}
	return results[report.Best(results, func(r report.Result) int64 { return r.P50 })]
}

// RoundTrips are the results of all ways.
func (l *Limits) RoundTrips() []report.Result {
	var results []report.Result
	for _, c := range l.trips {
		r := report.Result{Scenario: ScenarioRoundTrip, System: System, Variant: c.trip.String()}
		r.Latency(c.rounds)
		results = append(results, r)
	}
	return results
}

// Transfers are the results of all ways, the fastest first. PayloadBytes is one line.
func (l *Limits) Transfers() []report.Result {
	var results []report.Result
	for _, c := range l.transfers {
		r := report.Result{
			Scenario: ScenarioTransfer, System: System, Variant: c.transfer.String(),
			PayloadBytes: arch.CacheLine, Batch: c.transfer.Block,
		}
		r.Throughput(c.rounds)
		results = append(results, r)
	}
	slices.SortStableFunc(results, func(a, b report.Result) int {
		switch {
		case a.FramesPerSecond > b.FramesPerSecond:
			return -1
		case a.FramesPerSecond < b.FramesPerSecond:
			return 1
		}
		return 0
	})
	return results
}

// System is what results call the bare machine.
const System = "raw"

// Roles are what workers must be able to do for Limits.
func Roles() map[string]worker.Role {
	s := &side{}
	return map[string]worker.Role{
		RolePing: s.ping, RoleEcho: s.echo, RoleFill: s.fill, RoleDrain: s.drain,
		RoleFutexPing: s.futexPing, RoleFutexEcho: s.futexEcho,
	}
}

func (l *Limits) nextRound() uint64 {
	l.rounds++
	return l.rounds
}

type tripCase struct {
	limits *Limits
	trip   Trip
	bounds Bounds
	rounds []*report.Histogram
}

func (c *tripCase) Name() string { return "raw round trip, " + c.trip.String() }

func (c *tripCase) Round(ctx context.Context, team *worker.Team, _ int) error {
	p := TripParams{Trip: c.trip, Round: c.limits.nextRound(), Count: c.bounds.Count, Duration: c.bounds.Duration}
	h := report.NewHistogram()
	if err := team.Run(ctx, worker.Call{Role: RolePing, Params: p, Into: h}, worker.Call{Role: RoleEcho, Params: p}); err != nil {
		return err
	}
	c.rounds = append(c.rounds, h)
	return nil
}

type transferCase struct {
	limits   *Limits
	transfer Transfer
	bounds   Bounds
	rounds   []report.Rate
}

func (c *transferCase) Name() string { return "raw transfer, " + c.transfer.String() }

func (c *transferCase) Round(ctx context.Context, team *worker.Team, _ int) error {
	p := TransferParams{Transfer: c.transfer, Round: c.limits.nextRound(), Count: c.bounds.Count, Duration: c.bounds.Duration}
	var rate report.Rate
	if err := team.Run(ctx, worker.Call{Role: RoleFill, Params: p}, worker.Call{Role: RoleDrain, Params: p, Into: &rate}); err != nil {
		return err
	}
	c.rounds = append(c.rounds, rate)
	return nil
}
