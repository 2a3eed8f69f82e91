package crowd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
)

// ScenarioPush is the scenario of results of pushing.
const ScenarioPush = "push"

// A Push says what to measure of systems that push.
type Push struct {
	Dir   string        // a folder of its own
	Bus   *workload.Bus // nil: the bus is not measured
	Topic client.TopicOptions
}

// A pushCase is one system with so many clients, at one rate or as fast as it goes.
type pushCase struct {
	of     *Push
	shape  PushShape
	times  []*report.Histogram
	rates  []report.Rate
	calls  []float64
	memory []int64
	behind int
}

// Case is one system under one load. The address is that of its server, for others than the bus.
func (p *Push) Case(s PushShape) workload.Measured { return &pushCase{of: p, shape: s} }

func (c *pushCase) Name() string {
	pace := "as fast as it goes"
	if c.shape.Rate > 0 {
		pace = report.Quantity(c.shape.Rate) + "/s"
	}
	return fmt.Sprintf("%s pushes to %d clients, %s", c.shape.System, c.shape.Connections, pace)
}

func (c *pushCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	s := c.shape
	var got Pushed
	calls := []worker.Call{{Role: roleClients, Params: &s, Into: &got}}
	var e Egressed
	if s.System == workload.System {
		s.Socket = c.of.Bus.Socket()
		if s.Topic, err = c.of.Bus.Fresh(ctx, c.of.Topic); err != nil {
			return err
		}
		if s.Dir, err = os.MkdirTemp(c.of.Dir, "round"); err != nil {
			return fmt.Errorf("crowd: %w", err)
		}
		defer func() { err = errors.Join(err, c.of.Bus.Remove(ctx, s.Topic), os.RemoveAll(s.Dir)) }()
		calls = append(calls, worker.Call{Role: roleEgress, Params: &s, Into: &e})
	}
	if err := team.Run(ctx, calls...); err != nil {
		return err
	}
	c.times, c.rates = append(c.times, got.Times), append(c.rates, got.Rate)
	if e.Delivered > 0 {
		c.calls = append(c.calls, float64(e.Writes)/float64(e.Delivered))
		c.memory = append(c.memory, e.Memory/int64(s.Connections))
	}
	if s.Rate > 0 && got.Late > s.Duration/10 {
		c.behind++
	}
	return nil
}

func (c *pushCase) Result() report.Result {
	s := c.shape
	r := report.Result{
		Scenario: ScenarioPush, System: s.System, PayloadBytes: s.Size, Subscribers: s.Connections, TargetPerSecond: s.Rate * float64(s.Connections),
		CallsPerFrame: report.Median(c.calls), ConnBytes: report.Median(c.memory), Variant: fmt.Sprintf("window of %d", s.Window),
	}
	if s.Rate > 0 {
		r.Variant = report.Quantity(s.Rate) + "/s"
	}
	r.Throughput(c.rates)
	frames := r.Frames
	r.Latency(c.times)
	r.Frames, r.Behind = frames, 2*c.behind > len(c.rates)
	return r
}
