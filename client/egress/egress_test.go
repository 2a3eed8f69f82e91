package egress_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
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

func subscribers(t *testing.T, bus *client.Client) int {
	t.Helper()
	info, err := bus.Topic(t.Context(), "ticks")
	check(t, err)
	return info.SubscriberCount
}

// TestWhatIsPublishedIsSent serves one client, and leaves no subscription behind, whichever way it ends.
func TestWhatIsPublishedIsSent(t *testing.T) {
	bus := connect(t)
	pub, err := bus.Publisher(t.Context(), "ticks", client.PublisherOptions{})
	check(t, err)
	config := egress.Config{Listen: "127.0.0.1:0", Codec: "line", Logger: slog.New(slog.DiscardHandler)}
	unserved, err := egress.New(t.Context(), bus, "ticks", egress.Options{}, config)
	check(t, err)
	if n := subscribers(t, bus); n != 1 {
		t.Errorf("%d subscribers", n)
	}
	check(t, unserved.Close())
	taken := config
	if taken.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	taken.Codec = "none"
	if _, err := egress.New(t.Context(), bus, "ticks", egress.Options{}, taken); err == nil {
		t.Error("a codec that there is not")
	}
	if err := taken.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is left open: %v", err)
	}
	e, err := egress.New(t.Context(), bus, "ticks", egress.Options{}, config)
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	conn, err := net.Dial("tcp", e.Addr().String())
	check(t, err)
	defer conn.Close()
	check(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for e.Stats().Open == 0 {
		time.Sleep(time.Millisecond)
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		lines <- line
	}()
	for got := ""; got == ""; { // the client is served some moment after it was counted
		check(t, pub.Publish(t.Context(), []byte("tick")))
		select {
		case got = <-lines:
			if got != "tick\n" {
				t.Errorf("got %q", got)
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	check(t, <-served)
	if n := subscribers(t, bus); n != 0 {
		t.Errorf("%d subscribers", n)
	}
	check(t, pub.Close())
}
