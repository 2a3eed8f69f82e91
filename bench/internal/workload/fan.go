package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/shm"
)

// Scenarios with several processes on a side.
const (
	ScenarioFanout = "fanout"
	ScenarioFanin  = "fanin"
	ScenarioGroup  = "group"
)

// The roles of several processes on a side.
const (
	RoleFanPublish = "fan/publish"
	RoleFanConsume = "fan/consume"
)

// maxFan is how many publishers there may be: a number's bits 48 to 55 say which it is.
const maxFan = 256

// publisherShift is where in a number the publisher stands.
const publisherShift = 48

// FanParams are what each process is told.
type FanParams struct {
	Params
	// Topic carries the frames; Ends carries what each publisher says when it is done, to readers
	// of a group.
	Topic string `json:"topic"`
	Ends  string `json:"ends"`
	// Publishers is how many there are, Publisher which of them this is.
	Publishers int `json:"publishers"`
	Publisher  int `json:"publisher"`
	// Group is that of the readers; empty: each reads all.
	Group string `json:"group"`
}

// A Tally is what one process published or read.
type Tally struct {
	report.Rate
	// Sums has, for each publisher, how many of its frames there were, and the sum of their numbers.
	Sums []Sum `json:"sums"`
}

// A Sum tells whether two sides have the same frames.
type Sum struct {
	Frames int64  `json:"frames"`
	Total  uint64 `json:"total"`
}

func (s *Sum) add(seq uint64) {
	s.Frames++
	s.Total += seq
}

func fanRoles() map[string]worker.Role {
	return map[string]worker.Role{RoleFanPublish: fanPublish, RoleFanConsume: fanConsume}
}

// fanPublish publishes until a bound is reached; its result is a Tally.
func fanPublish(t *worker.Task) (any, error) {
	var p FanParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attachTo(p.Params, p.Topic, "")
	if err != nil {
		return nil, err
	}
	ends, err := e.client.Publisher(e.ctx, p.Ends, client.PublisherOptions{})
	if err != nil {
		return nil, joinClose(err, e)
	}
	if err := t.Await(); err != nil {
		return nil, joinClose(err, e)
	}
	tally := Tally{Sums: make([]Sum, p.Publishers)}
	mine := uint64(p.Publisher) << publisherShift
	s := newSender(e)
	s.publisher = mine
	start, look := time.Now(), uint64(clockEvery)
	for s.next < uint64(p.Count) || p.Count == 0 {
		if s.next >= look {
			look = s.next + clockEvery
			if p.Nanoseconds != 0 && time.Since(start) > time.Duration(p.Nanoseconds) {
				break
			}
		}
		n := p.Batch
		if p.Count != 0 {
			n = int(min(int64(n), p.Count-int64(s.next)))
		}
		for i := range uint64(n) {
			tally.Sums[p.Publisher].add(s.next + i)
		}
		if err := s.send(n, 0); err != nil {
			return nil, joinClose(err, e)
		}
	}
	tally.Rate = report.Rate{Frames: int64(s.next), Nanoseconds: int64(time.Since(start))}
	end := make([]byte, p.Size)
	setSeq(end, endBit|mine|s.next)
	// On the topic for those who read all of it, and beside it for a group, whose members see a part.
	err = errors.Join(e.lane.Publish(e.ctx, end), ends.Publish(e.ctx, end))
	return tally, joinClose(err, e)
}

// fanConsume reads until every publisher has said that it is done; its result is a Tally.
func fanConsume(t *worker.Task) (any, error) {
	var p FanParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attachTo(p.Params, "", "")
	if err != nil {
		return nil, err
	}
	f := &fanReader{end: e, params: p, want: make([]uint64, p.Publishers), tally: Tally{Sums: make([]Sum, p.Publishers)}}
	if err := f.attach(); err != nil {
		return nil, joinClose(err, e)
	}
	if err := t.Await(); err != nil {
		return nil, joinClose(err, e)
	}
	start := time.Now()
	err = f.read()
	f.tally.Nanoseconds = int64(time.Since(start))
	for _, s := range f.tally.Sums {
		f.tally.Frames += s.Frames
	}
	return f.tally, joinClose(err, e)
}

// A fanReader reads what several publishers publish: all of it in order, or its share.
type fanReader struct {
	end    *end
	params FanParams
	topic  poller
	ends   *client.Subscriber
	want   []uint64 // the next number of each publisher, or the least that is possible in a group
	done   int      // publishers that have ended
	over   int      // publishers that have said so beside the topic
	tally  Tally
}

type poller interface {
	Poll(limit int, fn func(client.Frame) error) (int, error)
	Wait(ctx context.Context) error
}

func (f *fanReader) attach() (err error) {
	how, err := client.ParseWait(f.params.Wait)
	if err != nil {
		return err
	}
	c, ctx := f.end.client, f.end.ctx
	if f.params.Group == "" {
		f.topic, err = c.Subscriber(ctx, f.params.Topic, client.SubscriberOptions{Wait: how})
		return err
	}
	if f.ends, err = c.Subscriber(ctx, f.params.Ends, client.SubscriberOptions{}); err != nil {
		return err
	}
	f.topic, err = c.Group(ctx, f.params.Topic, f.params.Group, client.GroupOptions{Wait: how})
	return err
}

func (f *fanReader) read() error {
	for {
		n, err := f.topic.Poll(f.params.Limit, f.check)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if f.ends == nil {
			if f.done == f.params.Publishers {
				return nil
			}
			if err := f.topic.Wait(f.end.ctx); err != nil {
				return err
			}
			continue
		}
		if ended, err := f.groupEnded(); ended || err != nil {
			return err
		}
	}
}

