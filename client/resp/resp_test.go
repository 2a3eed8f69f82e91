package resp_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/resp"
	"github.com/hugebus/hugebus/internal/bustest"
	"github.com/hugebus/hugebus/internal/keeper/keepertest"
)

func TestMain(m *testing.M) { keepertest.Main(m) }

// TestChannelsAreTopics has frames go both ways between a Redis client and the bus; what cannot be a topic is told so.
func TestChannelsAreTopics(t *testing.T) {
	bus := bustest.Connect(t)
	sub, err := bus.Subscriber(t.Context(), "room", client.SubscriberOptions{})
	bustest.Check(t, err)
	gw, err := resp.New(t.Context(), bus, resp.Options{}, resp.Config{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	bustest.Check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- gw.Serve(ctx) }()
	conn, err := net.Dial("tcp", gw.Addr().String())
	bustest.Check(t, err)
	defer conn.Close()
	bustest.Check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprint(conn, "PUBLISH room hello\r\nSUBSCRIBE a:b\r\nPUBLISH a:b x\r\nSUBSCRIBE room\r\n")
	bustest.Check(t, err)
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
	bustest.Check(t, sub.Wait(t.Context()))
	_, err = sub.Poll(1, func(f client.Frame) error {
		if string(f.Payload) != "hello" {
			t.Errorf("the bus got %q", f.Payload)
		}
		return nil
	})
	bustest.Check(t, err)
	pub, err := bus.Publisher(t.Context(), "room", client.PublisherOptions{})
	bustest.Check(t, err)
	bustest.Check(t, pub.Publish(t.Context(), []byte("world")))
	want("*3", "$7", "message", "$4", "room", "$5", "world")
	stop()
	bustest.Check(t, <-served)
	info, err := bus.Topic(t.Context(), "room")
	bustest.Check(t, err)
	if info.SubscriberCount != 1 || info.PublisherCount != 1 {
		t.Errorf("the gateway has left %d subscribers and %d publishers", info.SubscriberCount-1, info.PublisherCount-1)
	}
	bustest.Check(t, pub.Close())
	bustest.Check(t, sub.Close())
}
