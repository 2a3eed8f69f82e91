package link

import (
	"context"
	"errors"

	"github.com/hugebus/hugebus/client"
)

// Topics of a link over the bus, which must be there before both sides open theirs.
const (
	TopicThere = "there"
	TopicBack  = "back"
)

// busLink is the bus: a lane one way and a subscription the other.
type busLink struct {
	ctx    context.Context
	client *client.Client
	lane   *client.Lane
	sub    *client.Subscriber
	limit  int
	handle func([]byte) error       // of the Receive that runs
	frame  func(client.Frame) error // calls it; made once, since with the collector off whatever a frame allocates is a page to fault in
}

func openBus(s Spec, side Side) (_ Link, err error) {
	how, err := client.ParseWait(s.Wait)
	if err != nil {
		return nil, err
	}
	b := &busLink{ctx: context.Background(), limit: max(s.Limit, 1)}
	b.frame = func(f client.Frame) error { return b.handle(f.Payload) }
	if b.client, err = client.Dial(b.ctx, client.Options{Socket: s.Server, Name: "bench"}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.client.Close())
		}
	}()
	out, in := TopicThere, TopicBack
	if side == Back {
		out, in = in, out
	}
	if b.lane, err = b.client.Lane(b.ctx, out, client.PublisherOptions{Wait: how}); err != nil {
		return nil, err
	}
	if b.sub, err = b.client.Subscriber(b.ctx, in, client.SubscriberOptions{Wait: how}); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *busLink) Send(payload []byte) error { return b.lane.Publish(b.ctx, payload) }

func (b *busLink) Flush() error { return nil }

func (b *busLink) Receive(handle func([]byte) error) error {
	b.handle = handle
	for {
		n, err := b.sub.Poll(b.limit, b.frame)
		if n > 0 || err != nil {
			return err
		}
		if err := b.sub.Wait(b.ctx); err != nil {
			return err
		}
	}
}

func (b *busLink) Close() error { return b.client.Close() }
