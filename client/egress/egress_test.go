package egress_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
	"github.com/hugebus/hugebus/internal/bustest"
	"github.com/hugebus/hugebus/internal/keeper/keepertest"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { keepertest.Main(m) }

func subscribers(t *testing.T, bus *client.Client) int {
	t.Helper()
	info, err := bus.Topic(t.Context(), "ticks")
	bustest.Check(t, err)
	return info.SubscriberCount
}

// TestWhatIsPublishedIsSent serves one client, and leaves no subscription behind, whichever way it ends.
func TestWhatIsPublishedIsSent(t *testing.T) {
	bus := bustest.Connect(t)
	pub, err := bus.Publisher(t.Context(), "ticks", client.PublisherOptions{})
	bustest.Check(t, err)
	config := egress.Config{Listen: "127.0.0.1:0", Codec: "line", Logger: slog.New(slog.DiscardHandler)}
	unserved, err := egress.New(t.Context(), bus, "ticks", egress.Options{}, config)
	bustest.Check(t, err)
	if n := subscribers(t, bus); n != 1 {
		t.Errorf("%d subscribers", n)
	}
	bustest.Check(t, unserved.Close())
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
	bustest.Check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	conn, err := net.Dial("tcp", e.Addr().String())
	bustest.Check(t, err)
	defer conn.Close()
	bustest.Check(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for e.Stats().Open == 0 {
		time.Sleep(time.Millisecond)
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		lines <- line
	}()
	for got := ""; got == ""; { // the client is served some moment after it was counted
		bustest.Check(t, pub.Publish(t.Context(), []byte("tick")))
		select {
		case got = <-lines:
			if got != "tick\n" {
				t.Errorf("got %q", got)
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	bustest.Check(t, <-served)
	if n := subscribers(t, bus); n != 0 {
		t.Errorf("%d subscribers", n)
	}
	bustest.Check(t, pub.Close())
}

// TestSlowClientsAreNamedByTheTopic has a client that reads nothing, and asks the broker about the topic.
func TestSlowClientsAreNamedByTheTopic(t *testing.T) {
	bus := bustest.Connect(t)
	pub, err := bus.Publisher(t.Context(), "ticks", client.PublisherOptions{})
	bustest.Check(t, err)
	e, err := egress.New(t.Context(), bus, "ticks", egress.Options{}, egress.Config{Listen: "127.0.0.1:0", MaxLag: 64 << 10, Logger: slog.New(slog.DiscardHandler)})
	bustest.Check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	conn, err := net.Dial("tcp", e.Addr().String())
	bustest.Check(t, err)
	note := func() string {
		info, err := bus.Topic(t.Context(), "ticks")
		bustest.Check(t, err)
		return info.Subscribers[0].Note
	}
	want := "slow: " + conn.LocalAddr().String() + " ("
	testutil.Eventually(t, "the slow client is named", func() bool {
		bustest.Check(t, pub.Publish(t.Context(), make([]byte, 10_000)))
		return e.Stats().Skips > 0 && strings.HasPrefix(note(), want) && strings.Contains(note(), "skipped ")
	})
	bustest.Check(t, conn.Close())
	testutil.Eventually(t, "nobody is slow any more", func() bool {
		bustest.Check(t, pub.Publish(t.Context(), make([]byte, 10)))
		return note() == ""
	})
	stop()
	bustest.Check(t, <-served)
	bustest.Check(t, pub.Close())
}
