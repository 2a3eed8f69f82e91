package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
)

// newBroker serves a broker in this process on a socket of its own until the test ends,
// and returns the socket.
func newBroker(t testing.TB, c broker.Config) string {
	t.Helper()
	if c.Socket == "" {
		c.Socket = filepath.Join(t.TempDir(), "h.sock")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	b, err := broker.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("broker: %v", err)
		}
	})
	return c.Socket
}

func dial(t testing.TB, socket string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Socket: socket, Name: t.Name(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("client: %v", err)
		}
	})
	return c
}

// newTopic is a client with a small topic named t.
func newTopic(t testing.TB, o client.TopicOptions) *client.Client {
	t.Helper()
	if o.Capacity == 0 {
		o.Capacity = 64 << 10
	}
	c := dial(t, newBroker(t, broker.Config{}))
	if _, err := c.CreateTopic(t.Context(), "t", o); err != nil {
		t.Fatal(err)
	}
	return c
}

func publisher(t testing.TB, c *client.Client) *client.Publisher {
	t.Helper()
	p, err := c.Publisher(t.Context(), "t", client.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func subscriber(t testing.TB, c *client.Client, o client.SubscriberOptions) *client.Subscriber {
	t.Helper()
	s, err := c.Subscriber(t.Context(), "t", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// number is a payload of size bytes that begins with n.
func number(n uint64, size int) []byte {
	b := make([]byte, max(size, 8))
	binary.LittleEndian.PutUint64(b, n)
	return b
}

func numberOf(f client.Frame) uint64 { return binary.LittleEndian.Uint64(f.Payload) }

func TestFramesArriveWhileBothSidesWaitForEachOther(t *testing.T) {
	for _, how := range []client.Wait{client.WaitAdaptive, client.WaitSleep, client.WaitYield} {
		t.Run(how.String(), func(t *testing.T) {
			const n = 20000
			c := newTopic(t, client.TopicOptions{Capacity: 4096})
			s := subscriber(t, c, client.SubscriberOptions{Wait: how})
			p, err := c.Publisher(t.Context(), "t", client.PublisherOptions{Wait: how})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				for i := range uint64(n) {
					if err := p.Publish(t.Context(), number(i, int(i%500))); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			next := uint64(0)
			for f, err := range s.Frames(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if got := numberOf(f); got != next || len(f.Payload) != max(int(next%500), 8) {
					t.Fatalf("frame %d of %d bytes, want %d", got, len(f.Payload), next)
				}
				if next++; next == n {
					break
				}
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPublisherIsSafeForConcurrentUse(t *testing.T) {
	const goroutines, each = 8, 2000
	c := newTopic(t, client.TopicOptions{})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	errs := make(chan error, goroutines)
	for g := range uint64(goroutines) {
		go func() {
			errs <- func() error {
				for i := range uint64(each) {
					var err error
					switch b := number(g<<32|i, 16); i % 3 {
					case 0:
						err = p.Publish(t.Context(), b)
					case 1:
						_, err = p.PublishBatch(t.Context(), [][]byte{b})
					default:
						var claim client.Claim
						if claim, err = p.Claim(t.Context(), len(b)); err == nil {
							copy(claim.Payload, b)
							err = claim.Commit()
						}
					}
					if err != nil {
						return fmt.Errorf("frame %d: %w", i, err)
					}
				}
				return nil
			}()
		}()
	}
	var next [goroutines]uint64
	for range goroutines * each {
		f, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g, i := numberOf(f)>>32, numberOf(f)&0xffffffff
		if next[g] != i {
			t.Fatalf("goroutine %d: frame %d, want %d", g, i, next[g])
		}
		next[g]++
	}
	for range goroutines {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func TestTooLargePayloadNamesLimitAndRemedy(t *testing.T) {
	c := newTopic(t, client.TopicOptions{Capacity: 4096})
	p := publisher(t, c)
	want := `client: payload of 1009 bytes is above the maximum of 1008 of topic "t": a topic created with a capacity of 8192 bytes takes it`
	check := func(what string, err error) {
		t.Helper()
		var large *client.TooLargeError
		if !errors.Is(err, client.ErrTooLarge) || !errors.As(err, &large) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	big := make([]byte, 1009)
	check("TryPublish", p.TryPublish(big))
	check("Publish", p.Publish(t.Context(), big))
	n, err := p.PublishBatch(t.Context(), [][]byte{big[:5], big, big[:5]})
	check("PublishBatch", err)
	if n != 1 {
		t.Errorf("PublishBatch published %d before it, want 1", n)
	}
	_, err = p.Claim(t.Context(), 1009)
	check("Claim", err)
	if err := p.TryPublish(big[:1008]); err != nil {
		t.Errorf("a payload of the maximum: %v", err)
	}
}

func TestBackpressureAndContext(t *testing.T) {
	c := newTopic(t, client.TopicOptions{Capacity: 4096})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	for range 64 {
		if err := p.TryPublish(make([]byte, 48)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.TryPublish(nil); !errors.Is(err, client.ErrBackpressure) {
		t.Fatalf("full topic: %v, want ErrBackpressure", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Publish(ctx, []byte("x")) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Publish: %v, want context.Canceled", err)
	}
	go func() { done <- p.Publish(t.Context(), []byte("x")) }()
	if n, err := s.Poll(1, func(client.Frame) error { return nil }); n != 1 || err != nil {
		t.Fatalf("Poll: %d, %v", n, err)
	}
	if err := <-done; err != nil {
		t.Fatalf("Publish after room came: %v", err)
	}
}

func TestCloseEndsThoseWhoWait(t *testing.T) {
	c := newTopic(t, client.TopicOptions{Capacity: 4096})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	for p.TryPublish(make([]byte, 48)) == nil {
	}
	publishing, reading := make(chan error, 1), make(chan error, 1)
	go func() { publishing <- p.Publish(t.Context(), []byte("x")) }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-publishing; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Publish: %v, want os.ErrClosed", err)
	}
	if err := p.TryPublish(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("TryPublish after Close: %v, want os.ErrClosed", err)
	}
	go func() { reading <- s.Run(t.Context(), func(client.Frame) error { return nil }) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-reading; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Run: %v, want os.ErrClosed", err)
	}
	if err := s.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v, want os.ErrClosed", err)
	}
}

func TestClientCloseInsideAHandlerEndsAtTheHandlersEnd(t *testing.T) {
	c := newTopic(t, client.TopicOptions{})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	if err := p.Publish(t.Context(), []byte("payload")); err != nil {
		t.Fatal(err)
	}
	n, err := s.Poll(1, func(f client.Frame) error {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if string(f.Payload) != "payload" { // still mapped
			t.Errorf("payload %q after Close inside the handler", f.Payload)
		}
		return nil
	})
	if n != 1 || err != nil {
		t.Errorf("Poll: %d, %v", n, err)
	}
	if _, err := s.Poll(1, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Poll after Close: %v, want os.ErrClosed", err)
	}
}

func TestRunBatchReadsAllInOrder(t *testing.T) {
	c := newTopic(t, client.TopicOptions{})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	const frames = 5000
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			if err := p.Publish(t.Context(), []byte(strconv.Itoa(i))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	next := 0
	err := s.RunBatch(t.Context(), func(batch []client.Frame) error {
		for _, f := range batch {
			if string(f.Payload) != strconv.Itoa(next) {
				return fmt.Errorf("%q, want %d", f.Payload, next)
			}
			next++
		}
		if next == frames {
			return client.ErrStop
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	refuse := errors.New("refused")
	if err := p.Publish(t.Context(), []byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := s.RunBatch(t.Context(), func([]client.Frame) error { return refuse }); err != refuse {
		t.Errorf("RunBatch: %v, want the handler's error", err)
	}
	if f, err := s.Next(t.Context()); err != nil || string(f.Payload) != "last" {
		t.Errorf("%q, %v: what was refused must come again", f.Payload, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PollBatch(1, nil); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("PollBatch after Close: %d, %v, want os.ErrClosed", n, err)
	}
}

// TestAHandlerThatPanics: who recovers goes on, and the frame comes again.
func TestAHandlerThatPanics(t *testing.T) {
	c := newTopic(t, client.TopicOptions{})
	s := subscriber(t, c, client.SubscriberOptions{})
	g, err := c.Group(t.Context(), "t", "g", client.GroupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher(t, c).Publish(t.Context(), []byte("frame")); err != nil {
		t.Fatal(err)
	}
	one := func(client.Frame) error { panic("handler") }
	for name, call := range map[string]func(){
		"Poll":       func() { _, _ = s.Poll(1, one) },
		"PollBatch":  func() { _, _ = s.PollBatch(1, func([]client.Frame) error { panic("handler") }) },
		"nil":        func() { _, _ = s.Poll(1, nil) },
		"Group.Poll": func() { _, _ = g.Poll(1, one) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
	for name, poll := range map[string]func(int, func(client.Frame) error) (int, error){"Subscriber": s.Poll, "Group": g.Poll} {
		got := ""
		n, err := poll(1, func(f client.Frame) error { got = string(f.Payload); return nil })
		if n != 1 || err != nil || got != "frame" {
			t.Errorf("%s after a panic: %d, %v, %q", name, n, err, got)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestUseFromItsOwnHandlerIsRefused(t *testing.T) {
	c := newTopic(t, client.TopicOptions{})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	if err := p.Publish(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Poll(1, func(client.Frame) error {
		_, err := s.Poll(1, nil)
		return err
	}); !errors.Is(err, client.ErrInUse) {
		t.Errorf("Poll inside Poll: %v, want ErrInUse", err)
	}
	lane, err := p.Lane(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claim, err := lane.TryClaim(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.TryPublish(nil); !errors.Is(err, client.ErrInUse) {
		t.Errorf("TryPublish while a claim is open: %v, want ErrInUse", err)
	}
	if err := lane.Close(); err != nil {
		t.Fatal(err)
	}
	copy(claim.Payload, "0123456789") // still mapped
	if err := claim.Commit(); err != nil {
		t.Errorf("Commit after Close: %v", err)
	}
	if err := claim.Commit(); !errors.Is(err, client.ErrNotClaimed) {
		t.Errorf("second Commit: %v, want ErrNotClaimed", err)
	}
	for _, want := range []string{"", "0123456789"} {
		f, err := s.Next(t.Context())
		if err != nil || string(f.Payload) != want {
			t.Errorf("Next: %q, %v, want %q", f.Payload, err, want)
		}
	}
}

func TestRemovedTopicIsReadToItsEnd(t *testing.T) {
	c := newTopic(t, client.TopicOptions{})
	s := subscriber(t, c, client.SubscriberOptions{})
	p := publisher(t, c)
	for i := range uint64(3) {
		if err := p.Publish(t.Context(), number(i, 8)); err != nil {
			t.Fatal(err)
		}
	}
	reading := make(chan error, 1)
	seen := 0
	go func() { reading <- s.Run(t.Context(), func(client.Frame) error { seen++; return nil }) }()
	if err := c.RemoveTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := <-reading; !errors.Is(err, client.ErrTopicRemoved) {
		t.Errorf("Run: %v, want ErrTopicRemoved", err)
	}
	if seen != 3 {
		t.Errorf("%d frames were read, want 3", seen)
	}
	// The publisher's mapping is another one, and is told just after the subscriber's.
	err := p.TryPublish(nil)
	for err == nil || errors.Is(err, client.ErrBackpressure) {
		err = p.TryPublish(nil)
	}
	if !errors.Is(err, client.ErrTopicRemoved) {
		t.Errorf("TryPublish: %v, want ErrTopicRemoved", err)
	}
}

func TestNothingOfTheHotPathAllocates(t *testing.T) {
	c := newTopic(t, client.TopicOptions{Capacity: 1 << 20})
	s := subscriber(t, c, client.SubscriberOptions{})
	lossy := subscriber(t, c, client.SubscriberOptions{Policy: client.Lossy})
	many := subscriber(t, c, client.SubscriberOptions{})
	g, err := c.Group(t.Context(), "t", "g", client.GroupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := publisher(t, c)
	lane, err := p.Lane(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	payload, batch := make([]byte, 48), [][]byte{make([]byte, 48), make([]byte, 48)}
	sum := 0
	handle := func(f client.Frame) error { sum += len(f.Payload); return nil }
	handleMany := func(frames []client.Frame) error { sum += len(frames); return nil }
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, fn := range map[string]func(){
		"Publisher.TryPublish":     func() { must(p.TryPublish(payload)) },
		"Publisher.Publish":        func() { must(p.Publish(t.Context(), payload)) },
		"Lane.TryPublish":          func() { must(lane.TryPublish(payload)) },
		"Lane.TryPublishBatch":     func() { _, err := lane.TryPublishBatch(batch); must(err) },
		"Lane.TryClaim and Commit": func() { c, err := lane.TryClaim(48); must(err); must(c.Commit()) },
	} {
		if n := testing.AllocsPerRun(100, func() {
			fn()
			for _, poll := range []func(int, func(client.Frame) error) (int, error){s.Poll, lossy.Poll, g.Poll} {
				if n, err := poll(8, handle); n == 0 || err != nil {
					t.Fatalf("Poll: %d, %v", n, err)
				}
			}
			if n, err := many.PollBatch(8, handleMany); n == 0 || err != nil {
				t.Fatalf("PollBatch: %d, %v", n, err)
			}
		}); n != 0 {
			t.Errorf("%s and Poll: %v allocations, want 0", name, n)
		}
	}
	if sum == 0 {
		t.Error("nothing was read")
	}
}
