package workload

import (
	"fmt"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
)

// The roles of a ping-pong.
const (
	RolePing = "pingpong/ping"
	RoleEcho = "pingpong/echo"
)

// PingPongParams are what both sides of a round are told.
type PingPongParams struct {
	Params
	// There and Back are topics.
	There string `json:"there"`
	Back  string `json:"back"`
}

// warmTime bounds the warm-up of a ping-pong: on a single core a trip takes milliseconds.
const warmTime = 10 * time.Millisecond

// Ping is the side that sends first and takes the times; its result is a histogram.
func Ping(t *worker.Task) (any, error) {
	var p PingPongParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attach(t, p.Params, p.There, p.Back)
	if err != nil {
		return nil, err
	}
	h := report.NewHistogram()
	if err := ping(e, h); err != nil {
		return nil, joinClose(err, e)
	}
	return h, e.close()
}

// A pinger makes round trips of batches.
type pinger struct {
	end    *end
	s      *sender
	r      *reader
	handle func(client.Frame) error
}

func newPinger(e *end) *pinger {
	p := &pinger{end: e, s: newSender(e), r: newReader(e.params.Size, e.params.ReadAll, e.params.SeqOnly)}
	p.handle = func(f client.Frame) error {
		_, err := p.r.check(f.Payload)
		return err
	}
	return p
}

// trip sends a batch and waits until all of it is back.
func (p *pinger) trip(n int, mark uint64) error {
	err := error(nil)
	if n == 1 && mark == 0 {
		err = p.s.ones(p.s.next + 1) // without what send decides for each frame
	} else {
		err = p.s.send(n, mark)
	}
	if err != nil {
		return err
	}
	for n > 0 {
		got, err := p.end.sub.Poll(n, p.handle)
		if err != nil {
			return err
		}
		if got == 0 {
			if err := p.end.idle(); err != nil {
				return err
			}
		}
		n -= got
	}
	return nil
}

func ping(e *end, h *report.Histogram) error {
	p, params := newPinger(e), e.params
	start := time.Now()
	for p.s.next < params.Warm && time.Since(start) < warmTime {
		if err := p.trip(params.Batch, 0); err != nil {
			return err
		}
	}
	start = time.Now()
	bound := time.Duration(params.Nanoseconds)
	for i := int64(0); params.Count == 0 || i < params.Count; i++ {
		before := time.Since(start)
		if err := p.trip(params.Batch, 0); err != nil {
			return err
		}
		after := time.Since(start)
		h.Record(int64(after - before))
		if bound != 0 && after > bound {
			break
		}
	}
	return p.trip(1, endBit)
}

// Echo is the side that sends every payload back. It has no result.
func Echo(t *worker.Task) (any, error) {
	var p PingPongParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attach(t, p.Params, p.Back, p.There)
	if err != nil {
		return nil, err
	}
	if err := echo(e); err != nil {
		return nil, joinClose(err, e)
	}
	return nil, e.close()
}

// echo answers with what came: the same bytes, so that what was changed on either way
// is found out. It takes no time and looks at nothing but sequence numbers.
func echo(e *end) error {
	size, batch := e.params.Size, e.params.Batch
	answers := newWriter(size, batch).slots
	n, done := 0, false
	handle := func(f client.Frame) error {
		if len(f.Payload) != size {
			return fmt.Errorf("got a payload of %d bytes instead of %d", len(f.Payload), size)
		}
		done = getSeq(f.Payload) >= endBit
		if e.params.Claim {
			return echoClaim(e, f.Payload)
		}
		if batch == 1 {
			return e.lane.Publish(e.ctx, f.Payload)
		}
		copy(answers[n], f.Payload)
		n++
		return nil
	}
	for !done {
		got, err := e.sub.Poll(batch, handle)
		if err != nil {
			return err
		}
		if got == 0 {
			if err := e.idle(); err != nil {
				return err
			}
			continue
		}
		if n > 0 {
			if _, err := e.lane.PublishBatch(e.ctx, answers[:n]); err != nil {
				return err
			}
			n = 0
		}
	}
	return nil
}

// echoClaim sends one payload back in place.
func echoClaim(e *end, payload []byte) error {
	c, err := e.lane.Claim(e.ctx, len(payload))
	if err != nil {
		return err
	}
	if e.params.SeqOnly && !sampled(getSeq(payload)&^endBit) {
		setSeq(c.Payload, getSeq(payload))
	} else {
		copy(c.Payload, payload)
	}
	return c.Commit()
}
