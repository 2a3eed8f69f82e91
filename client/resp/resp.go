// Package resp lets Redis clients talk to the bus, in a program of one's own: what `hugebus gateway` does as a command.
//
//	gw, err := resp.New(ctx, bus, resp.Options{}, resp.Config{Listen: "127.0.0.1:6379"})
//	err = gw.Serve(ctx) // until ctx ends
package resp

import (
	"context"
	"errors"
	"fmt"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/gateway/resp"
)

// A Config says what to listen on, and within which limits. New fills in Bus.
type Config = resp.Config

// A Server serves Redis clients. It is a Prometheus collector.
type Server = resp.Server

// Stats are the figures of a Server.
type Stats = resp.Stats

// Options say how topics are read; see client.SubscriberOptions. Start is always the latest.
type Options = client.SubscriberOptions

// New listens. Serve the server, or Close it.
//
// Errors: an address in use, or a setting that cannot be; each says what to do.
func New(ctx context.Context, bus *client.Client, o Options, c Config) (*Server, error) {
	o.Start = client.Latest()
	c.Bus = attached{bus, o}
	return resp.New(ctx, c)
}

// attached is a client as the gateway wants it.
type attached struct {
	c *client.Client
	o Options
}

func (a attached) Lane(ctx context.Context, topic string) (resp.Lane, error) {
	if err := control.CheckTopicName(topic); err != nil {
		return nil, fmt.Errorf("%w: %w", resp.ErrNoTopic, err)
	}
	lane, err := a.c.Lane(ctx, topic, client.PublisherOptions{Name: "gateway", Wait: a.o.Wait})
	if err != nil {
		return nil, refused(err) // a nil *Lane in an interface would be none
	}
	return lane, nil
}

func (a attached) Subscribe(ctx context.Context, topic string) (resp.Source, error) {
	if err := control.CheckTopicName(topic); err != nil {
		return nil, fmt.Errorf("%w: %w", resp.ErrNoTopic, err)
	}
	sub, err := a.c.Subscriber(ctx, topic, a.o)
	if err != nil {
		return nil, refused(err)
	}
	return sub, nil
}

// refused marks what the broker's rules forbid as the gateway wants it.
func refused(err error) error {
	if errors.Is(err, client.ErrRefused) {
		return fmt.Errorf("%w: %w", resp.ErrMayNot, err)
	}
	return err
}

func (a attached) Topics(ctx context.Context) ([]string, error) {
	all, err := a.c.Topics(ctx)
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.Name
	}
	return names, err
}
