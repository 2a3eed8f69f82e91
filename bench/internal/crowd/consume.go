package crowd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
)

const roleConsume = "crowd/consume"

// pollLimit is how many frames a worker takes at once.
const pollLimit = 256

// Consumed is what a worker got.
type Consumed struct {
	Times  *report.Histogram `json:"times"`
	Frames int64             `json:"frames"`
	Late   time.Duration     `json:"late"` // how long after its time the last frame came
}

// errDone ends a subscription.
var errDone = errors.New("done")

// consume is the worker behind an ingress: it checks each frame, and takes the time from when it was to be sent.
func consume(t *worker.Task) (_ any, err error) {
	var s Shape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	now, err := workload.HostClock()
	if err != nil {
		return nil, err
	}
	got, conns, left := Consumed{Times: report.NewHistogram()}, make([]sequence, s.Connections), s.Connections
	take := func(f client.Frame) error {
		m, err := open(f.Payload, s.Size)
		if err != nil {
			return err
		}
		if int(m.conn) >= len(conns) {
			return fmt.Errorf("a frame is of connection %d, and there are %d", m.conn, len(conns))
		}
		if err := conns[m.conn].check(m); err != nil {
			return err
		}
		if m.end {
			if left--; left == 0 {
				return errDone
			}
			return nil
		}
		got.Late = now() - m.due
		got.Times.Record(int64(got.Late))
		got.Frames++
		return nil
	}
	return got, s.subscribe(t, take, func() error {
		return fmt.Errorf("nothing came for %v: %d of %d connections have not ended, %d frames were here", patience, left, len(conns), got.Frames)
	})
}

// subscribe reads the topic until take returns errDone. stuck is the error when nothing comes any more.
func (s Shape) subscribe(t *worker.Task, take func(client.Frame) error, stuck func() error) (err error) {
	many := func(frames []client.Frame) error {
		for i := range frames {
			if err := take(frames[i]); err != nil {
				return err
			}
		}
		return nil
	}
	c, err := s.dial("worker")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sub, err := c.Subscriber(context.Background(), s.Topic, client.SubscriberOptions{Wait: s.wait()})
	if err != nil {
		return err
	}
	if err := t.Await(); err != nil {
		return err
	}
	for {
		n, err := sub.PollBatch(pollLimit, many)
		switch {
		case err == errDone:
			return nil
		case err != nil:
			return err
		case n > 0:
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err = sub.Wait(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return stuck()
		}
		if err != nil {
			return err
		}
	}
}
