package crowd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
)

// Scenarios of results.
const (
	ScenarioIngress       = "ingress"
	ScenarioIngressStream = "ingress-stream"
)

// Bare is what results call the loop that only finds frames.
const Bare = "raw"

// An Ingress says what to measure of one.
type Ingress struct {
	Dir   string // a folder of its own
	Bus   *workload.Bus
	Topic client.TopicOptions
	Wait  string
}

func (in *Ingress) shape(ctx context.Context, s Shape) (Shape, func() error, error) {
	s.Socket, s.Wait = in.Bus.Socket(), in.Wait
	var err error
	if s.Topic, err = in.Bus.Fresh(ctx, in.Topic); err != nil {
		return s, nil, err
	}
	if s.Dir, err = os.MkdirTemp(in.Dir, "round"); err != nil {
		return s, nil, fmt.Errorf("crowd: %w", err)
	}
	return s, func() error { return errors.Join(in.Bus.Remove(ctx, s.Topic), os.RemoveAll(s.Dir)) }, nil
}

// A loadCase is one number of connections at one rate.
type loadCase struct {
	in     *Ingress
	shape  Shape
	times  []*report.Histogram
	rates  []report.Rate
	memory []int64
	reads  []float64
	behind int
}

// Load is the case of an open loop: so many connections, each sending at s.Rate.
func (in *Ingress) Load(s Shape) workload.Measured { return &loadCase{in: in, shape: s} }

func (c *loadCase) Name() string {
	return fmt.Sprintf("ingress, %d connections at %s/s each", c.shape.Connections, report.Quantity(c.shape.Rate))
}

func (c *loadCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	s, remove, err := c.in.shape(ctx, c.shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var gated Gated
	var sent Sent
	var got Consumed
	err = team.Run(ctx, worker.Call{Role: roleSend, Params: s, Into: &sent},
		worker.Call{Role: roleGateway, Params: s, Into: &gated}, worker.Call{Role: roleConsume, Params: s, Into: &got})
	if err != nil {
		return err
	}
	if got.Frames != sent.Frames || gated.Frames != uint64(sent.Frames)+uint64(s.Connections) {
		return fmt.Errorf("%d frames were sent, %d published and %d came", sent.Frames, gated.Frames-uint64(s.Connections), got.Frames)
	}
	c.times, c.rates = append(c.times, got.Times), append(c.rates, sent.Rate)
	c.memory = append(c.memory, gated.Memory/int64(s.Connections))
	c.reads = append(c.reads, float64(gated.Reads)/float64(gated.Frames))
	if sent.Cut || max(sent.Late, got.Late) > s.Duration/10 {
		c.behind++
	}
	return nil
}

func (c *loadCase) Result() report.Result {
	r := report.Result{
		Scenario: ScenarioIngress, System: workload.System, Variant: "len32", PayloadBytes: c.shape.Size, Publishers: c.shape.Connections,
		TargetPerSecond: c.shape.Rate * float64(c.shape.Connections), ConnBytes: report.Median(c.memory), CallsPerFrame: report.Median(c.reads),
	}
	r.Throughput(c.rates)
	frames := r.Frames
	r.Latency(c.times)
	r.Frames, r.Behind = frames, 2*c.behind > len(c.rates)
	return r
}

// A streamCase is one connection that streams, to an ingress or to the bare loop.
type streamCase struct {
	in    *Ingress
	shape Shape
	bare  *streamCase // what to compare with; nil: this is it
	rates []report.Rate
	reads []float64
	costs [3][]float64 // of sender, gateway or loop, and worker: processor time for each frame, in ns
}

// Streams are the case of the bare loop and that of the bus.
func (in *Ingress) Streams(s Shape) []workload.Measured {
	s.Connections = 1
	raw := &streamCase{in: in, shape: s}
	return []workload.Measured{&streamCase{in: in, shape: s, bare: raw}, raw}
}

func (c *streamCase) Name() string {
	if c.bare == nil {
		return "one connection streams, bare loop"
	}
	return "one connection streams, ingress"
}

func (c *streamCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	s, remove, err := c.in.shape(ctx, c.shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var gated Gated
	var sent, got Streamed
	calls := []worker.Call{{Role: roleStream, Params: s, Into: &sent}, {Role: roleBare, Params: s, Into: &got}}
	if c.bare != nil {
		calls = append(calls[:1], worker.Call{Role: roleGateway, Params: s, Into: &gated}, worker.Call{Role: roleFinish, Params: s, Into: &got})
	}
	if err := team.Run(ctx, calls...); err != nil {
		return err
	}
	if got.Frames != sent.Frames {
		return fmt.Errorf("%d frames were sent, and %d came", sent.Frames, got.Frames)
	}
	c.rates = append(c.rates, got.Rate)
	cpu := [3]time.Duration{sent.CPU, got.CPU}
	if c.bare != nil {
		cpu = [3]time.Duration{sent.CPU, gated.CPU, got.CPU}
	}
	for i := range cpu {
		c.costs[i] = append(c.costs[i], float64(cpu[i])/float64(sent.Frames))
	}
	if c.bare != nil {
		c.reads = append(c.reads, float64(gated.Reads)/float64(gated.Frames))
	}
	return nil
}

func (c *streamCase) Result() report.Result {
	r := report.Result{Scenario: ScenarioIngressStream, System: Bare, Variant: "only finds the frames' ends", PayloadBytes: c.shape.Size}
	r.Throughput(c.rates)
	if c.bare != nil {
		r.System, r.Variant, r.CallsPerFrame = workload.System, "len32, to a worker", report.Median(c.reads)
		if raw := c.bare.Result().FramesPerSecond; raw > 0 {
			r.RawShare = r.FramesPerSecond / raw
		}
	}
	return r
}

// Note says what each frame cost.
func (c *streamCase) Note() string {
	cost := func(i int) string { return fmt.Sprintf("%.0f ns", report.Median(c.costs[i])) }
	if c.bare == nil {
		return fmt.Sprintf("Processor time for each frame of %d bytes: sender %s, bare loop %s.", c.shape.Size, cost(0), cost(1))
	}
	return fmt.Sprintf("Processor time for each frame of %d bytes: sender %s, ingress %s, worker %s.", c.shape.Size, cost(0), cost(1), cost(2))
}
