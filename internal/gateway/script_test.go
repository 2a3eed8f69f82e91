package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// script is a source whose bytes come in given segments, one for each call of step, and then end as end says (io.EOF if it
// is nil).
type script struct {
	segments [][]byte
	end      error
	now      []byte // can be read now
	done     bool   // and then comes the end
	closed   bool
	before   func(sent int) // called before each step

	deadline time.Time
}

func (s *script) run(step func() bool) error {
	sent := 0
	for {
		if len(s.segments) > 0 {
			s.now = append(s.now, s.segments[0]...)
			sent += len(s.segments[0])
			s.segments = s.segments[1:]
		} else {
			s.done = true
		}
		if s.before != nil {
			s.before(sent)
		}
		if step() {
			return nil
		}
		if len(s.now) > 0 {
			return fmt.Errorf("step left %d bytes", len(s.now))
		}
		if s.done {
			return os.ErrDeadlineExceeded
		}
	}
}

func (s *script) read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errors.New("read into nothing")
	}
	n := copy(b, s.now)
	s.now = s.now[n:]
	switch {
	case n > 0:
		return n, nil
	case !s.done:
		return 0, unix.EAGAIN
	case s.end != nil:
		return 0, s.end
	}
	return 0, io.EOF
}

func (s *script) begin() error { return nil }

func (s *script) seal() {}

func (s *script) unread() int { return len(s.now) }

func (s *script) atEOF() bool { return len(s.now) == 0 && s.done && s.end == nil }

func (s *script) setDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *script) name() string { return "script" }

func (s *script) close() error { s.closed = true; return nil }

// nowhere is a listener to which nobody connects.
type nowhere struct{}

func (nowhere) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (nowhere) Close() error              { return nil }
func (nowhere) Addr() net.Addr            { return &net.UnixAddr{Name: "nowhere", Net: "unix"} }

// unitIngress makes an ingress whose connections a test makes and serves itself.
func unitIngress(t testing.TB, change func(*Config)) *Ingress {
	t.Helper()
	cfg := Config{Listener: nowhere{}, Lanes: 1, Logger: slog.New(slog.DiscardHandler)}
	change(&cfg)
	in, err := NewIngress(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

// pour sends a stream through a connection in the given segments and returns what is published, and the connection.
// Whenever it looks, the memory held is at most twice what came and is not whole yet, however large a frame was
// announced.
func pour(t testing.TB, in *Ingress, tp *topic, stream []byte, segments []int, fatalf func(string, ...any)) ([][]byte, *conn) {
	src := new(script)
	for len(stream) > 0 {
		n := len(stream)
		if len(segments) > 0 {
			n, segments = min(segments[0], n), segments[1:]
		}
		src.segments = append(src.segments, stream[:n])
		stream = stream[n:]
	}
	tp.frames = nil
	c := newConn(in, src)
	src.before = func(int) {
		most := int64(2 * (c.bytes.len() + 1))
		if c.bytes.len() == 0 {
			most = 0
		}
		if held := in.chunks.held.Load(); held > max(most, minChunk) || (most == 0 && held != 0) {
			fatalf("%d bytes are held for %d that came", held, c.bytes.len())
		}
		if n := in.workers.inUse(); n != 0 {
			fatalf("%d buffers are in use between turns", n)
		}
	}
	c.serve()
	if !src.closed || in.chunks.held.Load() != 0 || in.workers.inUse() != 0 {
		fatalf("closed %t, %d bytes held, %d buffers in use", src.closed, in.chunks.held.Load(), in.workers.inUse())
	}
	return tp.frames, c
}

// TestAnySegmentationGivesTheSameFrames also varies what decides how bytes are held: buffer, budget, batch.
func TestAnySegmentationGivesTheSameFrames(t *testing.T) {
	for _, name := range codec.Names() {
		framing, err := codec.Lookup(name)
		check(t, err)
		rapid.Check(t, func(rt *rapid.T) {
			size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 20_000), rapid.IntRange(4000, 4200))
			sizes := rapid.SliceOfN(size, 0, 12).Draw(rt, "sizes")
			var want [][]byte
			var stream []byte
			for i, n := range sizes {
				frame := bytes.Repeat([]byte{byte('A' + i)}, n)
				want = append(want, frame)
				stream, err = framing.Append(stream, frame)
				check(t, err)
			}
			segment := rapid.OneOf(rapid.IntRange(0, 6), rapid.IntRange(0, 6000), rapid.IntRange(0, 50_000))
			segments := rapid.SliceOf(segment).Draw(rt, "segments")
			tp := newTopic(20_000)
			in := unitIngress(t, func(c *Config) {
				c.NewLane, c.Codec = tp.newLane, name
				c.BufferSize = rapid.SampledFrom([]int{4 << 10, 16 << 10, 64 << 10}).Draw(rt, "buffer")
				c.TurnBudget = rapid.SampledFrom([]int{1, 1000, 4 << 10, 64 << 10}).Draw(rt, "budget")
				c.BatchFrames = rapid.IntRange(1, 5).Draw(rt, "batch")
			})
			got, c := pour(t, in, tp, stream, segments, rt.Fatalf)
			if !slices.EqualFunc(got, want, bytes.Equal) {
				rt.Fatalf("%s: published %d frames, sent %d", name, len(got), len(want))
			}
			if c.why != endOfStream || c.received != uint64(len(stream)) || c.leftover != 0 {
				rt.Fatalf("%s: %v, %d of %d bytes received, %d left", name, c.why, c.received, len(stream), c.leftover)
			}
		})
	}
}

