package workload

import (
	"context"
	"fmt"

	"github.com/hugebus/hugebus/bench/internal/foreign"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/session"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// System is what results call the bus.
const System = "hugebus"

// Scenarios of the results.
const (
	ScenarioLatency    = "latency"
	ScenarioThroughput = "throughput"
)

// Roles are what workers must be able to do for the cases of this package.
func Roles() map[string]worker.Role {
	own := map[string]worker.Role{RolePing: Ping, RoleEcho: Echo, RolePublish: Publish, RoleConsume: Consume}
	return worker.Join(own, peerRoles(), channelRoles(), rateRoles(), fanRoles(), idleRoles(), missedRoles(), startRoles(), gcRoles(), foreign.Roles())
}

// A Plan says what to measure: Shape for every size and batch.
type Plan struct {
	// Shape is what all cases share; its Socket, Size, Batch and Warm are set by the plan.
	Shape   Params
	Sizes   []int64
	Batches []int
	// Topic says how topics are made.
	Topic client.TopicOptions
}

// each calls fn for every size and batch.
func (p Plan) each(fn func(Params)) {
	for _, size := range p.Sizes {
		for _, batch := range p.Batches {
			shape := p.Shape
			shape.Size, shape.Batch = int(size), batch
			fn(shape)
		}
	}
}

// variant says how the bus is used, where that is not the plain way.
func (p Plan) variant() string {
	text := "shared"
	if p.Topic.Exclusive {
		text = "exclusive"
	}
	if p.Shape.Claim {
		text += ", claim"
	}
	if p.Shape.SeqOnly {
		text += ", 8 bytes written"
	}
	if p.Shape.ReadAll {
		text += ", all read"
	}
	if p.Shape.One {
		text += ", handler takes one"
	}
	return text
}

func (p Plan) result(scenario string, shape Params) report.Result {
	return report.Result{
		Scenario: scenario, System: System, Variant: p.variant(), PayloadBytes: shape.Size, Batch: shape.Batch,
	}
}

// A Measured case has a result after its session.
type Measured interface {
	session.Case
	Result() report.Result
}

// createPair makes the two topics of a ping-pong.
func (b *Bus) createPair(ctx context.Context, p Plan) error {
	for _, name := range []string{"there", "back"} {
		if err := b.Create(ctx, name, p.Topic); err != nil {
			return err
		}
	}
	return nil
}

// Latency makes the topics of the plan, and a ping-pong case for each size and batch.
func Latency(ctx context.Context, b *Bus, p Plan) ([]Measured, error) {
	if err := b.createPair(ctx, p); err != nil {
		return nil, err
	}
	var cases []Measured
	p.each(func(shape Params) {
		shape.Socket, shape.Warm = b.Socket(), 1000
		cases = append(cases, &pingPong{
			params: PingPongParams{Params: shape, There: "there", Back: "back"},
			result: p.result(ScenarioLatency, shape),
		})
	})
	return cases, nil
}

type pingPong struct {
	params PingPongParams
	result report.Result
	rounds []*report.Histogram
}

func (c *pingPong) Name() string {
	return fmt.Sprintf("round trip, %s, batches of %d", shm.FormatSize(int64(c.params.Size)), c.params.Batch)
}

func (c *pingPong) Round(ctx context.Context, team *worker.Team, _ int) error {
	h := report.NewHistogram()
	if err := team.Run(ctx, worker.Call{Role: RolePing, Params: c.params, Into: h}, worker.Call{Role: RoleEcho, Params: c.params}); err != nil {
		return err
	}
	c.rounds = append(c.rounds, h)
	return nil
}

func (c *pingPong) Result() report.Result {
	r := c.result
	r.Latency(c.rounds)
	r.Frames *= int64(c.params.Batch) // there is one time for each batch
	return r
}

// Throughput makes the topic of the plan, and a stream case for each size and batch.
func Throughput(ctx context.Context, b *Bus, p Plan) ([]Measured, error) {
	if err := b.Create(ctx, "stream", p.Topic); err != nil {
		return nil, err
	}
	var cases []Measured
	p.each(func(shape Params) {
		// One lap warms every page of the ring, in both processes.
		shape.Socket, shape.Warm = b.Socket(), uint64(p.Topic.Capacity/(int64(shape.Size)+ring.HeaderSize))
		cases = append(cases, &oneWay{
			params: StreamParams{Params: shape, Topic: "stream"}, result: p.result(ScenarioThroughput, shape),
		})
	})
	return cases, nil
}

type oneWay struct {
	params StreamParams
	result report.Result
	rounds []report.Rate
	perHit []float64
}

func (c *oneWay) Name() string {
	return fmt.Sprintf("stream, %s, batches of %d", shm.FormatSize(int64(c.params.Size)), c.params.Batch)
}

func (c *oneWay) Round(ctx context.Context, team *worker.Team, _ int) error {
	var got Consumed
	if err := team.Run(ctx, worker.Call{Role: RolePublish, Params: c.params}, worker.Call{Role: RoleConsume, Params: c.params, Into: &got}); err != nil {
		return err
	}
	c.rounds = append(c.rounds, got.Rate)
	c.perHit = append(c.perHit, float64(got.Frames)/float64(max(got.Polls, 1)))
	return nil
}

func (c *oneWay) Result() report.Result {
	r := c.result
	r.Throughput(c.rounds)
	r.FramesPerPoll = report.Median(c.perHit)
	return r
}

// Compared makes topics and cases of the bus for a comparison: for each size round trips, and
// a stream for each batch, by processes that spin and by processes that wait the default way.
func Compared(ctx context.Context, b *Bus, p Plan) ([]Measured, error) {
	for _, name := range []string{"there", "back", "stream"} {
		if err := b.Create(ctx, name, p.Topic); err != nil {
			return nil, err
		}
	}
	var cases []Measured
	for _, wait := range []client.Wait{client.WaitSpin, client.WaitAdaptive} {
		p.each(func(shape Params) {
			shape.Socket, shape.Wait = b.Socket(), wait.String()
			trips, streams := p.result(ScenarioLatency, shape), p.result(ScenarioThroughput, shape)
			trips.Variant, streams.Variant = "Go, "+shape.Wait, "Go, "+shape.Wait
			if shape.Batch == 1 {
				shape.Warm = 1000
				cases = append(cases, &pingPong{params: PingPongParams{Params: shape, There: "there", Back: "back"}, result: trips})
			}
			shape.Warm = uint64(p.Topic.Capacity / (int64(shape.Size) + ring.HeaderSize))
			cases = append(cases, &oneWay{params: StreamParams{Params: shape, Topic: "stream"}, result: streams})
		})
	}
	return cases, nil
}
