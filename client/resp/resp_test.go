package resp_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/resp"
	"github.com/hugebus/hugebus/internal/keeper/keepertest"
)

func TestMain(m *testing.M) { keepertest.Main(m) }

// connect makes a broker in this process, and a client of it.
func connect(t *testing.T) *client.Client {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	b, err := broker.New(broker.Config{Socket: filepath.Join(t.TempDir(), "h.sock"), Logger: quiet, Defaults: broker.TopicOptions{Capacity: 1 << 20}})
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	bus, err := client.Dial(t.Context(), client.Options{Socket: b.Addr(), Logger: quiet})
	check(t, err)
	t.Cleanup(func() {
		check(t, bus.Close())
		stop()
		check(t, <-served)
	})
	return bus
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestChannelsAreTopics has frames go both ways between a Redis client and the bus; what cannot be a topic is told so.
func TestChannelsAreTopics(t *testing.T) {
	bus := connect(t)
	sub, err := bus.Subscriber(t.Context(), "room", client.SubscriberOptions{})
	check(t, err)
	gw, err := resp.New(t.Context(), bus, resp.Options{}, resp.Config{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- gw.Serve(ctx) }()
	conn, err := net.Dial("tcp", gw.Addr().String())
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprint(conn, "PUBLISH room hello\r\nSUBSCRIBE a:b\r\nPUBLISH a:b x\r\nSUBSCRIBE room\r\n")
	check(t, err)
	r := bufio.NewReader(conn)
	want := func(lines ...string) {
		t.Helper()
		for _, l := range lines {
			if got, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(got, l) {
				t.Fatalf("got %q, %v; want %q", got, err, l)
			}
		}
	}
	want(":0", "-ERR channel 'a:b' is no topic", "-ERR channel 'a:b' is no topic", "*3", "$9", "subscribe", "$4", "room", ":1")
	check(t, sub.Wait(t.Context()))
	_, err = sub.Poll(1, func(f client.Frame) error {
		if string(f.Payload) != "hello" {
			t.Errorf("the bus got %q", f.Payload)
		}
		return nil
	})
	check(t, err)
	pub, err := bus.Publisher(t.Context(), "room", client.PublisherOptions{})
	check(t, err)
	check(t, pub.Publish(t.Context(), []byte("world")))
	want("*3", "$7", "message", "$4", "room", "$5", "world")
	stop()
	check(t, <-served)
	info, err := bus.Topic(t.Context(), "room")
	check(t, err)
	if info.SubscriberCount != 1 || info.PublisherCount != 1 {
		t.Errorf("the gateway has left %d subscribers and %d publishers", info.SubscriberCount-1, info.PublisherCount-1)
	}
	check(t, pub.Close())
	check(t, sub.Close())
}
