package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/shm"
)

// Scenarios of starting.
const (
	ScenarioStart  = "start"
	ScenarioAttach = "attach"
)

// The roles of starting.
const (
	RoleStartPublish = "start/publish"
	RoleStartConsume = "start/consume"
)

// startChunk is how many frames count as the first, and startChunks how many such
// stretches there are.
const (
	startChunk  = 100_000
	startChunks = 10
)

// StartParams are what both sides are told.
type StartParams struct {
	Params
	Topic string `json:"topic"`
	// Chunk is how many frames a stretch has, Chunks how many stretches there are.
	Chunk  int64 `json:"chunk"`
	Chunks int64 `json:"chunks"`
}

// Started is how one side started.
type Started struct {
	// Attach are how long it took to attach to the topic, once connected to the broker, each time
	// by a new client that maps the topic anew.
	Attach []time.Duration `json:"attach"`
	// Chunks are how long each stretch of frames took, at the reader.
	Chunks []time.Duration `json:"chunks"`
}

func startRoles() map[string]worker.Role {
	return map[string]worker.Role{RoleStartPublish: startPublish, RoleStartConsume: startConsume}
}

// attachments is how often a side attaches to take the time; the last one stays.
const attachments = 20

// startAttach is attach, timed and more than once.
func startAttach(t *worker.Task, p Params, publish, subscribe string) (*end, []time.Duration, error) {
	var took []time.Duration
	for {
		e, err := attachTo(p, publish, subscribe)
		if err != nil {
			return nil, nil, err
		}
		if took = append(took, e.attached); len(took) < attachments {
			if err := e.close(); err != nil {
				return nil, nil, err
			}
			continue
		}
		if err := t.Await(); err != nil {
			return nil, nil, joinClose(err, e)
		}
		return e, took, nil
	}
}

func startPublish(t *worker.Task) (any, error) {
	var p StartParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, took, err := startAttach(t, p.Params, p.Topic, "")
	if err != nil {
		return nil, err
	}
	s := newSender(e)
	for last := uint64(p.Chunk*p.Chunks) + 1; err == nil && s.next < last; {
		err = s.send(1, 0)
	}
	return Started{Attach: took}, joinClose(err, e)
}

func startConsume(t *worker.Task) (any, error) {
	var p StartParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, took, err := startAttach(t, p.Params, "", p.Topic)
	if err != nil {
		return nil, err
	}
	started := Started{Attach: took}
	started.Chunks, err = stretches(e, p)
	return started, joinClose(err, e)
}

// stretches reads, and takes the time of every stretch: the first begins with the first frame.
func stretches(e *end, p StartParams) ([]time.Duration, error) {
	r := newReader(p.Size, false, false)
	took := make([]time.Duration, 0, p.Chunks)
	var last time.Time
	next := uint64(0)
	handle := func(f client.Frame) error {
		seq, err := r.check(f.Payload)
		if seq == next {
			now := time.Now()
			if seq > 0 {
				took = append(took, now.Sub(last))
			}
			last, next = now, next+uint64(p.Chunk)
		}
		return err
	}
	for int64(len(took)) < p.Chunks {
		n, err := e.sub.Poll(p.Limit, handle)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			if err := e.idle(); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// A starter runs the rounds that its results share.
type starter struct {
	bus    *Bus
	params StartParams
	topic  client.TopicOptions
	first  []report.Rate
	later  []report.Rate
	attach [2][]*report.Histogram // publisher's and subscriber's
}

// A startPart is one of a starter's results. The first one measures.
type startPart struct {
	*starter
	measures bool
	result   func(*starter, *report.Result)
	of       report.Result
}

// Starts are the cases of the first frames after attaching, beside later ones, and of attaching itself.
func Starts(b *Bus, p Plan) []Measured {
	var cases []Measured
	p.each(func(shape Params) {
		shape.Socket = b.Socket()
		s := &starter{bus: b, topic: p.Topic, params: StartParams{Params: shape, Chunk: startChunk, Chunks: startChunks}}
		if shape.Count != 0 {
			s.params.Chunk = max(shape.Count/startChunks, 1)
		}
		part := func(scenario, variant string, result func(*starter, *report.Result)) {
			of := p.result(scenario, shape)
			of.Variant = variant
			cases = append(cases, &startPart{s, len(cases) == 0 || cases[len(cases)-1].(*startPart).starter != s, result, of})
		}
		part(ScenarioStart, fmt.Sprintf("first %d frames", s.params.Chunk), func(s *starter, r *report.Result) { r.Throughput(s.first) })
		part(ScenarioStart, fmt.Sprintf("each later %d", s.params.Chunk), func(s *starter, r *report.Result) { r.Throughput(s.later) })
		part(ScenarioAttach, "publisher", func(s *starter, r *report.Result) { r.Latency(s.attach[0]) })
		part(ScenarioAttach, "subscriber", func(s *starter, r *report.Result) { r.Latency(s.attach[1]) })
	})
	return cases
}

func (c *startPart) Name() string {
	return fmt.Sprintf("start, %s", shm.FormatSize(int64(c.params.Size)))
}

// Round attaches to a topic that is as new as the round.
func (c *startPart) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	if !c.measures {
		return nil
	}
	s, p := c.starter, c.params
	if p.Topic, err = s.bus.Fresh(ctx, s.topic); err != nil {
		return err
	}
	var publisher, reader Started
	if err := team.Run(ctx, worker.Call{Role: RoleStartPublish, Params: p, Into: &publisher}, worker.Call{Role: RoleStartConsume, Params: p, Into: &reader}); err != nil {
		return err
	}
	rate := func(d time.Duration) report.Rate { return report.Rate{Frames: p.Chunk, Nanoseconds: int64(d)} }
	s.first, s.later = append(s.first, rate(reader.Chunks[0])), append(s.later, rate(report.Median(reader.Chunks[1:])))
	for i, all := range [][]time.Duration{publisher.Attach, reader.Attach} {
		h := report.NewHistogram()
		for _, took := range all {
			h.Record(int64(took))
		}
		s.attach[i] = append(s.attach[i], h)
	}
	return s.bus.Remove(ctx, p.Topic)
}

func (c *startPart) Result() report.Result {
	r := c.of
	c.result(c.starter, &r)
	return r
}
