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
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// TestStopPublishesWhatTheSocketsHold starts with a stop: all that there is stands in the listen queue and in sockets
// that nobody has read.
func TestStopPublishesWhatTheSocketsHold(t *testing.T) {
	tp := newTopic(100)
	r := newRig(t, tp, nil)
	whole, torn, ended := r.dial(), r.dial(), r.dial()
	send(t, whole, len32("a", "b"))
	send(t, torn, append(len32("c"), 0, 0, 0, 9, 'x'))
	send(t, ended, len32("d"))
	check(t, ended.CloseWrite())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Serve(ctx); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	got := make(map[string]bool)
	for _, f := range tp.all() {
		got[string(f)] = true
	}
	if len(got) != 4 || !got["a"] || !got["b"] || !got["c"] || !got["d"] {
		t.Errorf("published %q", tp.all())
	}
	s := r.Stats()
	if s.StopPartial != 5 || s.PartialFrames != 1 || s.PartialBytes != 5 || s.Accepted != 3 || s.GivenUp != 0 {
		t.Errorf("%+v", s)
	}
	r.wantLog("level=INFO", "ingress stopped", "frames=4", "partial_bytes=5", "given_up=0", "topic=orders")
}

// TestStopWithAFullTopicWaitsForRoom has frames in a publish call, in a read buffer, and in sockets.
func TestStopWithAFullTopicWaitsForRoom(t *testing.T) {
	tp := newTopic(100)
	tp.fill(1)
	r := start(t, tp, func(c *Config) { c.Lanes = 1; c.BatchFrames = 2 })
	first, second := r.dial(), r.dial()
	send(t, first, len32("a", "b", "c", "d", "e"))
	tp.awaitBlocked(t, 1)
	send(t, second, len32("f", "g"))
	r.awaitStats("the second connection waits", func(s Stats) bool { return s.Waiting == 1 })
	send(t, first, len32("h"))
	r.cancel()
	<-r.stopSignal
	tp.empty()
	check(t, r.wait())
	wantFrames(t, tp.all(), "a", "b", "c", "d", "e", "h", "f", "g")
}

// TestStopDoesNotFollowASenderWithoutEnd stops while senders go on sending: each one's frames are a beginning of what it
// sent, and every byte read is in a frame or counted as left.
func TestStopDoesNotFollowASenderWithoutEnd(t *testing.T) {
	const senders, size = 4, 60
	tp := newTopic(100)
	r := start(t, tp, nil)
	var wg sync.WaitGroup
	for id := range senders {
		nc := r.dial()
		wg.Add(1)
		go func() {
			defer wg.Done()
			stream := make([]byte, 0, 1000*(size+4))
			for seq := uint32(0); ; {
				stream = stream[:0]
				for range 1000 {
					stream = binary.BigEndian.AppendUint32(stream, size)
					stream = append(stream, make([]byte, size)...)
					payload := stream[len(stream)-size:]
					binary.BigEndian.PutUint32(payload, uint32(id))
					binary.BigEndian.PutUint32(payload[4:], seq)
					seq++
				}
				if _, err := nc.Write(stream); err != nil {
					return // the ingress has stopped
				}
			}
		}()
	}
	tp.awaitFrames(t, 50_000)
	check(t, r.stop())
	wg.Wait()
	var next [senders]uint32
	for _, f := range tp.all() {
		id, seq := binary.BigEndian.Uint32(f), binary.BigEndian.Uint32(f[4:])
		if len(f) != size || seq != next[id] {
			t.Fatalf("sender %d: frame %d after %d, of %d bytes", id, seq, next[id], len(f))
		}
		next[id]++
	}
	s := r.Stats()
	if s.Frames != uint64(len(tp.all())) || s.Received != s.Frames*(size+4)+s.StopPartial || s.GivenUp != 0 {
		t.Errorf("%d frames published; %+v", len(tp.all()), s)
	}
}

