package link

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisLink is Redis' publish and subscribe: a channel each way. What is sent between two
// flushes goes as one pipeline, whose replies Flush waits for.
type redisLink struct {
	ctx    context.Context
	client *redis.Client
	pipe   redis.Pipeliner
	sub    *redis.PubSub
	out    string
}

func openRedis(s Spec, side Side) (Link, error) {
	in, out := names(s)
	if side == Back {
		in, out = out, in
	}
	l := &redisLink{ctx: context.Background(), out: out}
	l.client = redis.NewClient(&redis.Options{Network: "unix", Addr: s.Server, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	l.sub = l.client.Subscribe(l.ctx, in)
	if _, err := l.sub.Receive(l.ctx); err != nil { // the server's word that it knows
		return nil, errors.Join(err, l.Close())
	}
	l.pipe = l.client.Pipeline()
	return l, nil
}

func (l *redisLink) Send(payload []byte) error {
	// The pipeline keeps what it is given until Flush.
	return l.pipe.Publish(l.ctx, l.out, string(payload)).Err()
}

func (l *redisLink) Flush() error {
	if l.pipe.Len() == 0 {
		return nil
	}
	_, err := l.pipe.Exec(l.ctx)
	return err
}

func (l *redisLink) Receive(handle func([]byte) error) error {
	m, err := l.sub.ReceiveMessage(l.ctx)
	if err != nil {
		return err
	}
	return handle([]byte(m.Payload))
}

func (l *redisLink) Close() error { return errors.Join(l.sub.Close(), l.client.Close()) }
