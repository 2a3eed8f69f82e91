package crowd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client/egress"
)

// Systems that push, as results call them.
const (
	NATS  = "nats"
	Redis = "redis"
)

const (
	roleEgress  = "crowd/egress"
	roleClients = "crowd/clients"
)

// PushShape is what both processes of a round of push are told. Connections are the clients, and Rate is what is published.
type PushShape struct {
	Shape
	System  string        `json:"system"`
	Address string        `json:"address"` // of the server; that of an egress is in Dir
	Window  int           `json:"window"`  // without a rate: frames that may be under way, of the average client
	Linger  time.Duration `json:"linger"`
}

func (s PushShape) wire() *wire {
	switch s.System {
	case NATS:
		return natsWire(s.Size)
	case Redis:
		return redisWire(s.Size)
	}
	return busWire(s.Size)
}

// Egressed is what an egress did.
type Egressed struct {
	Writes    uint64 `json:"writes"`
	Delivered uint64 `json:"delivered"`
	Memory    int64  `json:"memory"`
}

// pushEgress is an egress with its defaults. It ends when all clients have come and gone.
func pushEgress(t *worker.Task) (_ any, err error) {
	var s PushShape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	if err := CheckFiles(s.Connections); err != nil {
		return nil, err
	}
	c, err := s.dial("egress")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	out, err := egress.New(context.Background(), c, s.Topic, egress.Options{Wait: s.wait()}, egress.Config{
		Listen: "127.0.0.1:0", Codec: "len32", MaxConns: -1, Linger: s.Linger, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- out.Serve(ctx) }()
	before, err := ownMemory()
	if err == nil {
		err = announce(s.Dir, out.Addr().String())
	}
	if err == nil {
		err = t.Await()
	}
	var e Egressed
	if err == nil {
		e, err = watchEgress(out, s.Connections, before)
	}
	stop()
	return e, errors.Join(err, <-served)
}

// watchEgress waits until all clients have come and gone.
func watchEgress(out *egress.Egress, connections int, before int64) (e Egressed, err error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		s := out.Stats()
		if s.Open == connections {
			memory, err := ownMemory()
			if err != nil {
				return e, err
			}
			e.Memory = max(e.Memory, memory-before)
		}
		if s.Accepted >= uint64(connections) && s.Open == 0 {
			e.Writes, e.Delivered = s.Writes, s.Delivered
			return e, nil
		}
	}
	return e, nil
}

// Pushed is what clients got.
type Pushed struct {
	report.Rate                   // deliveries
	Times       *report.Histogram `json:"times"`
	Late        time.Duration     `json:"late"` // how long after its time the last delivery was made
	Published   int64             `json:"published"`
}

// pushClients is the process that publishes, and that has all of the clients.
func pushClients(t *worker.Task) (_ any, err error) {
	var s PushShape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	now, err := workload.HostClock()
	if err != nil {
		return nil, err
	}
	if s.Address == "" {
		if s.Address, err = lookUp(s.Dir); err != nil {
			return nil, err
		}
	}
	c, err := openClients(s.Connections, s.Size, s.wire(), s.Address, now)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	p, err := s.openPublisher()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := t.Await(); err != nil {
		return nil, err
	}
	d := &driver{PushShape: s, to: p, clients: c, now: now, quit: make(chan struct{})}
	failed := make(chan error, 1)
	d.over.Go(func() { failed <- d.run() })
	err = c.run(failed)
	close(d.quit)
	d.over.Wait()
	if err != nil {
		return nil, err
	}
	if got, want := c.delivered.Load(), d.published*int64(s.Connections); got != want {
		return nil, fmt.Errorf("%d deliveries were made of %d", got, want)
	}
	return Pushed{
		Rate:  report.Rate{Frames: c.delivered.Load(), Nanoseconds: int64(now() - d.start)},
		Times: c.times, Late: c.late, Published: d.published,
	}, nil
}
