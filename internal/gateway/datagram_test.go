package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

// packets makes a rig's configuration one for datagrams.
func packets(c *Config) { c.Listen, c.Lanes = "udp://127.0.0.1:0", 1 }

// dialUDP returns a socket whose datagrams go to the ingress. A datagram over loopback is in the receiver's queue, or dropped,
// when Write returns.
func (r *rig) dialUDP() *net.UDPConn {
	r.t.Helper()
	nc, err := net.Dial("udp", r.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	return nc.(*net.UDPConn)
}

func TestADatagramIsAFrame(t *testing.T) {
	for _, address := range []string{"udp://127.0.0.1:0", "udp://[::1]:0"} {
		if l, err := net.ListenPacket("udp", strings.TrimPrefix(address, "udp://")); err != nil {
			t.Logf("skipped %s, which this host does not have: %v", address, err)
			continue
		} else {
			check(t, l.Close())
		}
		tp := newTopic(1000)
		r := start(t, tp, func(c *Config) { c.Listen, c.Lanes = address, 0 })
		nc := r.dialUDP()
		sent := []string{"one", "", "two\nlines", strings.Repeat("x", 1000)}
		for _, payload := range sent {
			send(t, nc, []byte(payload))
		}
		wantFrames(t, tp.awaitFrames(t, len(sent)), sent...)
		send(t, nc, make([]byte, 1001))
		send(t, nc, make([]byte, 20_000))
		send(t, nc, []byte("after"))
		wantFrames(t, tp.awaitFrames(t, len(sent)+1), append(sent, "after")...)
		check(t, r.stop())
		s := r.Stats()
		if s.Errors["frame_too_large"] != 2 || s.Datagrams != 7 || s.Frames != 5 || s.Dropped != 0 || s.Received != 3+9+1000+1001+20_000+5 {
			t.Errorf("%+v", s)
		}
		r.wantLog("level=WARN", "datagram thrown away", "bytes=20000", "limit=1000", "--max-frame", "peer=", "reason=frame_too_large")
		if tp.opened != 1 {
			t.Errorf("%d lanes, where one is the default", tp.opened)
		}
	}
}

// TestDatagramsThatWaitAreOneBatch has datagrams wait while the topic is full.
func TestDatagramsThatWaitAreOneBatch(t *testing.T) {
	const waiting = 40
	tp := newTopic(100)
	tp.fill(0)
	r := start(t, tp, packets)
	nc := r.dialUDP()
	send(t, nc, []byte("first"))
	tp.awaitBlocked(t, 1)
	for i := range waiting {
		send(t, nc, fmt.Appendf(nil, "%d", i))
	}
	tp.empty()
	for i, f := range tp.awaitFrames(t, 1+waiting)[1:] {
		if string(f) != fmt.Sprint(i) {
			t.Errorf("frame %d is %q", i, f)
		}
	}
	check(t, r.stop())
	if s := r.Stats(); s.Batches != 2 || s.BatchSizes.Counts[0] != 1 || s.BatchSizes.Counts[6] != 1 {
		t.Errorf("%d batches: %v", s.Batches, s.BatchSizes)
	}
}

// TestDropsOfAFullTopicAreCounted sends more than the topic and the socket's buffer hold: nothing is read meanwhile, the kernel
// drops, and every datagram is published or counted.
func TestDropsOfAFullTopicAreCounted(t *testing.T) {
	const count = 3000
	tp := newTopic(100)
	tp.fill(0)
	r := start(t, tp, func(c *Config) { packets(c); c.Socket.RecvBuffer = 16 << 10 })
	nc := r.dialUDP()
	for i := range uint32(count) {
		send(t, nc, binary.BigEndian.AppendUint32(nil, i))
	}
	tp.awaitBlocked(t, 1)
	r.awaitStats("drops, behind which no datagram came", func(s Stats) bool { return s.Dropped > count/2 && s.Frames == 0 })
	dropped := r.Stats().Dropped
	tp.empty()
	tp.awaitFrames(t, count-int(dropped))
	send(t, nc, binary.BigEndian.AppendUint32(nil, count))
	frames := tp.awaitFrames(t, count-int(dropped)+1)
	check(t, r.stop())
	if s := r.Stats(); s.Dropped != dropped || s.Frames+s.Dropped != count+1 || int(s.Frames) != len(frames) {
		t.Errorf("%d sent: %+v", count+1, s)
	}
	for i := range frames[1:] {
		if binary.BigEndian.Uint32(frames[i]) >= binary.BigEndian.Uint32(frames[i+1]) {
			t.Errorf("frame %x behind %x", frames[i+1], frames[i])
		}
	}
	r.wantLog("level=WARN", "the kernel dropped datagrams", fmt.Sprintf("in_all=%d", dropped), "--recv-buffer", "reason=datagrams_dropped")
	r.wantLog("ingress stopped", fmt.Sprintf("dropped=%d", dropped))
}

func TestStopPublishesTheDatagramsInTheQueue(t *testing.T) {
	const count = 100
	tp := newTopic(100)
	r := newRig(t, tp, packets)
	nc := r.dialUDP()
	for i := range count {
		send(t, nc, fmt.Appendf(nil, "%d", i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	check(t, r.Serve(ctx))
	if got := tp.all(); len(got) != count || string(got[count-1]) != fmt.Sprint(count-1) {
		t.Errorf("%d of %d were published", len(got), count)
	}
}

func TestStopDoesNotFollowDatagramsWithoutEnd(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, packets)
	var senders sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		nc := r.dialUDP()
		senders.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = nc.Write([]byte("again")) // refused once the ingress has gone
				}
			}
		})
	}
	tp.awaitFrames(t, 1000)
	check(t, r.stop())
	close(done)
	senders.Wait()
	if s := r.Stats(); s.Frames != uint64(len(tp.all())) || s.Frames != s.Datagrams {
		t.Errorf("%d were published; %+v", len(tp.all()), s)
	}
}

