package door

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestRepeatedWarningsAreLeftOut(t *testing.T) {
	var log strings.Builder
	now := time.Duration(0)
	r := NewRateLog(slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return now })
	warn := func(why string, n int) (lines int, text string) {
		before := log.Len()
		for range n {
			r.Warn(why, "something", slog.String("peer", "p"))
		}
		text = log.String()[before:]
		return strings.Count(text, "\n"), text
	}
	if lines, _ := warn("a", LogBurst+5); lines != LogBurst {
		t.Errorf("%d lines of a burst", lines)
	}
	if lines, _ := warn("b", 1); lines != 1 {
		t.Error("another reason is left out too")
	}
	now = LogPeriod - 1
	if lines, _ := warn("a", 1); lines != 0 {
		t.Error("logged before the period is over")
	}
	now = LogPeriod
	if lines, text := warn("a", 1); lines != 1 || !strings.Contains(text, "omitted=6") || !strings.Contains(text, "reason=a") {
		t.Errorf("after the period: %s", text)
	}
	if _, text := warn("a", 1); strings.Contains(text, "omitted") {
		t.Errorf("told twice: %s", text)
	}
	warn("a", LogBurst)
	before := log.Len()
	r.Flush()
	r.Flush()
	if text := log.String()[before:]; strings.Count(text, "\n") != 1 || !strings.Contains(text, "omitted=2\n") {
		t.Errorf("flush: %s", text)
	}
}

func TestListenErrorsSayWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		address string
		errno   error
		want    string
	}{
		{"127.0.0.1:80", unix.EACCES, "CAP_NET_BIND_SERVICE"},
		{"127.0.0.1:7", unix.EADDRINUSE, "sport = :7"},
		{"10.1.1.1:7", unix.EADDRNOTAVAIL, "ip addr"},
		{"unix:///nowhere/s", unix.EACCES, "folder"},
		{"unix:///nowhere/s", unix.EADDRINUSE, "another path"},
	} {
		err := listenError(tc.address, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", tc.errno)})
		if !errors.Is(err, tc.errno) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.address) {
			t.Errorf("%s, %v: %v", tc.address, tc.errno, err)
		}
	}
	if _, err := Listen(t.Context(), "udp://127.0.0.1:0", Settings{}); err == nil || !strings.Contains(err.Error(), "tcp://") {
		t.Errorf("a datagram listener: %v", err)
	}
	if _, err := Listen(t.Context(), "here", Settings{}); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
		t.Errorf("no port: %v", err)
	}
}

func TestAcceptRemedies(t *testing.T) {
	for err, want := range map[error]string{
		unix.EMFILE:       "ulimit -n",
		unix.ENFILE:       "fs.file-max",
		unix.ENOBUFS:      "tcp_mem",
		unix.ECONNABORTED: "none is needed",
	} {
		if got := AcceptRemedy(&net.OpError{Op: "accept", Err: err}); !strings.Contains(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestUnixSocketOfADeadProcessIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	dead.SetUnlinkOnClose(false)
	check(t, dead.Close())
	l, err := Listen(t.Context(), "unix://"+path, Settings{})
	check(t, err)
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|unixMode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), "unix://"+path, Settings{}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a living one's socket: %v", err)
	}
	file := filepath.Join(t.TempDir(), "f")
	check(t, os.WriteFile(file, []byte("mine"), 0o600))
	if _, err := Listen(t.Context(), "unix://"+file, Settings{}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("an ordinary file: %v", err)
	}
	if b, err := os.ReadFile(file); string(b) != "mine" {
		t.Errorf("the file is gone: %v", err)
	}
}

func TestSettingsReachTheSocket(t *testing.T) {
	s := Settings{RecvBuffer: 32 << 10, SendBuffer: 16 << 10, ReusePort: true, Backlog: 5, FastOpen: 5, QuickAck: true, IncomingCPU: 1, Delay: true, KeepAlive: -1}
	l, err := Listen(context.Background(), "127.0.0.1:0", s)
	check(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer c.Close()
	peer, err := l.Accept()
	check(t, err)
	defer peer.Close()
	check(t, s.Dress(peer))
	raw, err := peer.(*net.TCPConn).SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		for name, want := range map[string]struct {
			o sys.SocketOption
			v int
		}{
			"receive buffer": {sys.RecvBuffer, 2 * s.RecvBuffer}, "send buffer": {sys.SendBuffer, 2 * s.SendBuffer}, "keepalive": {sys.KeepAlive, 0},
			"no delay": {sys.NoDelay, 0},
		} {
			if got, err := sys.GetSocketOption(int(fd), want.o); err != nil || got != want.v {
				t.Errorf("%s: %d, %v; want %d", name, got, err, want.v)
			}
		}
	}))
	second, err := Listen(context.Background(), l.Addr().String(), s)
	check(t, err)
	check(t, second.Close())
	if err := (Settings{Backlog: -1}).Check(); err == nil || !strings.Contains(err.Error(), "--backlog") {
		t.Error(err)
	}
	check(t, s.Check())
}

func TestLimits(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 2}
	l := Limits{MaxConns: 3, MaxPerAddr: 2}
	check(t, l.Enter(here))
	check(t, l.Enter(here))
	err := l.Enter(here)
	if err == nil || !strings.Contains(err.Error(), "--max-conns-per-addr") || !strings.Contains(err.Error(), "2 connections from 127.0.0.1") {
		t.Errorf("a third from one address: %v", err)
	}
	check(t, l.Enter(there))
	if err := l.Enter(&net.UnixAddr{}); err == nil || !strings.Contains(err.Error(), "raise --max-conns") || l.Open() != 3 {
		t.Errorf("a fourth: %v", err)
	}
	l.Leave(here)
	check(t, l.Enter(here))
	for _, a := range []net.Addr{here, here, there} {
		l.Leave(a)
	}
	if l.Open() != 0 || len(l.by) != 0 {
		t.Errorf("%d are left, %v", l.Open(), l.by)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
