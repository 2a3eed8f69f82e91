package gateway

import (
	"context"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"golang.org/x/sys/unix"
)

// sink is a Lane that copies each payload as a ring would, into 64-byte cells of one block of memory, and counts.
type sink struct {
	ring   []byte
	at     int
	frames int
	want   int // not 0: so many frames close done
	done   chan struct{}
}

func newSink() *sink { return &sink{ring: make([]byte, 1<<20)} }

func (s *sink) PublishBatch(_ context.Context, payloads [][]byte) (int, error) {
	for _, p := range payloads {
		size := (16 + len(p) + 63) &^ 63
		if s.at+size > len(s.ring) {
			s.at = 0
		}
		copy(s.ring[s.at+16:], p)
		s.at += size
	}
	s.frames += len(payloads)
	if s.want > 0 && s.frames >= s.want {
		s.want = 0
		close(s.done)
	}
	return len(payloads), nil
}

func (s *sink) MaxPayload() int { return 64 << 10 }
func (s *sink) Close() error    { return nil }

// endless is a source that always has more of the same stream, in pieces that tear frames.
type endless struct {
	script
	stream []byte
	at     int
	left   int // bytes until the next EAGAIN
}

func (e *endless) read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, unix.EAGAIN
	}
	n := copy(b[:min(len(b), e.left)], e.stream[e.at:])
	e.at = (e.at + n) % len(e.stream)
	e.left -= n
	return n, nil
}

// TestNoAllocationPerFrame steps a connection, with frames torn between its turns: a step reads 100,000 bytes.
func TestNoAllocationPerFrame(t *testing.T) {
	for _, name := range codec.Names() {
		for _, size := range []int{0, 60, 5000} {
			framing, err := codec.Lookup(name)
			check(t, err)
			stream, err := framing.Append(nil, []byte(strings.Repeat("x", size)))
			check(t, err)
			for len(stream) < 50_000 {
				stream = append(stream, stream...)
			}
			s := newSink()
			in := unitIngress(t, func(c *Config) {
				c.NewLane, c.Codec = func(context.Context) (Lane, error) { return s, nil }, name
				c.BufferSize = 16 << 10
			})
			src := &endless{stream: stream}
			c := newConn(in, src)
			allocs := testing.AllocsPerRun(100, func() {
				src.left = 100_000
				if c.step() {
					t.Fatal("the connection ended")
				}
			})
			// A torn frame's memory comes from a sync.Pool, which forgets now and then: less than one allocation for each
			// step of many frames, on average, is none for a frame.
			if allocs >= 1 {
				t.Errorf("%s, %d bytes: %v allocations for a step of %d frames", name, size, allocs, s.frames/101)
			}
		}
	}
}
