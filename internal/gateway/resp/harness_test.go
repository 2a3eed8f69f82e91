package resp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// bus is a bus for tests. It is safe for concurrent use.
type bus struct {
	mu     sync.Mutex
	topics map[string][]*source
	open   int
	full   chan struct{} // not nil: publishing waits

	laneErr  error          // of attaching to publish
	lanes    map[string]int // that are open now, by topic
	failures int            // calls to publish that fail after one frame, each for good
	max      int            // bytes of a payload on lanes from now on; 0: 100,000

	stuck, forbidden string        // topics that attaching to never ends, and that nobody may subscribe to
	slow             chan struct{} // not nil: attaching to publish waits for its end
}

func (b *bus) make(topic string) error {
	if topic == "" || strings.ContainsAny(topic, ":/ ") {
		return fmt.Errorf("%w: bad name", ErrNoTopic)
	}
	if _, ok := b.topics[topic]; !ok {
		b.topics[topic] = nil
	}
	return nil
}

func (b *bus) Lane(ctx context.Context, topic string) (Lane, error) {
	if topic == b.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.mu.Lock()
	slow := b.slow
	b.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.make(topic); err != nil {
		return nil, err
	}
	if b.laneErr != nil {
		return nil, b.laneErr
	}
	if b.lanes == nil {
		b.lanes = make(map[string]int)
	}
	b.open++
	b.lanes[topic]++
	return &lane{b: b, topic: topic, max: cmp.Or(b.max, 100_000)}, nil
}

func (b *bus) Subscribe(ctx context.Context, topic string) (Source, error) {
	switch topic {
	case b.stuck:
		<-ctx.Done()
		return nil, ctx.Err()
	case b.forbidden:
		return nil, ErrMayNot
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.make(topic); err != nil {
		return nil, err
	}
	s := &source{b: b, topic: topic, wake: make(chan struct{}, 1)}
	b.topics[topic] = append(b.topics[topic], s)
	b.open++
	return s, nil
}

func (b *bus) Topics(context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name := range b.topics {
		names = append(names, name)
	}
	return names, nil
}

func (b *bus) publish(topic string, payloads ...[]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.topics[topic] {
		for _, p := range payloads {
			s.frames = append(s.frames, slices.Clone(p))
		}
		s.ring()
	}
}

type lane struct {
	b     *bus
	topic string
	max   int
	lost  bool
}

func (l *lane) MaxPayload() int { return l.max }

func (l *lane) PublishBatch(ctx context.Context, payloads [][]byte) (int, error) {
	l.b.mu.Lock()
	full := l.b.full
	if l.b.failures > 0 && !l.lost {
		l.b.failures--
		l.lost = true
	}
	l.b.mu.Unlock()
	if l.lost {
		l.b.publish(l.topic, payloads[:min(1, len(payloads)-1)]...)
		return min(1, len(payloads)-1), errors.New("the attachment was lost")
	}
	if full != nil {
		select {
		case <-full:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	l.b.publish(l.topic, payloads...)
	return len(payloads), nil
}

func (l *lane) Close() error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.b.open--
	l.b.lanes[l.topic]--
	return nil
}

type source struct {
	b      *bus
	topic  string
	frames [][]byte
	err    error
	wake   chan struct{}
}

func (s *source) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *source) Poll(limit int, fn func(ring.Frame) error) (int, error) {
	s.b.mu.Lock()
	frames := s.frames[:min(limit, len(s.frames))]
	s.frames = s.frames[len(frames):]
	err := s.err
	s.err = nil
	s.b.mu.Unlock()
	for _, f := range frames {
		if err := fn(ring.Frame{Payload: f}); err != nil {
			return 0, err
		}
		clear(f) // it is valid for the call only
	}
	return len(frames), err
}

func (s *source) Wait(ctx context.Context) error {
	for {
		s.b.mu.Lock()
		ready := len(s.frames) > 0 || s.err != nil
		s.b.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *source) Close() error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.open--
	s.b.topics[s.topic] = slices.DeleteFunc(s.b.topics[s.topic], func(o *source) bool { return o == s })
	return nil
}

// rig is a server that serves.
type rig struct {
	*Server
	t      testing.TB
	bus    *bus
	log    *testutil.Log
	cancel context.CancelFunc
	result chan error
	ended  bool
}

func start(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, bus: &bus{topics: make(map[string][]*source), stuck: "stuck", forbidden: "forbidden"}, log: new(testutil.Log), result: make(chan error, 1)}
	cfg := Config{
		Bus: r.bus, Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(t.Context(), cfg)
	check(t, err)
	r.Server = s
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.result <- s.Serve(ctx) }()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// stop ends Serve; what is left must be nothing.
func (r *rig) stop() {
	if r.ended {
		return
	}
	r.ended = true
	r.cancel()
	select {
	case err := <-r.result:
		check(r.t, err)
		if s := r.Stats(); s.Open != 0 || s.Waiting != 0 || s.Queued != 0 || s.BlockBytes != 0 || s.PartialBytes != 0 || s.Topics != 0 || s.Channels != 0 || s.Patterns != 0 || r.bus.open != 0 {
			r.t.Errorf("after Serve: %+v, %d attachments", s, r.bus.open)
		}
	case <-time.After(2 * time.Minute):
		r.t.Fatal("Serve does not return")
	}
}

// client is a connection that speaks the protocol's text.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (r *rig) dial() *client {
	r.t.Helper()
	c, err := net.Dial(r.Addr().Network(), r.Addr().String())
	check(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	check(r.t, c.SetDeadline(time.Now().Add(2*time.Minute)))
	return &client{c, r.t, bufio.NewReader(c)}
}

// send sends text in which a line break is one of the protocol's.
func (c *client) send(text string) {
	c.t.Helper()
	if _, err := c.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n"))); err != nil {
		c.t.Fatal(err)
	}
}

// want reads as much as the text has, and compares.
func (c *client) want(text string) {
	c.t.Helper()
	var got []string
	for range strings.Count(text, "\n") {
		line, err := c.r.ReadString('\n')
		got = append(got, strings.ReplaceAll(line, "\r\n", "\n"))
		if err != nil {
			c.t.Fatalf("read %q, then %v; want %q", strings.Join(got, ""), err, text)
		}
	}
	if s := strings.Join(got, ""); s != text {
		c.t.Fatalf("got %q, want %q", s, text)
	}
}

// wantPrefix reads one line that begins like this.
func (c *client) wantPrefix(prefix string) {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		c.t.Fatalf("got %q, %v; want %q", line, err, prefix)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