// TestGivingUp covers the two ways in which the wait for room ends early.
func TestGivingUp(t *testing.T) {
	for _, name := range []string{"Abort", "DrainTimeout"} {
		t.Run(name, func(t *testing.T) {
			tp := newTopic(100)
			tp.fill(3)
			r := start(t, tp, func(c *Config) {
				c.Lanes, c.BatchFrames = 1, 4
				if name == "DrainTimeout" {
					c.DrainTimeout = time.Millisecond
				}
			})
			first, second := r.dial(), r.dial()
			send(t, first, append(len32("a", "b", "c", "d", "e", "f", "g", "h", "i"), 0, 0))
			tp.awaitBlocked(t, 1)
			send(t, second, len32("j"))
			r.awaitStats("the second connection waits", func(s Stats) bool { return s.Waiting == 1 })
			r.cancel()
			if name == "Abort" {
				r.Abort()
			}
			var gaveUp *AbortError
			if err := r.wait(); !errors.As(err, &gaveUp) {
				t.Fatalf("Serve: %v", err)
			}
			if *gaveUp != (AbortError{Frames: 6, Unread: 5}) {
				t.Errorf("gave up %+v", *gaveUp)
			}
			if !strings.Contains(gaveUp.Error(), "6 frames that were read, and 5 bytes that were not, are lost") {
				t.Error(gaveUp)
			}
			wantFrames(t, tp.all(), "a", "b", "c")
			if s := r.Stats(); s.GivenUp != 6 || s.Errors["aborted"] != 2 || s.PartialBytes != 2 {
				t.Errorf("%+v", s)
			}
			r.wantLog("ingress stopped", "given_up=6", "unread_bytes=5")
		})
	}
}

func TestAbortWithNothingToLoseIsNoError(t *testing.T) {
	r := start(t, newTopic(100), nil)
	nc := r.dial()
	r.awaitStats("it is open", func(s Stats) bool { return s.Open == 1 })
	r.Abort()
	check(t, r.wait())
	wantClosed(t, nc)
}

func TestServeAndCloseOnce(t *testing.T) {
	tp := newTopic(100)
	r := newRig(t, tp, nil)
	address := r.Addr().String()
	check(t, r.Close())
	check(t, r.Close())
	if err := r.Serve(t.Context()); !errors.Is(err, ErrServed) {
		t.Errorf("Serve after Close: %v", err)
	}
	if tp.opened != 2 || tp.closed != 2 {
		t.Errorf("%d lanes opened, %d closed", tp.opened, tp.closed)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it still listens")
	}
	again := start(t, tp, func(c *Config) { c.Listen = address })
	check(t, again.stop())
	check(t, again.Close())
}

func TestAForeignCloseOfTheListenerIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.Listener = l })
	nc := r.dial()
	send(t, nc, len32("a"))
	tp.awaitFrames(t, 1)
	check(t, l.Close())
	if err := r.wait(); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "closed by somebody else") {
		t.Errorf("Serve: %v", err)
	}
	wantFrames(t, tp.all(), "a")
}

// plainListener hides what a listener of package net has beyond net.Listener.
type plainListener struct{ net.Listener }

func TestAListenerWithoutDeadlinesStops(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.Listener = plainListener{l} })
	nc := r.dial()
	send(t, nc, len32("a"))
	tp.awaitFrames(t, 1)
	check(t, r.stop())
}

func TestCloseOfALaneIsReported(t *testing.T) {
	tp := newTopic(100)
	r := newRig(t, tp, func(c *Config) {
		c.Lanes = 1
		c.NewLane = func(ctx context.Context) (Lane, error) {
			l, err := tp.newLane(ctx)
			return badClose{l}, err
		}
	})
	if err := r.Close(); err == nil || err.Error() != "close a lane: can not" {
		t.Errorf("Close: %v", err)
	}
}

type badClose struct{ Lane }

func (b badClose) Close() error { return errors.Join(errors.New("can not"), b.Lane.Close()) }

// TestStopMeetsConnectionsInEveryState stops again and again at moments of no plan.
func TestStopMeetsConnectionsInEveryState(t *testing.T) {
	for round := range 20 {
		tp := newTopic(100)
		r := start(t, tp, func(c *Config) { c.Lanes = 1 + round%2; c.TurnBudget = 100 })
		var sent sync.WaitGroup
		for i := range 10 {
			nc := r.dial()
			sent.Add(1)
			go func() {
				defer sent.Done()
				for n := range 20 {
					if _, err := nc.Write(len32(fmt.Sprint(i, n))); err != nil {
						return
					}
				}
			}()
		}
		tp.awaitFrames(t, 1+round*9)
		check(t, r.stop())
		sent.Wait()
		if s := r.Stats(); s.Frames != uint64(len(tp.all())) || s.GivenUp != 0 {
			t.Fatalf("%d frames; %+v", len(tp.all()), s)
		}
	}
}

// TestStopEndsAQuietConnection checks the way through the netpoller: the connection sleeps, and must be woken.
func TestStopEndsAQuietConnection(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.IdleTimeout = time.Hour })
	nc := r.dial()
	send(t, nc, []byte{0, 0, 0})
	testutil.Eventually(t, "three bytes are read", func() bool { return r.Stats().Received == 3 })
	check(t, r.stop())
	wantClosed(t, nc)
	if s := r.Stats(); s.StopPartial != 3 {
		t.Errorf("%+v", s)
	}
}
