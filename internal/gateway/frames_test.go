package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEachLengthIsPublishedOrRefused(t *testing.T) {
	const limit = 1000
	for _, tc := range []struct {
		name   string
		length uint32
		sent   int // payload bytes sent
		closed bool
	}{
		{"0", 0, 0, false},
		{"1", 1, 1, false},
		{"the greatest", limit, limit, false},
		{"one above it", limit + 1, limit + 1, true},
		{"2^31", 1 << 31, 10, true},
		{"2^32 - 1", 1<<32 - 1, 10, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tp := newTopic(limit)
			r := start(t, tp, nil)
			other, nc := r.dial(), r.dial()
			payload := strings.Repeat("x", tc.sent)
			stream := len32(payload)
			stream[0], stream[1], stream[2], stream[3] = byte(tc.length>>24), byte(tc.length>>16), byte(tc.length>>8), byte(tc.length)
			send(t, nc, append(len32("before"), stream...))
			if !tc.closed {
				wantFrames(t, tp.awaitFrames(t, 2), "before", payload)
				return
			}
			wantClosed(t, nc)
			r.awaitStats("the bad frame is counted", func(s Stats) bool { return s.Errors["frame_too_large"] == 1 })
			send(t, other, len32("others go on"))
			wantFrames(t, tp.awaitFrames(t, 2), "before", "others go on")
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			r.wantLog("level=WARN", "reason=frame_too_large", fmt.Sprintf("a frame of %d bytes is above the limit of 1000", tc.length),
				"peer="+nc.LocalAddr().String(), "frames=1")
			if s := r.Stats(); s.PartialBytes != 0 {
				t.Errorf("%d bytes count as a partial frame", s.PartialBytes)
			}
		})
	}
}

func TestBytesOneByOne(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, nil)
	nc := r.dial()
	for i, b := range len32("", "a", strings.Repeat("b", 100)) {
		send(t, nc, []byte{b})
		r.awaitStats("each byte is read by itself", func(s Stats) bool { return s.Received == uint64(i+1) })
	}
	wantFrames(t, tp.awaitFrames(t, 3), "", "a", strings.Repeat("b", 100))
	if s := r.Stats(); s.PartialHeld != 0 {
		t.Errorf("%d bytes are held after the last whole frame", s.PartialHeld)
	}
}

func TestALastLineWithoutNewlineIsAFrameAtHalfClose(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.Codec = "line" })
	nc := r.dial()
	send(t, nc, []byte("one\ntwo\r\n\nthree"))
	wantFrames(t, tp.awaitFrames(t, 3), "one", "two\r", "")
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantFrames(t, tp.awaitFrames(t, 4), "one", "two\r", "", "three")
	wantClosed(t, nc)
	r.awaitStats("the connection ends", func(s Stats) bool { return s.Open == 0 })
	if s := r.Stats(); s.PartialFrames != 0 {
		t.Errorf("the last line counts as torn: %+v", s)
	}
	r.wantLog("level=DEBUG", "reason=end_of_stream", "frames=4")
}

func TestALineWithoutEndIsRefused(t *testing.T) {
	tp := newTopic(10_000)
	r := start(t, tp, func(c *Config) { c.Codec = "line"; c.MaxFrame = 5000 })
	nc := r.dial()
	send(t, nc, []byte(strings.Repeat("x", 5000)+"\n"+strings.Repeat("y", 5001)))
	wantFrames(t, tp.awaitFrames(t, 1), strings.Repeat("x", 5000))
	wantClosed(t, nc)
	r.awaitStats("the line is counted", func(s Stats) bool { return s.Errors["frame_too_large"] == 1 })
	r.wantLog("a frame did not end within the limit of 5000 bytes")
}

