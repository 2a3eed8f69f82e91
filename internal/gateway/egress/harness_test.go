package egress

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// feed is a topic for tests. It is safe for concurrent use.
type feed struct {
	mu     sync.Mutex
	frames [][]byte
	read   int
	err    error // what the next Poll returns
	wake   chan struct{}
}

func newFeed() *feed { return &feed{wake: make(chan struct{}, 1)} }

func (f *feed) publish(payloads ...[]byte) {
	f.mu.Lock()
	f.frames = append(f.frames, payloads...)
	f.mu.Unlock()
	f.ring()
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	f.ring()
}

func (f *feed) ring() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) Poll(limit int, fn func(ring.Frame) error) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for ; n < limit && len(f.frames) > 0; n++ {
		borrowed := append([]byte(nil), f.frames[0]...)
		f.frames = f.frames[1:]
		if err := fn(ring.Frame{Payload: borrowed, Position: ring.Position(f.read * 64)}); err != nil {
			return n, err
		}
		for i := range borrowed { // as the ring does: it is valid for the call only
			borrowed[i] = 0xdb
		}
		f.read++
	}
	if n > 0 {
		return n, nil
	}
	err := f.err
	f.err = nil
	return 0, err
}

func (f *feed) Wait(ctx context.Context) error {
	for {
		f.mu.Lock()
		ready := len(f.frames) > 0 || f.err != nil
		f.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rig is an egress that serves a feed.
type rig struct {
	*Egress
	t      testing.TB
	feed   *feed
	log    *testutil.Log
	cancel context.CancelFunc
	result chan error
	ended  bool
	dials  atomic.Int64
}

func start(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, feed: newFeed(), log: new(testutil.Log), result: make(chan error, 1)}
	cfg := Config{
		Source: r.feed, Listen: "127.0.0.1:0", Topic: "orders", MaxPayload: 1 << 20, Writers: 2,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	e, err := New(t.Context(), cfg)
	check(t, err)
	r.Egress = e
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.result <- e.Serve(ctx) }()
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// stop ends Serve; what is left must be nothing.
func (r *rig) stop() error {
	if r.ended {
		return nil
	}
	r.ended = true
	r.cancel()
	select {
	case err := <-r.result:
		if s := r.Stats(); s.Open != 0 || s.Waiting != 0 || s.Queued != 0 || s.BlockBytes != 0 || r.shared.Torn() != 0 {
			r.t.Errorf("after Serve: %+v, %d torn", s, r.shared.Torn())
		}
		return err
	case <-time.After(2 * time.Minute):
		r.t.Fatal("Serve does not return")
		return nil
	}
}

// dial connects, and waits until the egress serves the connection.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c := r.connect()
	r.settle()
	return c
}

func (r *rig) connect() net.Conn {
	r.t.Helper()
	c, err := net.Dial(r.Addr().Network(), r.Addr().String())
	check(r.t, err)
	r.dials.Add(1)
	r.t.Cleanup(func() { _ = c.Close() })
	check(r.t, c.SetDeadline(time.Now().Add(2*time.Minute)))
	return c
}

// settle waits until every connection that was accepted has ended or gets what is published.
func (r *rig) settle() {
	r.t.Helper()
	testutil.Eventually(r.t, "connections are served", func() bool {
		joined := uint64(0)
		for _, w := range r.writers {
			w.mu.Lock()
			joined += uint64(len(w.clients))
			w.mu.Unlock()
		}
		ended := uint64(0)
		for _, n := range r.ends.All() {
			ended += n
		}
		r.mu.Lock()
		open := uint64(len(r.clients))
		r.mu.Unlock()
		return joined == open && joined+ended >= uint64(r.dials.Load())
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// numbered is payload number n, of size bytes at least.
func numbered(n, size int) []byte {
	b := make([]byte, max(size, 8))
	for i := range b {
		b[i] = byte(n)
	}
	binary.BigEndian.PutUint64(b, uint64(n))
	return b
}

// reader reads len32 frames and gaps.
type frameReader struct{ *bufio.Reader }

func readerOf(r io.Reader) frameReader { return frameReader{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next payload, or what a gap says.
func (r frameReader) next() (payload []byte, gapFrames, gapBytes uint64, err error) {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, 0, 0, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n == codec.GapLength {
		var g [16]byte
		_, err := io.ReadFull(r, g[:])
		return nil, binary.BigEndian.Uint64(g[:]), binary.BigEndian.Uint64(g[8:]), err
	}
	if n > 1<<20 {
		return nil, 0, 0, fmt.Errorf("a length of %d: the stream is torn", n)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return payload, 0, 0, err
}

// wantNumbers reads payloads from up to to.
func (r frameReader) wantNumbers(t testing.TB, from, to, size int) {
	t.Helper()
	for n := from; n < to; n++ {
		p, gap, _, err := r.next()
		if err != nil || gap != 0 || string(p) != string(numbered(n, size)) {
			t.Fatalf("frame %d: %d bytes, gap %d, %v", n, len(p), gap, err)
		}
	}
}
