package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func TestEveryClientGetsWhatIsPublishedFromItsConnectOn(t *testing.T) {
	r := start(t, nil)
	first := readerOf(r.dial())
	r.feed.publish(numbered(0, 10), numbered(1, 10))
	first.wantNumbers(t, 0, 2, 10)
	second := readerOf(r.dial())
	for n := 2; n < 5000; n++ {
		r.feed.publish(numbered(n, 100))
	}
	first.wantNumbers(t, 2, 5000, 100)
	second.wantNumbers(t, 2, 5000, 100)
	check(t, r.stop())
	if s := r.Stats(); s.Read != 5000 || s.Delivered != 5000+4998 || s.Skips != 0 || s.Unsent != 0 || s.Ends[stopped] != 2 {
		t.Errorf("%+v", s)
	}
}

// TestWhatWaitsForAWriterIsNotForWhoJoinsThen has clients join while a batch is filled.
func TestWhatWaitsForAWriterIsNotForWhoJoinsThen(t *testing.T) {
	for _, history := range []int{0, 1 << 20} {
		t.Run(fmt.Sprint("history ", history), func(t *testing.T) {
			framing, err := codec.Lookup("len32")
			check(t, err)
			e := &Egress{cfg: Config{History: history}}
			e.shared.MaxLag = 1 << 20
			w, tape := newWriter(e), outbox.NewTape(&e.shared.Blocks)
			feed := func(n int) {
				s, err := tape.Append(64, func(dst []byte) ([]byte, error) { return framing.Append(dst, numbered(n, 10)) })
				check(t, err)
				w.feed(s, 1)
				s.Drop()
			}
			var peers []net.Conn
			for n := range 3 { // client n joins when n frames wait
				conn, peer := testutil.Conns(t)
				out, err := outbox.New(&e.shared, conn, func() {})
				check(t, err)
				t.Cleanup(func() { out.Close(); e.shared.Join() })
				c := &client{e: e, conn: conn}
				c.out.Store(out)
				w.join(c, out)
				peers = append(peers, peer)
				feed(n)
			}
			tape.Close()
			w.finish()
			w.run()
			for n, peer := range peers {
				from := n
				if history > 0 {
					from = 0
				}
				readerOf(peer).wantNumbers(t, from, 3, 10)
			}
			want := uint64(3 + 2 + 1)
			if history > 0 {
				want = 3 * 3
			}
			if got := w.frames.Load(); got != want {
				t.Errorf("%d frames were delivered, not %d", got, want)
			}
		})
	}
}

