package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// socketPath is a path for a socket, short enough.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// runBroker serves a broker until the test ends, or until stop is called.
func runBroker(t testing.TB, c broker.Config) (socket string, stop func()) {
	t.Helper()
	c.Socket, c.Logger = socketPath(t), quiet
	c.Defaults = TopicOptions{Capacity: 4096, Pages: "4KiB"}
	b, err := broker.New(c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- b.Serve(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("broker: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return c.Socket, stop
}

// connectTo dials, and closes when the test ends.
func connectTo(t testing.TB, socket string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), Options{Socket: socket, Name: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// fakeBroker accepts one client, answers its hello with mine, and runs a script. The
// connection is closed when the script ends.
func fakeBroker(t testing.TB, mine control.Hello, script func(*control.Conn)) (socket string) {
	t.Helper()
	socket = socketPath(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.Close()
		s, err := l.AcceptUnix()
		if err != nil {
			return // the test ended before
		}
		conn := control.NewConn(s, control.MaxRequest)
		defer conn.Close()
		_, id, err := conn.AwaitHello(mine)
		var refused *control.Error
		if errors.As(err, &refused) {
			err = conn.RefuseHello(id, mine, refused)
		} else if err == nil {
			err = conn.AcceptHello(id, mine)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("hello: %v", err)
			return
		}
		script(conn)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return socket
}

// next is the next request that a fake broker gets.
func next(t testing.TB, conn *control.Conn, want control.Op) control.Request {
	p, err := conn.Receive()
	if err != nil {
		t.Errorf("waiting for %s: %v", want, err)
		return control.Request{}
	}
	r, err := control.DecodeRequest(p.Data)
	if err != nil || r.Op != want {
		t.Errorf("request %+v, %v, want %s", r, err, want)
	}
	return r
}

// reply answers a request of a fake broker.
func reply(t testing.TB, conn *control.Conn, r control.Request, body any, files ...*os.File) {
	raw, err := control.EncodeBody(body)
	if err == nil {
		err = conn.Send(control.Message{ID: r.ID, Body: raw}, files...)
	}
	if err != nil {
		t.Errorf("reply: %v", err)
	}
}

func TestDialWithoutABroker(t *testing.T) {
	_, err := Dial(t.Context(), Options{Socket: socketPath(t)})
	if !errors.Is(err, ErrBrokerUnavailable) || !strings.Contains(err.Error(), "hugebus broker") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no broker: %v", err)
	}
	_, err = Dial(t.Context(), Options{Socket: "/" + strings.Repeat("x", 200)})
	if err == nil || errors.Is(err, ErrBrokerUnavailable) || !strings.Contains(err.Error(), "limit of 107") {
		t.Errorf("path too long: %v", err)
	}
	_, err = Dial(t.Context(), Options{Socket: socketPath(t), Name: "a\x00"})
	if err == nil || errors.Is(err, ErrBrokerUnavailable) || !strings.Contains(err.Error(), "printable") {
		t.Errorf("bad name: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, Options{Socket: socketPath(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("context: %v", err)
	}
}

func TestDialGivesUpOnASilentBrokerWithItsContext(t *testing.T) {
	socket := socketPath(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := Dial(ctx, Options{Socket: socket}); !errors.Is(err, context.Canceled) {
		t.Errorf("silent broker: %v", err)
	}
}

func TestDialOfAnotherReleaseNamesBothVersions(t *testing.T) {
	mine := control.NewHello(ring.LayoutVersion)
	mine.Protocol += 5
	mine.Software = "hugebus v9"
	socket := fakeBroker(t, mine, func(*control.Conn) {})
	_, err := Dial(t.Context(), Options{Socket: socket})
	if !errors.Is(err, ErrVersion) || errors.Is(err, ErrBrokerUnavailable) {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{"hugebus v9", fmt.Sprintf("protocol %d", mine.Protocol), fmt.Sprintf("protocol %d", control.ProtocolVersion), "upgrade the client"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestErrorsOfTheBrokerCanBeTold(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{Quotas: broker.Quotas{Limits: broker.Limits{Topics: 1}}, OnDemand: broker.OnDemand{Disabled: true}})
	c := connectTo(t, socket)
	if _, err := c.CreateTopic(t.Context(), "a", TopicOptions{Publishers: 1}); err != nil {
		t.Fatal(err)
	}
	_, exists := c.CreateTopic(t.Context(), "a", TopicOptions{})
	_, invalid := c.CreateTopic(t.Context(), "a b", TopicOptions{})
	_, quota := c.CreateTopic(t.Context(), "b", TopicOptions{})
	_, missing := c.Topic(t.Context(), "b")
	attach := attachOptions{kind: control.KindPublisher, topic: "a"}
	a, err := c.attach(t.Context(), attach)
	if err != nil {
		t.Fatal(err)
	}
	defer a.release()
	_, full := c.attach(t.Context(), attach)
	for _, e := range []struct{ got, want error }{{exists, ErrTopicExists}, {invalid, ErrInvalid}, {quota, ErrQuota}, {missing, ErrNotFound}, {full, ErrNoSlot}} {
		if !errors.Is(e.got, e.want) || errors.Is(e.got, ErrVersion) {
			t.Errorf("error is %v", e.got)
		}
	}
}

func TestTopicsComeInPages(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	const n = 250
	for i := range n {
		if _, err := c.CreateTopic(t.Context(), fmt.Sprintf("t%03d", i), TopicOptions{Publishers: 1, Subscribers: 1, Groups: 1}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Topics(t.Context())
	if err != nil || len(all) != n {
		t.Fatalf("%d topics, %v", len(all), err)
	}
	for i, topic := range all {
		if topic.Name != fmt.Sprintf("t%03d", i) || topic.Publishers != nil {
			t.Fatalf("topic %d: %+v", i, topic)
		}
	}
	if err := c.RemoveTopic(t.Context(), "t007"); err != nil {
		t.Fatal(err)
	}
	if all, err = c.Topics(t.Context()); err != nil || len(all) != n-1 {
		t.Errorf("%d topics, %v", len(all), err)
	}
	if _, err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestShowComesInPages(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	if _, err := c.CreateTopic(t.Context(), "wide", TopicOptions{Publishers: 300, Subscribers: 300}); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		for _, o := range []attachOptions{{kind: control.KindPublisher}, {kind: control.KindSubscriber, policy: ring.Lossy}} {
			o.topic, o.name = "wide", strings.Repeat("n", 128)
			a, err := c.attach(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer a.release()
		}
	}
	for _, show := range []func(context.Context, string) (TopicInfo, error){c.Topic, c.TopicRates} {
		info, err := show(t.Context(), "wide")
		if err != nil || len(info.Publishers) != 300 || len(info.Subscribers) != 300 || info.Groups == nil {
			t.Errorf("%d publishers, %d subscribers, %v", len(info.Publishers), len(info.Subscribers), err)
		}
	}
}

func TestBrokerThatTalksNonsense(t *testing.T) {
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(conn *control.Conn) {
		next(t, conn, control.OpPing)
		// Unknown events and replies that nobody waits for are passed over.
		for _, m := range []control.Message{{Event: "new_moon"}, {Event: control.EventTopicRemoved}, {Event: control.EventShutdown}, {ID: 999}, {Error: control.Errorf(control.CodeMalformed, "what?")}} {
			if err := conn.Send(m); err != nil {
				t.Error(err)
			}
		}
		if err := conn.Send("nonsense"); err != nil {
			t.Error(err)
		}
		// The client does not read on, but its socket stays open until it is closed.
		if _, err := conn.Receive(); err != io.EOF {
			t.Errorf("the client's connection ended with %v", err)
		}
	})
	c := connectTo(t, socket)
	if _, err := c.Ping(t.Context()); !errors.Is(err, ErrBrokerUnavailable) || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("ping: %v", err)
	}
	if _, err := c.Ping(t.Context()); !errors.Is(err, ErrBrokerUnavailable) {
		t.Errorf("another ping: %v", err)
	}
}

func TestEachRequestGetsItsOwnReply(t *testing.T) {
	const n = 20
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(conn *control.Conn) {
		var requests []control.Request
		for range n {
			requests = append(requests, next(t, conn, control.OpShow))
		}
		for i := range requests { // the last one first
			r := requests[n-1-i]
			var ask control.ShowRequest
			if err := control.DecodeBody(r, &ask); err != nil {
				t.Error(err)
			}
			reply(t, conn, r, control.TopicReply{Topic: TopicInfo{Name: ask.Name}})
		}
		_, _ = conn.Receive()
	})
	c := connectTo(t, socket)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			name := fmt.Sprint(i)
			if info, err := c.Topic(t.Context(), name); err != nil || info.Name != name {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
		})
	}
	all.Wait()
}

// TestABrokerThatStopsIsAwayAlready: what it refuses for that reason is for the next one, as if it had gone before.
func TestABrokerThatStopsIsAwayAlready(t *testing.T) {
	asked := make(chan struct{})
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(conn *control.Conn) {
		r := next(t, conn, control.OpUnstick)
		if err := conn.Send(control.Message{ID: r.ID, Error: control.Errorf(control.CodeShutdown, "the broker stops")}); err != nil {
			t.Error(err)
		}
		<-asked
	})
	c := connectTo(t, socket)
	if _, err := c.Unstick(t.Context(), "t", UnstickOptions{}); !errors.Is(err, ErrBrokerUnavailable) || !strings.Contains(err.Error(), "the broker stops") {
		t.Errorf("a request that it refuses: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Ping(ctx); !errors.Is(err, ErrBrokerUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request that waits for the next one: %v", err)
	}
	close(asked)
}