// TestDrippedBytesCostLinearWork sends a large frame byte by byte: memory for it is asked for as often as its size
// doubles, not as often as a byte comes.
func TestDrippedBytesCostLinearWork(t *testing.T) {
	const size = 50_000
	for _, name := range codec.Names() {
		framing, err := codec.Lookup(name)
		check(t, err)
		stream, err := framing.Append(nil, make([]byte, size))
		check(t, err)
		tp := newTopic(size)
		in := unitIngress(t, func(c *Config) { c.NewLane, c.Codec, c.BufferSize = tp.newLane, name, minBufferSize })
		src := &script{}
		for i := range stream {
			src.segments = append(src.segments, stream[i:i+1])
		}
		c := newConn(in, src)
		moves := 0
		var last *byte
		src.before = func(int) {
			if c.bytes.len() > smallPartial && &c.bytes.b[0] != last {
				last = &c.bytes.b[0]
				moves++
			}
		}
		c.serve()
		if len(tp.frames) != 1 || len(tp.frames[0]) != size {
			t.Fatalf("%s: published %d frames", name, len(tp.frames))
		}
		if moves > 10 {
			t.Errorf("%s: the bytes moved %d times", name, moves)
		}
	}
}

func FuzzStreamLen32(f *testing.F) {
	f.Add(len32("", "a", "bc"), []byte{1, 5, 2}, uint8(2))
	f.Add([]byte{0x80, 0, 0, 0, 'x'}, []byte{}, uint8(0))
	f.Add([]byte{0, 0, 0xff, 0xff, 'x', 'y'}, []byte{1, 1, 1, 1, 1}, uint8(9))
	f.Fuzz(func(t *testing.T, stream, cuts []byte, shape uint8) { fuzzStream(t, "len32", stream, cuts, shape) })
}

func FuzzStreamLine(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccc"), []byte{1, 5, 2}, uint8(2))
	f.Add(bytes.Repeat([]byte("x"), 300), []byte{200}, uint8(1))
	f.Fuzz(func(t *testing.T, stream, cuts []byte, shape uint8) { fuzzStream(t, "line", stream, cuts, shape) })
}

// fuzzStream pours any bytes in any segments; what comes out is what comes out of one segment, and pour checks that
// memory grows with what came.
func fuzzStream(t *testing.T, name string, stream, cuts []byte, shape uint8) {
	tp := newTopic(100_000)
	in := unitIngress(t, func(c *Config) {
		c.NewLane, c.Codec, c.BufferSize = tp.newLane, name, minBufferSize
		c.TurnBudget, c.BatchFrames = 50+int(shape)*50, 1+int(shape%5)
	})
	segments := make([]int, len(cuts))
	for i, n := range cuts {
		segments[i] = int(n)
	}
	whole, one := pour(t, in, tp, stream, nil, t.Fatalf)
	split, many := pour(t, in, tp, stream, segments, t.Fatalf)
	if !slices.EqualFunc(whole, split, bytes.Equal) || one.why != many.why {
		t.Fatalf("in one segment: %q, %v; in segments %v: %q, %v", whole, one.why, cuts, split, many.why)
	}
}