func TestAbortGivesDatagramsUp(t *testing.T) {
	tp := newTopic(100)
	tp.fill(0)
	r := start(t, tp, packets)
	nc := r.dialUDP()
	for range 10 {
		send(t, nc, []byte("x"))
	}
	tp.awaitBlocked(t, 1)
	r.cancel()
	r.Abort()
	var gaveUp *AbortError
	if err := r.wait(); !errors.As(err, &gaveUp) || *gaveUp != (AbortError{Frames: 10}) {
		t.Errorf("Serve: %v", err)
	}
}

func TestFailureToPublishDatagramsEndsTheIngress(t *testing.T) {
	tp := newTopic(100)
	tp.fail = errors.New("the topic is gone")
	r := start(t, tp, packets)
	send(t, r.dialUDP(), []byte("x"))
	if err := r.wait(); !errors.Is(err, tp.fail) || r.Stats().GivenUp != 1 {
		t.Errorf("Serve: %v; %+v", err, r.Stats())
	}
}

func TestFailureToReceiveIsSurvived(t *testing.T) {
	r := newRig(t, newTopic(100), packets)
	check(t, r.entrances[0].close())
	r.serve()
	r.awaitStats("it tries again", func(s Stats) bool { return s.Errors["receive_failed"] > 2 })
	check(t, r.stop())
	r.wantLog("receiving datagrams failed, trying again", "pause=10ms")
}

// TestSocketsThatShareAPort has many senders, whose datagrams the kernel spreads over the sockets.
func TestSocketsThatShareAPort(t *testing.T) {
	const senders, count = 32, 20
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { packets(c); c.Lanes = 3 })
	for id := range senders {
		nc := r.dialUDP()
		for i := range count {
			send(t, nc, []byte{byte(id), byte(i)})
		}
		tp.awaitFrames(t, (id+1)*count) // a receive buffer does not hold those of all senders
	}
	var next [senders]byte
	for _, f := range tp.awaitFrames(t, senders*count) {
		if f[1] != next[f[0]] {
			t.Fatalf("sender %d: %d behind %d", f[0], f[1], next[f[0]])
		}
		next[f[0]]++
	}
	used := 0
	for _, e := range r.entrances {
		if e.(*datagrams).count.frames.Load() > 0 {
			used++
		}
	}
	if len(r.entrances) != 3 || tp.opened != 3 || used < 2 { // that the kernel finds one socket for 32 ports has a chance of 3^-31
		t.Errorf("%d sockets, %d lanes, %d of them used", len(r.entrances), tp.opened, used)
	}
}

func TestDropsOfACountThatWraps(t *testing.T) {
	var d drops
	for _, step := range []struct {
		count uint32
		news  bool
		all   uint64
	}{{3, true, 3}, {3, false, 3}, {2, false, 3}, {1 << 30, true, 1 << 30}, {1 << 31, true, 1 << 31}, {0xffffffff, true, 0xffffffff},
		{5, true, 1<<32 + 5}, {0xffffffff, false, 1<<32 + 5}, {6, true, 1<<32 + 6}} {
		if news := d.saw(step.count); news != step.news || d.all.Load() != step.all {
			t.Errorf("%#x: %t, %#x in all", step.count, news, d.all.Load())
		}
	}
	if n, all := d.untold(); n != all || n != 1<<32+6 {
		t.Errorf("untold %#x of %#x", n, all)
	}
	if n, _ := d.untold(); n != 0 {
		t.Errorf("%d told twice", n)
	}
}

func TestDatagramConfigMistakesAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"codec line with datagrams":        func(c *Config) { c.Codec = "line" },
		"acceptors with datagrams":         func(c *Config) { c.Acceptors = 2 },
		"an idle time-out with datagrams":  func(c *Config) { c.IdleTimeout = 1 },
		"missing port in address":          func(c *Config) { c.Listen = "udp://here" },
		"only an address of TCP":           func(c *Config) { c.Listen, c.Acceptors = "unix:///x", 2 },
		"-1 acceptors: give 1 to":          func(c *Config) { c.Listen, c.Acceptors = ":0", -1 },
		"--busy-poll is -1ns: give a posi": func(c *Config) { c.Socket = door.Settings{BusyPoll: -1} },
	} {
		cfg := Config{NewLane: newTopic(100).newLane}
		packets(&cfg)
		change(&cfg)
		if in, err := NewIngress(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
			if in != nil {
				check(t, in.Close())
			}
		}
	}
}

// TestAcceptorsThatShareAPort has connections come to all of several listening sockets.
func TestAcceptorsThatShareAPort(t *testing.T) {
	const count = 64
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.Acceptors = 3 })
	for i := range count {
		send(t, r.dial(), len32(fmt.Sprint(i)))
	}
	tp.awaitFrames(t, count)
	if len(r.entrances) != 3 {
		t.Errorf("%d listeners", len(r.entrances))
	}
	port := r.Addr().String()
	for _, e := range r.entrances {
		if e.addr().String() != port {
			t.Errorf("one listens on %s, another on %s", port, e.addr())
		}
	}
	check(t, r.stop())
	if _, err := net.Dial("tcp", port); err == nil {
		t.Error("one still listens")
	}
}