func TestFiguresAddUp(t *testing.T) {
	r := start(t, func(c *Config) { c.Writers = 1 })
	c := readerOf(r.dial())
	for n := range 100 {
		r.feed.publish(numbered(n, 16))
	}
	c.wantNumbers(t, 0, 100, 16)
	testutil.Eventually(t, "it is counted", func() bool { return r.Stats().Delivered == 100 })
	registry := prometheus.NewPedanticRegistry()
	check(t, registry.Register(r.Egress))
	families, err := registry.Gather()
	check(t, err)
	s, seen := r.Stats(), 0
	for _, f := range families {
		m := f.GetMetric()[0]
		switch f.GetName() {
		case "hugebus_egress_deliveries_total":
			seen++
			if m.GetCounter().GetValue() != 100 {
				t.Errorf("%v deliveries", m)
			}
		case "hugebus_egress_batch_frames":
			seen++
			if h := m.GetHistogram(); h.GetSampleSum() != 100 || h.GetSampleCount() != s.Batches {
				t.Errorf("%d batches: %v", s.Batches, h)
			}
		case "hugebus_egress_batch_send_seconds":
			seen++
			if h := m.GetHistogram(); h.GetSampleSum() <= 0 || h.GetSampleCount() != s.Batches {
				t.Errorf("%d batches: %v", s.Batches, h)
			}
		case "hugebus_egress_listen_queue_limit":
			seen++
			if m.GetGauge().GetValue() < 1 {
				t.Errorf("%v", m)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d of the figures are there", seen)
	}
}

func TestOneWriteForManyFrames(t *testing.T) {
	const frames = 10_000
	r := start(t, func(c *Config) { c.Linger = 20 * time.Millisecond; c.Writers = 1 })
	c := readerOf(r.dial())
	for n := range frames {
		r.feed.publish(numbered(n, 16))
	}
	c.wantNumbers(t, 0, frames, 16)
	check(t, r.stop())
	// 200 kB: what goes at once is bounded by the backlog, and a full socket costs two more calls.
	if s := r.Stats(); s.Writes > frames/50 {
		t.Errorf("%d writes for %d frames", s.Writes, frames)
	}
}

func TestLines(t *testing.T) {
	r := start(t, func(c *Config) { c.Codec = "line"; c.MaxLag = 1000 })
	c := bufio.NewReader(r.dial())
	r.feed.publish([]byte("one"), []byte("two\nlines"), nil, []byte("three"))
	for _, want := range []string{"one\n", "\n", "three\n"} {
		if got, err := c.ReadString('\n'); got != want || err != nil {
			t.Errorf("line %q, %v; want %q", got, err, want)
		}
	}
	r.feed.fail(&ring.GapError{From: 64, To: 192})
	if got, err := c.ReadString('\n'); got != "!gap frames=0 bytes=128\n" || err != nil {
		t.Errorf("gap %q, %v", got, err)
	}
	r.feed.fail(ring.ErrEvicted)
	r.feed.publish([]byte("on"))
	if got, err := c.ReadString('\n'); got != "on\n" || err != nil {
		t.Errorf("after the eviction %q, %v", got, err)
	}
	if s := r.Stats(); s.Unsendable != 1 || s.Missed != 128 {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{"reason=unsendable", "len32", "reason=evicted", "reason=missed"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
}

func TestHistoryComesFirst(t *testing.T) {
	r := start(t, func(c *Config) { c.History = 1 << 10; c.Writers = 1 })
	early := readerOf(r.dial())
	for n := range 100 {
		r.feed.publish(numbered(n, 60))
		early.wantNumbers(t, n, n+1, 60) // each is a batch of its own
	}
	late := readerOf(r.dial())
	late.wantNumbers(t, 100-1024/64, 100, 60)
	r.feed.publish(numbered(100, 60))
	late.wantNumbers(t, 100, 101, 60)
}

func TestUnixSocket(t *testing.T) {
	r := start(t, func(c *Config) { c.Listen = "unix://" + filepath.Join(t.TempDir(), "s") })
	c := readerOf(r.dial())
	r.feed.publish(numbered(1, 8))
	c.wantNumbers(t, 1, 2, 8)
}

// TestSlowClientIsSkippedForward has a client that does not read, beside one that does: it costs no memory beyond the bound,
// and then gets whole frames and true gaps.
func TestSlowClientIsSkippedForward(t *testing.T) {
	const lag, frames, size = 64 << 10, 15_000, 500
	r := start(t, func(c *Config) { c.MaxLag = lag; c.Socket.SendBuffer = 8 << 10 })
	slow, quick := r.dial(), readerOf(r.dial())
	for n := range frames {
		r.feed.publish(numbered(n, size))
		if n%50 == 49 {
			quick.wantNumbers(t, n-49, n+1, size)
			// What is sent at once waits as a whole before the bound cuts it down.
			if s := r.Stats(); s.Queued > lag+2*maxBacklog || s.BlockBytes > 8*lag+int64(maxBacklog)*4 {
				t.Fatalf("after %d frames: %+v", n, s)
			}
		}
	}
	if slowest := r.Slowest(5); len(slowest) != 1 || slowest[0].Peer != slow.LocalAddr().String() || slowest[0].Skips == 0 || slowest[0].Lag > lag+1000 {
		t.Errorf("slowest: %+v", slowest)
	}
	r.cancel() // it drains
	next, missing := 0, uint64(0)
	for reader := readerOf(slow); ; {
		p, gap, bytes, err := reader.next()
		if err != nil {
			break
		}
		if gap > 0 {
			if bytes != gap*(size+4) {
				t.Fatalf("a gap of %d frames and %d bytes", gap, bytes)
			}
			next += int(gap)
			missing += gap
			continue
		}
		if string(p) != string(numbered(next, size)) {
			t.Fatalf("frame %x, want %d", p[:8], next)
		}
		next++
	}
	check(t, r.stop())
	s := r.Stats()
	if next != frames || missing != s.SkippedFrames || s.Skips == 0 || s.SkippedBytes != missing*(size+4) {
		t.Errorf("%d of %d frames, %d of them missing; %+v", next, frames, missing, s)
	}
	if want := "peer=" + slow.LocalAddr().String(); !strings.Contains(r.log.String(), "slow client skipped forward") || !strings.Contains(r.log.String(), want) {
		t.Errorf("the slow client is not named")
	}
}

func TestSlowClientIsClosed(t *testing.T) {
	r := start(t, func(c *Config) { c.MaxLag, c.CloseSlow = 64<<10, true; c.Socket.SendBuffer = 8 << 10 })
	slow, quick := r.dial(), readerOf(r.dial())
	n := 0
	testutil.Eventually(t, "the slow client is closed", func() bool {
		r.feed.publish(numbered(n, 10_000))
		quick.wantNumbers(t, n, n+1, 10_000)
		n++
		return r.Stats().Ends[tooSlow] == 1
	})
	if _, err := io.Copy(io.Discard, slow); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the slow client reads %v", err)
	}
	if log := r.log.String(); !strings.Contains(log, "slow client closed") || !strings.Contains(log, "--max-lag") || !strings.Contains(log, slow.LocalAddr().String()) {
		t.Error("it is not named")
	}
}

func TestWriteTimeout(t *testing.T) {
	r := start(t, func(c *Config) {
		c.WriteTimeout = 50 * time.Millisecond
		c.Socket.SendBuffer = 8 << 10
		c.DrainTimeout = -1
	})
	r.dial()
	for n := range 200 {
		r.feed.publish(numbered(n, 100_000))
	}
	testutil.Eventually(t, "the client is closed", func() bool { return r.Stats().Ends[writeTimeout] == 1 })
	if !strings.Contains(r.log.String(), "--write-timeout 50ms") {
		t.Error("the log does not name the flag")
	}
}

// TestStreamsStayWhole has many clients that read as they like, while frames of all sizes come.
func TestStreamsStayWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(uint64(testutil.Seed(t)), 0))
	const clients, frames = 12, 1500
	r := start(t, func(c *Config) {
		c.MaxLag = 128 << 10
		c.Socket.SendBuffer = 4 << 10
		c.DrainTimeout = time.Minute
	})
	sizes := make([]int, frames)
	for i := range sizes {
		sizes[i] = 8 + rng.IntN(300)
		if rng.IntN(100) == 0 {
			sizes[i] = rng.IntN(300_000)
		}
	}
	var reading sync.WaitGroup
	for id := range clients {
		c := r.connect()
		check(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		lazy := rand.New(rand.NewPCG(rng.Uint64(), uint64(id)))
		reading.Go(func() {
			if err := readAll(readerOf(&stutter{c, lazy}), sizes); err != nil {
				t.Errorf("client %d: %v", id, err)
			}
		})
	}
	r.settle()
	for n, size := range sizes {
		r.feed.publish(numbered(n, size))
	}
	testutil.Eventually(t, "all is read", func() bool { return r.Stats().Read == frames })
	r.cancel()
	reading.Wait()
}

// stutter reads a little now and then.
type stutter struct {
	net.Conn
	rng *rand.Rand
}

func (s *stutter) Read(b []byte) (int, error) {
	if s.rng.IntN(3) == 0 {
		time.Sleep(time.Duration(s.rng.IntN(2000)) * time.Microsecond)
	}
	return s.Conn.Read(b[:min(len(b), 1+s.rng.IntN(8<<10))])
}

// readAll reads a stream to its end, and checks that frames and gaps make up all of it.
func readAll(r frameReader, sizes []int) error {
	next := 0
	for {
		p, gap, bytes, err := r.next()
		switch {
		case err == io.EOF && next == len(sizes):
			return nil
		case err != nil:
			return fmt.Errorf("behind %d of %d frames: %w", next, len(sizes), err)
		case gap > 0:
			for range gap {
				bytes -= uint64(4 + max(sizes[next], 8))
				next++
			}
			if bytes != 0 {
				return fmt.Errorf("the gap before %d is wrong by %d bytes", next, int64(bytes))
			}
			continue
		}
		if next == len(sizes) || string(p) != string(numbered(next, sizes[next])) {
			return fmt.Errorf("frame %d is wrong", next)
		}
		next++
	}
}

func TestGoneClientsAreLet(t *testing.T) {
	r := start(t, nil)
	reset, half, gone := r.dial().(*net.TCPConn), r.dial().(*net.TCPConn), r.dial()
	stays := readerOf(r.dial())
	check(t, reset.SetLinger(0))
	check(t, reset.Close())
	check(t, half.CloseWrite())
	check(t, gone.Close())
	testutil.Eventually(t, "three have gone", func() bool { return r.Stats().Open == 1 })
	if _, err := half.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a client that closed its side reads %v", err)
	}
	r.feed.publish(numbered(0, 8))
	stays.wantNumbers(t, 0, 1, 8)
}

func TestLimitOnConnections(t *testing.T) {
	r := start(t, func(c *Config) { c.MaxConns = 1 })
	stays := r.dial()
	_, err := r.connect().Read(make([]byte, 1))
	if err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("one too many reads %v", err)
	}
	r.feed.publish(numbered(0, 8))
	readerOf(stays).wantNumbers(t, 0, 1, 8)
	if s := r.Stats(); s.Ends[refused] != 1 || !strings.Contains(r.log.String(), "--max-conns") {
		t.Errorf("%+v", s)
	}
}

