package resp

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hugebus/hugebus/internal/testutil"
)

// TestGoRedis has the cases of go-redis's own tests of Pub/Sub: publish, pattern, ping, unsubscribe, and subscribing again
// after the connection broke.
func TestGoRedis(t *testing.T) {
	logging.Disable()
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			r := start(t, shared)
			c := redis.NewClient(&redis.Options{Addr: r.Addr().String(), Protocol: proto})
			defer c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			goRedisPubSub(ctx, t, r, c)
		})
	}
}

func goRedisPubSub(ctx context.Context, t *testing.T, r *rig, c *redis.Client) {
	sub := c.Subscribe(ctx, "room")
	defer sub.Close()
	check(t, sub.PSubscribe(ctx, "news.*"))
	for i := range 2 {
		if m, err := sub.Receive(ctx); err != nil || m.(*redis.Subscription).Count != i+1 {
			t.Fatalf("subscription %d: %v, %v", i, m, err)
		}
	}
	check(t, sub.Ping(ctx, "hi"))
	if m, err := sub.Receive(ctx); err != nil || m.(*redis.Pong).Payload != "hi" {
		t.Fatalf("ping: %v, %v", m, err)
	}
	if n, err := c.Publish(ctx, "room", "hello").Result(); err != nil || n != 1 {
		t.Fatalf("publish: %d, %v", n, err)
	}
	wantMessage(ctx, t, sub, "", "room", "hello")
	pipe := c.Pipeline()
	for i := range 100 {
		pipe.Publish(ctx, fmt.Sprint("news.", i), i)
	}
	_, err := pipe.Exec(ctx)
	check(t, err)
	for i := range 100 {
		wantMessage(ctx, t, sub, "news.*", fmt.Sprint("news.", i), fmt.Sprint(i))
	}
	if got, err := c.PubSubChannels(ctx, "*").Result(); err != nil || fmt.Sprint(got) != "[room]" {
		t.Errorf("channels %v, %v", got, err)
	}
	if got, err := c.PubSubNumSub(ctx, "room", "x").Result(); err != nil || got["room"] != 1 || got["x"] != 0 {
		t.Errorf("numsub %v, %v", got, err)
	}
	if got, err := c.PubSubNumPat(ctx).Result(); err != nil || got != 1 {
		t.Errorf("numpat %v, %v", got, err)
	}
	// Every connection breaks; the client subscribes again by itself. (A message for a connection that has broken already is lost, as it
	// is with Redis: so wait until all have ended here.)
	r.mu.Lock()
	broken := uint64(len(r.conns))
	for conn := range r.conns {
		_ = conn.nc.Close()
	}
	r.mu.Unlock()
	messages := sub.Channel()
	testutil.Eventually(t, "it subscribes again", func() bool {
		s := r.Stats()
		return s.Ends[brokenConn] >= broken && s.Channels == 1 && s.Patterns == 1
	})
	testutil.Eventually(t, "it can publish again", func() bool {
		n, err := c.Publish(ctx, "room", "again").Result()
		return err == nil && n == 1
	})
	select {
	case m := <-messages:
		if m.Payload != "again" {
			t.Errorf("after the break: %v", m)
		}
	case <-ctx.Done():
		t.Fatal("no message after the break")
	}
	check(t, sub.Unsubscribe(ctx, "room"))
	testutil.Eventually(t, "it has left", func() bool { return r.Stats().Channels == 0 })
}

func wantMessage(ctx context.Context, t *testing.T, sub *redis.PubSub, pattern, channel, payload string) {
	t.Helper()
	m, err := sub.ReceiveMessage(ctx)
	if err != nil || m.Pattern != pattern || m.Channel != channel || m.Payload != payload {
		t.Fatalf("got %v, %v; want %s in %s", m, err, payload, channel)
	}
}
