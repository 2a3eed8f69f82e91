package workload

import (
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
)

// The roles of a one-way stream.
const (
	RolePublish = "stream/publish"
	RoleConsume = "stream/consume"
)

// StreamParams are what both sides of a round are told.
type StreamParams struct {
	Params
	Topic string `json:"topic"`
}

// Publish is the side that writes; its result is Counts.
func Publish(t *worker.Task) (any, error) {
	var p StreamParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attach(t, p.Params, p.Topic, "")
	if err != nil {
		return nil, err
	}
	counts := newCounting(p.Counting)
	if err := stream(newSender(e), counts.begin); err != nil {
		return nil, joinClose(err, e)
	}
	counted, err := counts.end()
	return counted, joinClose(err, e)
}

// clockEvery is how many frames, at least, are published between two looks at the
// clock, which costs as much as a frame or two.
const clockEvery = 4096

// stream publishes the warm-up, calls begin, and then publishes until a bound is reached.
func stream(s *sender, begin func()) error {
	p := s.end.params
	for s.next <= p.Warm {
		if err := s.send(1, 0); err != nil {
			return err
		}
	}
	begin()
	start := time.Now()
	first, look := s.next, s.next+clockEvery
	for {
		n := p.Batch
		if n == 1 {
			end := look
			if p.Count != 0 {
				end = min(end, first+uint64(p.Count)-1)
			}
			if err := s.ones(end); err != nil {
				return err
			}
		}
		if p.Count != 0 {
			if left := p.Count - int64(s.next-first); left <= int64(n) {
				return s.send(int(left), endBit)
			}
		}
		if s.next >= look {
			look = s.next + clockEvery
			if p.Nanoseconds != 0 && time.Since(start) > time.Duration(p.Nanoseconds) {
				return s.send(n, endBit)
			}
		}
		if err := s.send(n, 0); err != nil {
			return err
		}
	}
}

// Consumed is the result of Consume.
type Consumed struct {
	report.Rate
	// Polls is how many polls found something, Empty how many did not, while the clock ran.
	Polls int64 `json:"polls"`
	Empty int64 `json:"empty"`
	Counts
}

// Consume is the side that reads; its result is Consumed.
func Consume(t *worker.Task) (any, error) {
	var p StreamParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attach(t, p.Params, "", p.Topic)
	if err != nil {
		return nil, err
	}
	result, err := consume(e)
	if err != nil {
		return nil, joinClose(err, e)
	}
	return result, e.close()
}

func consume(e *end) (Consumed, error) {
	var c Consumed
	var start time.Time
	p := e.params
	r := newReader(p.Size, p.ReadAll, p.SeqOnly)
	done := false
	counts := newCounting(p.Counting)
	mark := func(seq uint64) { // the last warm frame, or the end
		if seq == p.Warm {
			counts.begin()
			start, c.Polls, c.Empty = time.Now(), 0, 0
		}
		if seq >= endBit {
			done = true
		}
	}
	poll := func() (int, error) {
		return e.sub.PollBatch(p.Limit, func(frames []client.Frame) error { return r.checkAll(frames, p.Warm, mark) })
	}
	if p.One {
		poll = func() (int, error) {
			return e.sub.Poll(p.Limit, func(f client.Frame) error { return r.checkOne(f, p.Warm, mark) })
		}
	}
	for !done {
		n, err := poll()
		if err != nil {
			return c, err
		}
		if n != 0 {
			c.Polls++
			continue
		}
		c.Empty++
		if err := e.idle(); err != nil {
			return c, err
		}
	}
	c.Nanoseconds = int64(time.Since(start))
	c.Frames = int64(r.want - 1 - p.Warm)
	counted, err := counts.end()
	c.Counts = counted
	return c, err
}
