package gateway

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/testutil"
)

// lock is what a test needs for TLS.
type lock struct {
	authority *testutil.Authority
	files     door.SecureFiles
	client    *tls.Config
}

func newLock(t testing.TB, clientCertificates bool) *lock {
	t.Helper()
	dir := t.TempDir()
	l := &lock{authority: testutil.NewAuthority(t), files: door.SecureFiles{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k")}}
	l.authority.Issue(t, "server", 2, l.files.Cert, l.files.Key)
	l.client = &tls.Config{RootCAs: l.authority.Pool, ServerName: "localhost"}
	if clientCertificates {
		l.files.ClientCA = l.authority.File
		l.client.Certificates = []tls.Certificate{l.authority.Issue(t, "alice", 3, filepath.Join(dir, "ac"), filepath.Join(dir, "ak"))}
	}
	return l
}

// on is a change of a rig's configuration.
func (l *lock) on(t testing.TB) func(*Config) {
	return func(c *Config) {
		var err error
		if c.Secure, err = door.NewSecure(l.files, c.Logger); err != nil {
			t.Fatal(err)
		}
	}
}

// dial makes a secure connection over nc.
func (l *lock) dial(t testing.TB, nc net.Conn) *tls.Conn {
	t.Helper()
	c := tls.Client(nc, l.client)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFramesOverTLS(t *testing.T) {
	for _, clientCertificates := range []bool{false, true} {
		l := newLock(t, clientCertificates)
		tp := newTopic(1 << 20)
		r := start(t, tp, func(c *Config) { l.on(t)(c); c.BufferSize = 8 << 10 })
		c := l.dial(t, r.dial())
		want := []string{"a", "", strings.Repeat("b", 100_000), strings.Repeat("c", 1<<20), "d"}
		send(t, c, len32(want...))
		wantFrames(t, tp.awaitFrames(t, len(want)), want...)
		check(t, c.Close())
		r.awaitStats("it ends", func(s Stats) bool { return s.Open == 0 })
		if s := r.Stats(); s.PartialFrames != 0 || s.Received != uint64(len(len32(want...))) {
			t.Errorf("%+v", s)
		}
		peer := ""
		if clientCertificates {
			peer = " (alice)"
		}
		r.wantLog("level=DEBUG", "connection closed", c.LocalAddr().String()+peer, "reason=end_of_stream", "frames=5")
	}
}

// TestAClientWithoutItsCertificateIsRefused counts who comes without one.
func TestAClientWithoutItsCertificateIsRefused(t *testing.T) {
	l := newLock(t, true)
	r := start(t, newTopic(100), l.on(t))
	l.client.Certificates = nil
	c := l.dial(t, r.dial()) // the server's answer to the client's part comes later
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it may stay")
	}
	r.awaitStats("it is counted", func(s Stats) bool { return s.Errors["handshake_failed"] == 1 })
	r.wantLog("level=WARN", "reason=handshake_failed", "TLS handshake", "certificate")
}

// trickle passes few bytes on at a time, and waits after each until the ingress has looked.
type trickle struct {
	net.Conn
	r *rig
}

func (p trickle) Write(b []byte) (int, error) {
	sent := 0
	for piece := range slices.Chunk(b, 7) {
		reads := p.r.Stats().Reads
		n, err := p.Conn.Write(piece)
		if sent += n; err != nil {
			return sent, err
		}
		p.r.awaitStats("a look", func(s Stats) bool { return s.Reads > reads })
	}
	return sent, nil
}

func TestTornRecords(t *testing.T) {
	l := newLock(t, false)
	tp := newTopic(1000)
	r := start(t, tp, l.on(t))
	nc := r.dial()
	shaken := l.dial(t, &switchable{Conn: nc})
	shaken.NetConn().(*switchable).Conn = trickle{nc, r}
	want := []string{"one", strings.Repeat("two", 100), "three"}
	for _, f := range want {
		send(t, shaken, len32(f))
	}
	wantFrames(t, tp.awaitFrames(t, len(want)), want...)
}

// switchable is a connection that can be exchanged for another one.
type switchable struct{ net.Conn }

func TestTLSGarbageAndSilence(t *testing.T) {
	l := newLock(t, false)
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { l.on(t)(c); c.HandshakeTimeout = 50 * time.Millisecond })
	silent, garbage := r.dial(), r.dial()
	send(t, garbage, []byte(strings.Repeat("GET / HTTP/1.1\r\n", 10)))
	wantClosed(t, silent)
	r.awaitStats("both are counted", func(s Stats) bool { return s.Errors["handshake_failed"] == 2 && s.Open == 0 })
	r.wantLog("level=WARN", "not done within --handshake-timeout 50ms", silent.LocalAddr().String())
	r.wantLog("level=WARN", "TLS handshake", garbage.LocalAddr().String())
}

// TestGarbageAfterTheHandshake breaks one connection, and not the other.
func TestGarbageAfterTheHandshake(t *testing.T) {
	l := newLock(t, false)
	tp := newTopic(100)
	r := start(t, tp, l.on(t))
	good, bad := l.dial(t, r.dial()), l.dial(t, r.dial())
	send(t, bad, len32("before"))
	tp.awaitFrames(t, 1)
	send(t, bad.NetConn(), []byte(strings.Repeat("x", 1000)))
	r.awaitStats("it is counted", func(s Stats) bool { return s.Errors["connection_error"] == 1 })
	send(t, good, len32("after"))
	wantFrames(t, tp.awaitFrames(t, 2), "before", "after")
}

// TestAnEndWithoutFarewellIsNoEnd: who cuts a connection off cannot make a frame of half a line.
func TestAnEndWithoutFarewellIsNoEnd(t *testing.T) {
	l := newLock(t, false)
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { l.on(t)(c); c.Codec = "line" })
	meant, cut, between := l.dial(t, r.dial()), l.dial(t, r.dial()), l.dial(t, r.dial())
	send(t, meant, []byte("last"))
	check(t, meant.CloseWrite())
	wantFrames(t, tp.awaitFrames(t, 1), "last")
	send(t, between, []byte("whole\n"))
	check(t, between.NetConn().Close())
	send(t, cut, []byte("delete /tmp"))
	check(t, cut.NetConn().Close())
	r.awaitStats("all have ended", func(s Stats) bool { return s.Open == 0 })
	wantFrames(t, tp.all(), "last", "whole")
	if s := r.Stats(); s.Errors["partial_frame"] != 1 || s.PartialBytes != 11 {
		t.Errorf("%+v", s)
	}
	r.wantLog("level=WARN", "reason=partial_frame", "close_notify")
}

