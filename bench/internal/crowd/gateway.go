package crowd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/ingress"
)

// Shape is what all processes of a round are told.
type Shape struct {
	Dir         string        `json:"dir"`
	Socket      string        `json:"socket"` // the broker's
	Topic       string        `json:"topic"`
	Connections int           `json:"connections"`
	Rate        float64       `json:"rate"` // frames per second: of each connection (ingress), or published (push); 0: as fast as it goes
	Size        int           `json:"size"`
	Duration    time.Duration `json:"duration"`
	Wait        string        `json:"wait"` // how the bus waits
}

func (s Shape) wait() client.Wait {
	how, _ := client.ParseWait(s.Wait) // the flag was checked
	return how
}

// dial connects to the broker.
func (s Shape) dial(name string) (*client.Client, error) {
	return client.Dial(context.Background(), client.Options{Socket: s.Socket, Name: name, Logger: slog.New(slog.DiscardHandler)})
}

const roleGateway = "crowd/gateway"

// Gated is what an ingress did in a round.
type Gated struct {
	Frames  uint64        `json:"frames"`
	Batches uint64        `json:"batches"`
	Reads   uint64        `json:"reads"` // calls
	Memory  int64         `json:"memory"`
	CPU     time.Duration `json:"cpu"` // processor time, but for setting up
}

// gateway is an ingress with its defaults. It ends when all connections have come and gone.
func gateway(t *worker.Task) (_ any, err error) {
	var s Shape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	if err := CheckFiles(s.Connections); err != nil {
		return nil, err
	}
	c, err := s.dial("ingress")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	in, err := ingress.New(context.Background(), c, s.Topic, ingress.Config{
		Listen: "127.0.0.1:0", Codec: "len32", MaxConns: -1, Logger: slog.New(slog.DiscardHandler),
		NewLane: func(ctx context.Context) (ingress.Lane, error) {
			return c.Lane(ctx, s.Topic, client.PublisherOptions{Wait: s.wait()})
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- in.Serve(ctx) }()
	before, err := ownMemory()
	if err == nil {
		err = announce(s.Dir, in.Addr().String())
	}
	if err == nil {
		err = t.Await()
	}
	var g Gated
	cpu, failed := cpuSince(0)
	if err = errors.Join(err, failed); err == nil {
		if g, err = attend(in, s.Connections, before); err == nil {
			g.CPU, err = cpuSince(cpu)
		}
	}
	stop()
	return g, errors.Join(err, <-served)
}

// attend waits until all connections have come and gone, and notes the memory that they took.
func attend(in *ingress.Ingress, connections int, before int64) (g Gated, err error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		s := in.Stats()
		if s.Open == connections {
			memory, err := ownMemory()
			if err != nil {
				return g, err
			}
			g.Memory = max(g.Memory, memory-before)
		}
		for why, n := range s.Errors {
			if n > 0 {
				return g, fmt.Errorf("the ingress ended %d connections: %s", n, why)
			}
		}
		if s.Accepted >= uint64(connections) && s.Open == 0 {
			g.Frames, g.Batches, g.Reads = s.Frames, s.Batches, s.Reads
			return g, nil
		}
	}
	return g, nil
}