// groupEnded looks, when there was nothing to read, whether all publishers are done: what a
// publisher has published before it said so was there to be read before this look.
func (f *fanReader) groupEnded() (bool, error) {
	_, err := f.ends.Poll(maxFan, func(client.Frame) error {
		f.over++
		return nil
	})
	if err != nil {
		return false, err
	}
	if f.over < f.params.Publishers {
		// Bounded: the end may be said beside the topic only, with nothing more on it for this member.
		ctx, stop := context.WithTimeout(f.end.ctx, time.Millisecond)
		defer stop()
		if err := f.topic.Wait(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return false, err
		}
		return false, nil
	}
	n, err := f.topic.Poll(f.params.Limit, f.check)
	return n == 0, err
}

// check looks at one frame.
func (f *fanReader) check(frame client.Frame) error {
	b := frame.Payload
	if len(b) != f.params.Size {
		return fmt.Errorf("got a payload of %d bytes instead of %d", len(b), f.params.Size)
	}
	number := getSeq(b)
	publisher := int(number >> publisherShift & (maxFan - 1))
	seq := number & (1<<publisherShift - 1)
	if publisher >= f.params.Publishers {
		return fmt.Errorf("got a frame of publisher %d of %d", publisher, f.params.Publishers)
	}
	// A group's member gets a part of a publisher's frames, in their order.
	if want := f.want[publisher]; seq < want || seq > want && f.params.Group == "" {
		return fmt.Errorf("publisher %d: got frame %d instead of %d", publisher, seq, want)
	}
	f.want[publisher] = seq + 1
	if number >= endBit {
		f.done++
		return nil
	}
	f.tally.Sums[publisher].add(seq)
	if sampled(seq) {
		return checkBody(b, seq)
	}
	return nil
}

// A fanCase has several processes on a side.
type fanCase struct {
	bus     *Bus
	params  FanParams
	topic   client.TopicOptions
	readers int
	result  report.Result
	rounds  []report.Rate
}

// A Fan says how many processes publish and read.
type Fan struct{ Publishers, Readers int }

// Fans are the cases of a scenario, one for each size, batch and fan. group makes one group of the readers.
func Fans(b *Bus, p Plan, scenario string, fans []Fan, group bool) []Measured {
	var cases []Measured
	p.each(func(shape Params) {
		for _, f := range fans {
			shape.Socket = b.Socket()
			c := &fanCase{bus: b, topic: p.Topic, readers: f.Readers, params: FanParams{Params: shape, Publishers: f.Publishers}}
			c.result = p.result(scenario, shape)
			c.result.Publishers, c.result.Subscribers = f.Publishers, f.Readers
			if group {
				c.params.Group = "workers"
			}
			cases = append(cases, c)
		}
	})
	return cases
}

func (c *fanCase) Name() string {
	return fmt.Sprintf("%d to %d, %s, batches of %d", c.params.Publishers, c.readers, shm.FormatSize(int64(c.params.Size)), c.params.Batch)
}

// Round has topics of its own, so that every process starts with the first frame.
func (c *fanCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	p := c.params
	ends := client.TopicOptions{Capacity: 1 << 20, MaxPayload: int64(p.Size), Pages: "4KiB"}
	if p.Size > 1<<16 {
		ends = c.topic
	}
	if p.Ends, err = c.bus.Fresh(ctx, ends); err != nil {
		return err
	}
	if p.Topic, err = c.bus.Fresh(ctx, c.topic); err != nil {
		return err
	}
	var calls []worker.Call
	tallies := make([]Tally, p.Publishers+c.readers)
	for i := range tallies {
		q := p
		role := RoleFanConsume
		if i < p.Publishers {
			q.Publisher, role = i, RoleFanPublish
		}
		calls = append(calls, worker.Call{Role: role, Params: q, Into: &tallies[i]})
	}
	if err := team.Run(ctx, calls...); err != nil {
		return err
	}
	rate, err := c.judge(tallies[:p.Publishers], tallies[p.Publishers:])
	c.rounds = append(c.rounds, rate)
	return errors.Join(err, c.bus.Remove(ctx, p.Topic), c.bus.Remove(ctx, p.Ends))
}

// judge compares what was read with what was published, and makes the rate: frames published, in
// the time until the last of them was read.
func (c *fanCase) judge(published, read []Tally) (report.Rate, error) {
	var rate report.Rate
	want, got := make([]Sum, len(published)), make([]Sum, len(published))
	for _, t := range published {
		rate.Frames += t.Frames
		addSums(want, t.Sums)
	}
	for i, t := range read {
		rate.Nanoseconds = max(rate.Nanoseconds, t.Nanoseconds)
		addSums(got, t.Sums)
		if c.params.Group != "" && i < len(read)-1 {
			continue // all members together
		}
		for n := range want {
			if got[n] != want[n] {
				return rate, fmt.Errorf("of publisher %d %d frames were read instead of %d (or other ones)", n, got[n].Frames, want[n].Frames)
			}
		}
		clear(got)
	}
	return rate, nil
}

func addSums(to, from []Sum) {
	for i := range from {
		to[i].Frames += from[i].Frames
		to[i].Total += from[i].Total
	}
}

func (c *fanCase) Result() report.Result {
	r := c.result
	r.Throughput(c.rounds)
	return r
}