func TestFailureOfTheSourceEndsServe(t *testing.T) {
	r := start(t, nil)
	c := readerOf(r.dial())
	r.feed.publish(numbered(0, 8))
	boom := errors.New("boom")
	r.feed.fail(boom)
	c.wantNumbers(t, 0, 1, 8)
	if err := <-r.result; !errors.Is(err, boom) {
		t.Errorf("Serve: %v", err)
	}
	r.ended = true
	if err := r.Serve(t.Context()); err != ErrServed {
		t.Errorf("again: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	good := Config{Source: newFeed(), Listen: "127.0.0.1:0", MaxPayload: 100}
	for want, change := range map[string]func(*Config){
		"no Source":      func(c *Config) { c.Source = nil },
		"no address":     func(c *Config) { c.Listen = "" },
		"len32":          func(c *Config) { c.Codec = "x" },
		"MaxPayload":     func(c *Config) { c.MaxPayload = 0 },
		"--max-lag":      func(c *Config) { c.MaxLag = -1 },
		"history":        func(c *Config) { c.History = 1 << 30 },
		"--linger":       func(c *Config) { c.Linger = -1 },
		"writers":        func(c *Config) { c.Writers = -1 },
		"--recv-buffer":  func(c *Config) { c.Socket.RecvBuffer = -1 },
		"give HOST:PORT": func(c *Config) { c.Listen = "x" },
	} {
		c := good
		change(&c)
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	e, err := New(t.Context(), good)
	check(t, err)
	check(t, e.Close())
	check(t, e.Close())
}
