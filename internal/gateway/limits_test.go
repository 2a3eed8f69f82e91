package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
	"golang.org/x/sys/unix"
)

// TestATurnEndsWhenItsBudgetIsUsedUp lets one sender have far more to read than a budget while another has one frame:
// that frame is published after at most one more turn of the first.
func TestATurnEndsWhenItsBudgetIsUsedUp(t *testing.T) {
	const budget, size = 8 << 10, 96
	tp := newTopic(size)
	tp.fill(0)
	r := start(t, tp, func(c *Config) { c.Lanes = 1; c.BufferSize = budget; c.BatchFrames = 1 << 10 })
	firehose, slow := r.dial(), r.dial()
	frames := make([]string, 20*budget/size)
	for i := range frames {
		frames[i] = strings.Repeat("f", size)
	}
	send(t, firehose, len32(frames...))
	tp.awaitBlocked(t, 1) // in its first turn, with everything else to be read
	send(t, slow, len32("slow"))
	r.awaitStats("the slow one asks for a turn", func(s Stats) bool { return s.Waiting == 1 })
	tp.empty()
	got := tp.awaitFrames(t, len(frames)+1)
	before := 0
	for string(got[before]) != "slow" {
		before++
	}
	if most := budget / size; before > most {
		t.Errorf("%d frames of the firehose came before the slow sender's, budget is %d", before, most)
	}
}

// TestTurnsGoRound has three senders with much to read and one lane: no two turns of one follow each other while others
// wait.
func TestTurnsGoRound(t *testing.T) {
	const budget, rounds = 4 << 10, 8
	tp := newTopic(budget)
	tp.fill(0)
	r := start(t, tp, func(c *Config) { c.Lanes = 1; c.BufferSize = budget; c.BatchFrames = 1 << 10 })
	for _, name := range []string{"a", "b", "c"} {
		nc := r.dial()
		frames := make([]string, rounds)
		for i := range frames {
			frames[i] = strings.Repeat(name, budget-len32Header) // one frame is one budget
		}
		send(t, nc, len32(frames...))
		if name == "a" {
			tp.awaitBlocked(t, 1)
		}
	}
	r.awaitStats("the others wait", func(s Stats) bool { return s.Waiting == 2 })
	tp.empty()
	order := ""
	for _, f := range tp.awaitFrames(t, 3*rounds) {
		order += string(f[:1])
	}
	for i := 0; i+3 <= len(order); i += 3 {
		if turn := order[i : i+3]; strings.Count(turn, "a")*strings.Count(turn, "b")*strings.Count(turn, "c") != 1 {
			t.Errorf("turns %s: round %d is %s", order, i/3, turn)
		}
	}
}

const len32Header = 4

// smallBuffers gives accepted connections a small receive buffer, so that a test can fill it.
type smallBuffers struct{ *net.TCPListener }

func (l smallBuffers) Accept() (net.Conn, error) {
	nc, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return nc, nc.SetReadBuffer(16 << 10)
}

