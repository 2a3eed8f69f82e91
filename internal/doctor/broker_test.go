package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/broker"
)

func TestSocketPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]one{
		filepath.Join(dir, "h.sock"):                 {status: OK, found: "is not there yet"},
		filepath.Join(dir, "none", "h.sock"):         {status: Error, found: "none is not there", do: "mkdir -p " + filepath.Join(dir, "none")},
		file:                                         {status: Error, found: "not a socket", do: "--socket"},
		filepath.Join(file, "h.sock"):                {status: Error, found: "not a directory", do: "--socket"},
		filepath.Join(dir, strings.Repeat("x", 108)): {status: Error, found: "107", do: "--socket"},
		"@abstract":                                  {status: Error, found: "abstract", do: "--socket"},
		filepath.Join(dir, "file", "..", "..", "h.sock")[:0]:  {status: Error, found: "empty", do: "--socket"},
		filepath.Join("/", "hugebus-is-not-here", "ctl.sock"): {status: Error, found: "/hugebus-is-not-here", do: "mkdir -p /hugebus-is-not-here"},
	} {
		want.look = func(h host) Check { return h.socket(path) }
		want.check(t, path, nil)
	}
}

func TestABrokerThatAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.sock")
	b, err := broker.New(broker.Config{Socket: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- b.Serve(ctx) }()
	one{nil, func(h host) Check { return h.broker(t.Context(), path) }, OK, fmt.Sprintf("pid %d, protocol 1", os.Getpid()), ""}.check(t, "broker", nil)
	one{nil, func(h host) Check { return h.socket(path) }, OK, "Srw-rw-rw-", ""}.check(t, "socket", nil)
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// answering listens as a broker would, and sends one message to whoever says hello.
func answering(t *testing.T, message string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "h.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			if _, err := c.Read(b); err == nil && message != "" {
				_, _ = c.Write([]byte(message))
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return path
}

func TestBrokersThatDoNotFit(t *testing.T) {
	stale := filepath.Join(t.TempDir(), "h.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: stale, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for name, c := range map[string]struct {
		path string
		want one
	}{
		"nobody":      {filepath.Join(t.TempDir(), "h.sock"), one{status: Warning, found: "no broker at", do: "hugebus broker --socket"}},
		"stale":       {stale, one{status: Warning, found: "nobody listens", do: "hugebus broker --socket"}},
		"impossible":  {strings.Repeat("x", 200), one{status: Warning, found: "not asked", do: "hugebus broker"}},
		"other":       {answering(t, `{"id":1,"body":{"protocol":99,"layout":1,"software":"hugebus v9"}}`), one{status: Error, found: "hugebus v9", do: "same release"}},
		"refuses":     {answering(t, `{"id":1,"error":{"code":"quota","message":"too many"}}`), one{status: Error, found: "too many", do: "administrator"}},
		"not one":     {answering(t, `hello yourself`), one{status: Error, found: "does not answer as a broker", do: "ss -xlp"}},
		"hangs up":    {answering(t, ""), one{status: Error, found: "does not answer as a broker", do: "ss -xlp"}},
		"wrong kind":  {wrongKind(t), one{status: Error, found: "another kind", do: "--socket"}},
		"not allowed": {noDirectory(t), one{status: Warning, found: "no broker at", do: "hugebus broker"}},
	} {
		c.want.look = func(h host) Check { return h.broker(t.Context(), c.path) }
		c.want.check(t, name, nil)
	}
}

func wrongKind(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "h.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path
}

func noDirectory(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "none", "h.sock")
}

func TestABrokerThatHangsDoesNotHangUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	greeted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 4096)) // the hello, which nobody answers
			greeted <- c
		}
		cancel()
	}()
	c := fine(t, nil).broker(ctx, path)
	if c.Status != Error || !strings.Contains(c.Found, "does not answer") {
		t.Errorf("%+v", c)
	}
	_ = (<-greeted).Close()
}
