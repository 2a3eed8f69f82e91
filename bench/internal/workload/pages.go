package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// ScenarioPages is a stream over rings of different sizes on different pages.
const ScenarioPages = "pages"

// A pagesCase is a stream over a ring of one size on one kind of pages. Each round has a
// topic of its own, so that large ones are not all there at once.
type pagesCase struct {
	bus    *Bus
	params StreamParams
	topic  client.TopicOptions
	result report.Result
	rounds []report.Rate
	counts []Counts
	// missing says why there is no topic like that here; then rounds do nothing.
	missing error
}

// A Paged case may turn out not to be possible on this machine.
type Paged interface {
	Measured
	// Missing says why, or is nil.
	Missing() error
}

// Pages are the cases of streams over rings of these sizes on these kinds of pages.
func Pages(b *Bus, p Plan, capacities []int64, kinds []string) []Paged {
	var cases []Paged
	p.each(func(shape Params) {
		for _, capacity := range capacities {
			for _, kind := range kinds {
				shape.Socket, shape.Counting = b.Socket(), true
				shape.Warm = uint64(capacity / (int64(shape.Size) + ring.HeaderSize))
				c := &pagesCase{bus: b, params: StreamParams{Params: shape}, topic: p.Topic}
				c.topic.Capacity, c.topic.Pages = capacity, kind
				c.result = p.result(ScenarioPages, shape)
				c.result.Variant = fmt.Sprintf("%s ring, %s pages", shm.FormatSize(capacity), kind)
				cases = append(cases, c)
			}
		}
	})
	return cases
}

func (c *pagesCase) Name() string { return "stream, " + c.result.Variant }

func (c *pagesCase) Missing() error { return c.missing }

func (c *pagesCase) Round(ctx context.Context, team *worker.Team, _ int) error {
	if c.missing != nil {
		return nil
	}
	p := c.params
	var err error
	if p.Topic, err = c.bus.Fresh(ctx, c.topic); err != nil {
		if errors.Is(err, client.ErrNoMemory) || errors.Is(err, client.ErrInvalid) {
			c.missing = err
			return nil
		}
		return err
	}
	var publisher Counts
	var reader Consumed
	if err := team.Run(ctx, worker.Call{Role: RolePublish, Params: p, Into: &publisher}, worker.Call{Role: RoleConsume, Params: p, Into: &reader}); err != nil {
		return err
	}
	both := Counts{Faults: publisher.Faults + reader.Faults}
	if publisher.TLBMisses != nil && reader.TLBMisses != nil {
		n := *publisher.TLBMisses + *reader.TLBMisses
		both.TLBMisses = &n
	}
	c.rounds, c.counts = append(c.rounds, reader.Rate), append(c.counts, both)
	return c.bus.Remove(ctx, p.Topic)
}

func (c *pagesCase) Result() report.Result {
	r := c.result
	r.Settings = &report.Settings{Capacity: c.topic.Capacity, Pages: c.topic.Pages}
	r.Throughput(c.rounds)
	var faults, misses []int64
	for _, n := range c.counts {
		faults = append(faults, n.Faults)
		if n.TLBMisses != nil {
			misses = append(misses, *n.TLBMisses)
		}
	}
	n := report.Median(faults)
	r.PageFaults = &n
	if len(misses) > 0 {
		m := report.Median(misses)
		r.TLBMisses = &m
	}
	return r
}