// TestAFullTopicPushesBackOnTheSender fills the topic: the ingress stops reading, the sockets fill up, and the sender
// blocks. When there is room, everything arrives.
func TestAFullTopicPushesBackOnTheSender(t *testing.T) {
	const size, count = 1000, 8 << 10
	tp := newTopic(size)
	tp.fill(10)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := start(t, tp, func(c *Config) { c.Listener = smallBuffers{l.(*net.TCPListener)}; c.IdleTimeout = time.Hour })
	nc := r.dial()
	check(t, nc.SetWriteBuffer(16<<10))
	stream := make([]byte, 0, count*(size+4))
	for i := range count {
		stream = append(stream, len32(fmt.Sprintf("%0*d", size, i))...)
	}
	check(t, nc.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	n, err := nc.Write(stream)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("8 MB went somewhere although the topic is full: %d, %v", n, err)
	}
	tp.awaitBlocked(t, 1)
	const wait = 5 * time.Millisecond
	blocked := r.now()
	testutil.Eventually(t, "a publish call has waited for a while", func() bool { return r.now()-blocked > wait })
	s := r.Stats()
	if s.Frames > 10 || s.Received > 2*DefaultBufferSize || s.BuffersInUse != 1 {
		t.Errorf("with a full topic: %+v", s)
	}
	tp.empty()
	check(t, nc.SetWriteDeadline(time.Time{}))
	send(t, nc, stream[n:])
	for i, f := range tp.awaitFrames(t, count) {
		if string(f) != fmt.Sprintf("%0*d", size, i) {
			t.Fatalf("frame %d is %.20q…", i, f[size-20:])
		}
	}
	if s := r.Stats(); s.Backpressure < wait || s.Backpressure > s.Publishing {
		t.Errorf("back-pressure %v, publishing %v", s.Backpressure, s.Publishing)
	}
}

func TestOneConnectionTooMany(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.MaxConns = 2 })
	first, second := r.dial(), r.dial()
	r.awaitStats("two are open", func(s Stats) bool { return s.Open == 2 })
	third := r.dial()
	wantClosed(t, third)
	send(t, first, len32("first"))
	tp.awaitFrames(t, 1)
	send(t, second, len32("second"))
	wantFrames(t, tp.awaitFrames(t, 2), "first", "second")
	if s := r.Stats(); s.Refused != 1 || s.Accepted != 3 || s.Open != 2 || s.Errors["too_many_connections"] != 1 {
		t.Errorf("%+v", s)
	}
	r.wantLog("level=WARN", "reason=too_many_connections", "2 connections are open", "--max-conns", third.LocalAddr().String())
	check(t, first.Close())
	r.awaitStats("one is gone", func(s Stats) bool { return s.Open == 1 })
	send(t, r.dial(), len32("there is room again"))
	tp.awaitFrames(t, 3)
}

// failingAccept fails a few times before each connection.
type failingAccept struct {
	*net.TCPListener
	failures atomic.Int32
}

func (l *failingAccept) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	}
	return l.TCPListener.Accept()
}

func TestAcceptErrorsAreSurvived(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	failing := &failingAccept{TCPListener: l.(*net.TCPListener)}
	failing.failures.Store(4)
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.Listener = failing })
	send(t, r.dial(), len32("at last"))
	wantFrames(t, tp.awaitFrames(t, 1), "at last")
	if s := r.Stats(); s.Errors["accept_failed"] != 4 {
		t.Errorf("%+v", s)
	}
	r.wantLog("level=WARN", "reason=accept_failed", "too many open files", "pause=5ms", "ulimit -n")
	r.wantLog("reason=accept_failed", "pause=40ms")
}

func TestStopDoesNotWaitForAccept(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	failing := &failingAccept{TCPListener: l.(*net.TCPListener)}
	failing.failures.Store(1 << 30)
	r := start(t, newTopic(100), func(c *Config) { c.Listener = failing })
	r.awaitStats("accept fails", func(s Stats) bool { return s.Errors["accept_failed"] > 2 })
	check(t, r.stop())
}

// noSocket hands out connections without a descriptor.
type noSocket struct {
	net.Listener
	conns chan net.Conn
}

func (l noSocket) Accept() (net.Conn, error) {
	if nc, ok := <-l.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (l noSocket) Close() error {
	close(l.conns)
	return l.Listener.Close()
}

func TestAConnectionWithoutSocketIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	theirs, ours := net.Pipe()
	defer theirs.Close()
	pipes := noSocket{l, make(chan net.Conn, 1)}
	pipes.conns <- ours
	r := start(t, newTopic(100), func(c *Config) { c.Listener = pipes })
	wantClosed(t, theirs)
	check(t, r.stop())
	r.wantLog("connection refused", "*net.pipe has no socket to wait on")
}
