package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// topic is a bus topic for tests: it keeps what is published, and can be full. It is safe for concurrent use.
type topic struct {
	maxPayload int

	mu      sync.Mutex
	frames  [][]byte
	batches []int // frames in each call that published
	changed chan struct{}
	full    chan struct{} // not nil: publishing waits until it is closed
	blocked int           // calls that wait
	room    int           // with full: frames that one call may still publish before it waits
	opened  int           // lanes
	closed  int
	fail    error // what PublishBatch returns
	over    error // what Err of the lanes returns
}

func newTopic(maxPayload int) *topic {
	return &topic{maxPayload: maxPayload, changed: make(chan struct{})}
}

// lane is a Lane of a topic. It checks that one goroutine at a time uses it, and none after Close.
type lane struct {
	topic  *topic
	inUse  sync.Mutex
	closed bool
}

func (tp *topic) newLane(context.Context) (Lane, error) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.opened++
	return &lane{topic: tp}, nil
}

func (l *lane) Err() error {
	l.topic.mu.Lock()
	defer l.topic.mu.Unlock()
	return l.topic.over
}

func (l *lane) MaxPayload() int { return l.topic.maxPayload }

func (l *lane) Close() error {
	l.topic.mu.Lock()
	defer l.topic.mu.Unlock()
	if l.closed {
		return errors.New("closed twice")
	}
	l.closed = true
	l.topic.closed++
	return nil
}

func (l *lane) PublishBatch(ctx context.Context, payloads [][]byte) (int, error) {
	if !l.inUse.TryLock() {
		panic("two goroutines use one lane")
	}
	defer l.inUse.Unlock()
	tp := l.topic
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if l.closed {
		panic("published on a closed lane")
	}
	if tp.fail != nil {
		return 0, tp.fail
	}
	n := 0
	for tp.full != nil {
		fits := min(tp.room, len(payloads)-n)
		tp.keep(payloads[n : n+fits])
		n, tp.room = n+fits, tp.room-fits
		if n == len(payloads) {
			return n, nil
		}
		full := tp.full
		tp.blocked++
		tp.signal()
		tp.mu.Unlock()
		var err error
		select {
		case <-full:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		tp.mu.Lock()
		tp.blocked--
		if err != nil {
			return n, err
		}
	}
	tp.keep(payloads[n:])
	return len(payloads), nil
}

// keep takes frames. The caller holds mu.
func (tp *topic) keep(payloads [][]byte) {
	for _, p := range payloads {
		if len(p) > tp.maxPayload {
			panic("a frame above the limit")
		}
		tp.frames = append(tp.frames, bytes.Clone(p))
	}
	if len(payloads) > 0 {
		tp.batches = append(tp.batches, len(payloads))
		tp.signal()
	}
}

func (tp *topic) signal() {
	close(tp.changed)
	tp.changed = make(chan struct{})
}

// fill makes the topic full, with room for so many frames more. empty makes room for all.
func (tp *topic) fill(room int) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.full, tp.room = make(chan struct{}), room
}

func (tp *topic) empty() {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	close(tp.full)
	tp.full = nil
}

// await waits until the condition holds; it is looked at under the topic's lock.
func (tp *topic) await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	watchdog := time.After(2 * time.Minute)
	for {
		tp.mu.Lock()
		ok, changed := condition(), tp.changed
		tp.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-watchdog:
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// awaitFrames waits for so many frames and returns all that there are.
func (tp *topic) awaitFrames(t testing.TB, n int) [][]byte {
	t.Helper()
	tp.await(t, "frames published", func() bool { return len(tp.frames) >= n })
	return tp.all()
}

func (tp *topic) awaitBlocked(t testing.TB, n int) {
	t.Helper()
	tp.await(t, "publishers wait for room", func() bool { return tp.blocked == n })
}

func (tp *topic) all() [][]byte {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return slices.Clone(tp.frames)
}

// bench is an ingress that serves, with the topic that it feeds.
type rig struct {
	*Ingress
	t      testing.TB
	topic  *topic
	log    *testutil.Log
	cancel context.CancelFunc
	result chan error
	ended  bool
	err    error
}

// newRig makes an ingress on a free port. The rig is stopped when the test ends, which must go well unless stop was
// called.
func newRig(t testing.TB, tp *topic, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, topic: tp, log: new(testutil.Log)}
	cfg := Config{
		Listen: "127.0.0.1:0", Topic: "orders", NewLane: tp.newLane, Lanes: 2,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	in, err := NewIngress(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Ingress = in
	return r
}

// start makes a rig and lets it serve.
func start(t testing.TB, tp *topic, change func(*Config)) *rig {
	t.Helper()
	r := newRig(t, tp, change)
	r.serve()
	return r
}

func (r *rig) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.result = cancel, make(chan error, 1)
	go func() { r.result <- r.Serve(ctx) }()
	r.t.Cleanup(func() {
		if !r.ended {
			if err := r.stop(); err != nil {
				r.t.Errorf("Serve: %v", err)
			}
		}
		if r.t.Failed() {
			r.t.Logf("log:\n%s", r.log)
		}
	})
}

// stop cancels Serve's context and returns what Serve returns.
func (r *rig) stop() error {
	r.cancel()
	return r.wait()
}

func (r *rig) wait() error {
	r.t.Helper()
	if r.ended {
		return r.err
	}
	select {
	case r.err = <-r.result:
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("Serve does not return; log:\n%s", r.log)
	}
	r.ended = true
	r.cancel()
	if r.topic.opened != r.topic.closed {
		r.t.Errorf("%d lanes opened, %d closed", r.topic.opened, r.topic.closed)
	}
	if s := r.Stats(); s.Open != 0 || s.BuffersInUse != 0 || s.PartialHeld != 0 || s.Waiting != 0 {
		r.t.Errorf("after Serve: %+v", s)
	}
	return r.err
}

// dial connects to the ingress. The connection is closed when the test ends, at the latest.
func (r *rig) dial() *net.TCPConn {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	return nc.(*net.TCPConn)
}

// awaitStats waits until the figures satisfy the condition.
func (r *rig) awaitStats(what string, condition func(Stats) bool) {
	r.t.Helper()
	testutil.Eventually(r.t, what, func() bool { return condition(r.Stats()) })
}

// wantLog checks that one log line has all of these parts.
func (r *rig) wantLog(parts ...string) {
	r.t.Helper()
	for line := range strings.Lines(r.log.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return
		}
	}
	r.t.Errorf("no log line with %q in:\n%s", parts, r.log)
}

func send(t testing.TB, nc net.Conn, b []byte) {
	t.Helper()
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
}

// wantClosed checks that the other side closes the connection.
func wantClosed(t testing.TB, nc net.Conn) {
	t.Helper()
	// A pipe whose other end is closed already takes no deadline, and needs none.
	if err := nc.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read from the ingress = %d, %v; want the end", n, err)
	}
}

func wantFrames(t testing.TB, got [][]byte, want ...string) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(g []byte, w string) bool { return string(g) == w }) {
		t.Errorf("published %.200q, want %.200q", got, want)
	}
}

// len32 returns payloads as a len32 stream.
func len32(payloads ...string) []byte {
	var b []byte
	for _, p := range payloads {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}