func TestATornFrameIsCountedAndNotPublished(t *testing.T) {
	for _, tc := range []struct {
		name   string
		hangUp func(t *testing.T, nc *net.TCPConn)
		reason string
	}{
		{"close", func(t *testing.T, nc *net.TCPConn) { check(t, nc.Close()) }, "partial_frame"},
		{"half-close", func(t *testing.T, nc *net.TCPConn) { check(t, nc.CloseWrite()) }, "partial_frame"},
		{"reset", func(t *testing.T, nc *net.TCPConn) {
			check(t, nc.SetLinger(0))
			check(t, nc.Close())
		}, "connection_error"},
	} {
		for _, size := range []int{5, smallPartial + 5, 300 << 10} { // in a small chunk, a larger one, beyond the read buffer
			t.Run(fmt.Sprintf("%s/%d", tc.name, size), func(t *testing.T) {
				tp := newTopic(1 << 20)
				r := start(t, tp, nil)
				nc := r.dial()
				whole := len32("whole")
				torn := len32(strings.Repeat("x", 400<<10))[:size]
				send(t, nc, append(whole, torn...))
				r.awaitStats("all is read", func(s Stats) bool { return s.Received == uint64(len(whole)+size) })
				tc.hangUp(t, nc)
				r.awaitStats("it ends", func(s Stats) bool { return s.Open == 0 })
				s := r.Stats()
				if s.PartialFrames != 1 || s.PartialBytes != uint64(size) || s.Errors[tc.reason] != 1 || s.PartialHeld != 0 {
					t.Errorf("%+v", s)
				}
				wantFrames(t, tp.all(), "whole")
				r.wantLog("level=WARN", "reason="+tc.reason, fmt.Sprintf("partial_bytes=%d", size))
			})
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAResetBetweenFramesLosesNone(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, nil)
	nc := r.dial()
	send(t, nc, len32("a", "b"))
	tp.awaitFrames(t, 2)
	check(t, nc.SetLinger(0))
	check(t, nc.Close())
	r.awaitStats("the reset is counted", func(s Stats) bool { return s.Errors["connection_error"] == 1 })
	r.awaitStats("it ends", func(s Stats) bool { return s.Open == 0 })
	r.wantLog("reason=connection_error", unix.ECONNRESET.Error())
	if s := r.Stats(); s.PartialFrames != 0 || s.Frames != 2 {
		t.Errorf("%+v", s)
	}
}

func TestFramesBeyondTheReadBuffer(t *testing.T) {
	tp := newTopic(3 << 20)
	for _, name := range []string{"len32", "line"} {
		t.Run(name, func(t *testing.T) {
			tp.frames = nil
			r := start(t, tp, func(c *Config) { c.Codec, c.BufferSize = name, 8<<10 })
			nc := r.dial()
			want := []string{"small", strings.Repeat("L", 3<<20), "", strings.Repeat("m", 9<<10), strings.Repeat("n", 5000), "end"}
			stream := len32(want...)
			if name == "line" {
				stream = []byte(strings.Join(want, "\n") + "\n")
			}
			send(t, nc, stream)
			wantFrames(t, tp.awaitFrames(t, len(want)), want...)
		})
	}
}

func TestUnixListener(t *testing.T) {
	tp := newTopic(100)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	check(t, err)
	r := start(t, tp, func(c *Config) { c.Listener = l })
	nc, err := net.Dial("unix", path)
	check(t, err)
	defer nc.Close()
	send(t, nc, len32("by a Unix socket"))
	wantFrames(t, tp.awaitFrames(t, 1), "by a Unix socket")
	if r.Addr().String() != path {
		t.Errorf("Addr() = %v", r.Addr())
	}
}

func TestPublishFailureEndsTheIngress(t *testing.T) {
	tp := newTopic(100)
	tp.fail = errors.New("the topic is gone")
	r := start(t, tp, nil)
	nc := r.dial()
	send(t, nc, len32("a", "b", "c"))
	err := r.wait()
	if !errors.Is(err, tp.fail) || err.Error() != "gateway: publishing failed: the topic is gone" {
		t.Errorf("Serve: %v", err)
	}
	if s := r.Stats(); s.GivenUp != 3 || s.Errors["publish_failed"] != 1 {
		t.Errorf("%+v", s)
	}
}

// lazyLane breaks the contract of Publisher: it publishes nothing and says nothing.
type lazyLane struct{}

func (lazyLane) PublishBatch(context.Context, [][]byte) (int, error) { return 0, nil }
func (lazyLane) MaxPayload() int                                     { return 100 }
func (lazyLane) Close() error                                        { return nil }

func TestAPublisherWithoutProgressIsAnError(t *testing.T) {
	in := unitIngress(t, func(c *Config) {
		c.NewLane = func(context.Context) (Lane, error) { return lazyLane{}, nil }
	})
	c := newConn(in, &script{segments: [][]byte{len32("a", "b")}})
	c.serve()
	if c.why != publishFailed || !errors.Is(c.err, errNoProgress) || in.Stats().GivenUp != 2 {
		t.Errorf("%v, %v, %d given up", c.why, c.err, in.Stats().GivenUp)
	}
}
