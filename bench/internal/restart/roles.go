package restart

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
)

// Broker serves a socket, with the given program as keeper, until standard input ends. It says "ready" when
// clients may come.
func Broker(ctx context.Context, socket string, keeper []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b, err := broker.New(broker.Config{
		Socket: socket, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Keeper: broker.KeeperConfig{Mode: broker.KeepInProcess, Exec: keeper},
	})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
		stop()
	}()
	fmt.Println("ready")
	return b.Serve(ctx)
}

// A lap is what the load did since the last one.
type lap struct {
	Pauses *report.Histogram
	Frames uint64
}

// loadTopic is the load's own.
const loadTopic = "load"

// Load publishes as fast as one subscriber reads, which checks that every frame comes, and in order. For each
// byte on standard input it reports a lap; at the end of the input it ends.
func Load(ctx context.Context, socket string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c, err := client.Dial(ctx, client.Options{Socket: socket, Name: "load", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, loadTopic, client.TopicOptions{Capacity: 1 << 20}); err != nil {
		return err
	}
	sub, err := c.Subscriber(ctx, loadTopic, client.SubscriberOptions{})
	if err != nil {
		return err
	}
	lane, err := c.Lane(ctx, loadTopic, client.PublisherOptions{})
	if err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() {
		next := uint64(0)
		read <- sub.Run(ctx, func(f client.Frame) error {
			n := binary.LittleEndian.Uint64(f.Payload)
			if n == last {
				return client.ErrStop
			}
			if n != next {
				return fmt.Errorf("restart: frame %d came instead of %d", n, next)
			}
			next++
			return nil
		})
	}()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		var b [1]byte
		for {
			if n, err := os.Stdin.Read(b[:]); n == 0 || err != nil {
				return
			}
			asked <- struct{}{}
		}
	}()
	fmt.Println("ready")
	if err := publish(ctx, lane, asked); err != nil {
		return err
	}
	return <-read
}

// last is the number of the frame that ends the load.
const last = ^uint64(0)

// publish publishes numbered frames until asked is closed, then the last one.
func publish(ctx context.Context, lane *client.Lane, asked <-chan struct{}) error {
	out := json.NewEncoder(os.Stdout)
	pauses := report.NewHistogram()
	var payload [8]byte
	first, before := uint64(0), time.Now()
	for n := uint64(0); ; n++ {
		select {
		case _, more := <-asked:
			if !more {
				binary.LittleEndian.PutUint64(payload[:], last)
				return lane.Publish(ctx, payload[:])
			}
			if err := out.Encode(lap{Pauses: pauses, Frames: n - first}); err != nil {
				return err
			}
			pauses.Reset()
			first, before = n, time.Now()
		default:
		}
		binary.LittleEndian.PutUint64(payload[:], n)
		if err := lane.Publish(ctx, payload[:]); err != nil {
			return errors.Join(fmt.Errorf("restart: frame %d", n), err)
		}
		now := time.Now()
		pauses.Record(now.Sub(before).Nanoseconds())
		before = now
	}
}
