// Package egress pushes a topic to many clients over TCP or Unix sockets in a program of one's own: what `hugebus
// egress` does as a command.
//
//	out, err := egress.New(ctx, bus, "ticks", egress.Options{}, egress.Config{Listen: "127.0.0.1:7071"})
//	err = out.Serve(ctx) // until ctx ends
package egress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/gateway/egress"
)

// A Config says what to listen on, and how to deal with slow clients. New fills in Source, Topic and MaxPayload.
type Config = egress.Config

// Stats are the figures of an Egress.
type Stats = egress.Stats

// SlowClient is a client that is behind.
type SlowClient = egress.SlowClient

// Options say how the topic is read; see client.SubscriberOptions. The zero value holds publishers back where this
// process is too slow, and never where a client of it is.
type Options = client.SubscriberOptions

// An Egress sends what is published to its clients. It is a Prometheus collector.
type Egress struct {
	*egress.Egress
	sub *client.Subscriber
}

// New subscribes to a topic and listens. Serve it, or Close it.
//
// Errors: those of client.Client.Subscriber, an address in use, or a setting that cannot be; each says what to do.
func New(ctx context.Context, bus *client.Client, topic string, o Options, c Config) (*Egress, error) {
	sub, err := bus.Subscriber(ctx, topic, o)
	if err == nil {
		c.Source, c.Topic = sub, topic
		c.MaxPayload, err = maxPayload(ctx, bus, topic)
	}
	if err != nil {
		if sub != nil {
			err = errors.Join(err, sub.Close())
		}
		if c.Listener != nil {
			err = errors.Join(err, c.Listener.Close())
		}
		return nil, err
	}
	e, err := egress.New(ctx, c)
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return &Egress{e, sub}, nil
}

func maxPayload(ctx context.Context, bus *client.Client, topic string) (int, error) {
	t, err := bus.Topic(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("look at topic %q: %w", topic, err)
	}
	return int(t.MaxPayload), nil
}

// Serve sends until ctx ends; see the package's example. It ends the subscription. After Close it returns an error.
func (e *Egress) Serve(ctx context.Context) error {
	noting, stop := context.WithCancel(ctx)
	var noted sync.WaitGroup
	noted.Go(func() { e.note(noting) })
	err := e.Egress.Serve(ctx)
	stop()
	noted.Wait()
	if errors.Is(err, egress.ErrServed) {
		return err
	}
	return errors.Join(err, e.sub.Close())
}

const (
	// noteEvery is the time between two looks at who is slow, and tellEvery that after which the broker is told again, which may be another one.
	noteEvery = time.Second
	tellEvery = 10 * time.Second
)

// note has `hugebus topic show` name slow clients, until ctx ends.
func (e *Egress) note(ctx context.Context) {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	told, when := "", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text := e.SlowNote(control.MaxNote)
		if text == told && (text == "" || time.Since(when) < tellEvery) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, tellEvery)
		err := e.sub.Note(bounded, text)
		cancel()
		if err == nil {
			told, when = text, time.Now()
		}
		// An error: the broker is away, or too old to know of notes. The log and the figures name them too.
	}
}

// Close frees what an Egress holds that was never served. After Serve it does nothing.
func (e *Egress) Close() error {
	err := e.Egress.Close()
	if closed := e.sub.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}