// TestStopOfASecureIngress has a connection in the middle of publishing, one that waits for its turn, one in its handshake, and
// one that comes when it is too late.
func TestStopOfASecureIngress(t *testing.T) {
	l := newLock(t, false)
	tp := newTopic(100)
	tp.fill(0)
	r := start(t, tp, func(c *Config) { l.on(t)(c); c.Lanes, c.HandshakeTimeout = 1, time.Hour })
	first, second, silent := l.dial(t, r.dial()), l.dial(t, r.dial()), r.dial()
	send(t, first, len32("a"))
	tp.awaitBlocked(t, 1)
	for i := range 5 { // few enough records that the kernel sends all of them at once
		send(t, first, len32(strings.Repeat("b", 10*i), strings.Repeat("b", 10*i+1)))
	}
	send(t, second, append(len32("c"), 0, 0))
	r.awaitStats("the second waits, the third is there", func(s Stats) bool { return s.Waiting == 1 && s.Open == 3 })
	r.cancel()
	<-r.stopSignal
	wantClosed(t, silent)
	tp.empty()
	check(t, r.wait())
	if got := tp.all(); len(got) != 12 || string(got[11]) != "c" {
		t.Errorf("%d frames: %q", len(got), got)
	}
	if s := r.Stats(); s.StopPartial != 2 || s.Errors["handshake_failed"] != 0 {
		t.Errorf("%+v", s)
	}
	late := newRig(t, tp, func(c *Config) { l.on(t)(c); c.HandshakeTimeout = time.Hour })
	late.dial()
	late.serve()
	check(t, late.stop())
}

// rawPair is the encrypted side of a connection, and its peer.
func rawPair(t *testing.T, stopping bool) (*rawSide, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	nc, err := l.Accept()
	check(t, err)
	t.Cleanup(func() { check(t, errors.Join(nc.Close(), peer.Close())) })
	s, err := newSocket(nc)
	check(t, err)
	return &rawSide{Conn: nc, socket: s, stopping: func() bool { return stopping }}, peer
}

func TestAStopLetsTheHandshakeReadWhatHasCome(t *testing.T) {
	side, peer := rawPair(t, true)
	send(t, peer, []byte("all"))
	testutil.Eventually(t, "it has come", func() bool {
		var n int
		check(t, side.socket.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
		return n == 3
	})
	check(t, side.SetReadDeadline(time.Unix(1, 0)))
	b := make([]byte, 10)
	if n, err := side.Read(b); string(b[:n]) != "all" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	if n, err := side.Read(b); n != 0 || err != unix.EAGAIN {
		t.Errorf("and then %d, %v", n, err)
	}
	side, _ = rawPair(t, false)
	check(t, side.SetReadDeadline(time.Unix(1, 0)))
	if _, err := side.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline that is no stop: %v", err)
	}
}

func TestADeafPeerIsNotWaitedFor(t *testing.T) {
	side, peer := rawPair(t, false)
	side.live = true
	sent, block := 0, make([]byte, 100_000)
	for {
		n, err := side.Write(block)
		if sent += n; err != nil {
			if err != errDeaf {
				t.Errorf("%v", err)
			}
			break
		}
	}
	if sent == 0 {
		t.Error("nothing was sent")
	}
	if n, err := io.ReadFull(peer, make([]byte, sent)); err != nil {
		t.Errorf("%d of %d came: %v", n, sent, err)
	}
}
