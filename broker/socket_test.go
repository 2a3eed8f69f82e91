package broker

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newFails(t *testing.T, c Config, want ...string) {
	t.Helper()
	b, err := New(c)
	if err == nil {
		b.Close()
		t.Fatalf("a broker on %s started", c.Socket)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

func TestSecondBrokerIsRefusedWithThePIDOfTheFirst(t *testing.T) {
	s := start(t, Config{})
	newFails(t, Config{Socket: s.Addr()}, "another broker", fmt.Sprintf("pid %d", os.Getpid()), s.Addr(), "--socket")
	s.connect(t).create("still", small) // the first one is not disturbed
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	start(t, Config{Socket: s.Addr()}).connect(t)
}

func TestStaleSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	start(t, Config{Socket: path}).connect(t)
}

func TestWhatIsNotAStaleSocketIsLeftAlone(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	newFails(t, Config{Socket: file}, "is there and not a socket")
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file now reads %q, %v", text, err)
	}
	for _, kind := range []string{"unix", "unixpacket"} {
		path := filepath.Join(dir, kind)
		l, err := net.Listen(kind, path)
		if err != nil {
			t.Fatal(err)
		}
		newFails(t, Config{Socket: path}, "another program listens on "+path)
		l.Close()
	}
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "link.lock")); err != nil {
		t.Fatal(err)
	}
	newFails(t, Config{Socket: filepath.Join(dir, "link")}, "lock file")
}

func TestSocketPathErrors(t *testing.T) {
	dir := shortDir(t)
	missing := filepath.Join(dir, "nowhere")
	newFails(t, Config{Socket: filepath.Join(missing, "s")}, "mkdir -p "+missing)
	newFails(t, Config{Socket: filepath.Join(dir, strings.Repeat("x", 120))}, "above the kernel's limit of 107")
}

func TestSocketModeAndCleanStop(t *testing.T) {
	for _, c := range []struct{ set, want os.FileMode }{{0, 0o666}, {0o600, 0o600}} {
		s := start(t, Config{SocketMode: c.set})
		info, err := os.Stat(s.Addr())
		if err != nil || info.Mode().Perm() != c.want {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, c.want)
		}
		s.stop()
		if err := <-s.done; err != nil {
			t.Errorf("clean stop: %v", err)
		}
		if _, err := os.Lstat(s.Addr()); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	}
}

func TestMetricsAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(shortDir(t), "s")
	newFails(t, Config{Socket: path, Metrics: l.Addr().String()}, "address already in use", "--metrics")
	start(t, Config{Socket: path}) // nothing was left behind
}

func TestTopicsOfTheConfigThatCannotBeMade(t *testing.T) {
	c := Config{
		Socket: filepath.Join(shortDir(t), "s"), Quotas: Quotas{Limits: Limits{Topics: 1}},
		Topics: []TopicConfig{{Name: "a", Options: small}, {Name: "b", Options: small}},
	}
	newFails(t, c, "topics[1]", `topic "b"`, "quotas.topics")
	c.Quotas = Quotas{}
	s := start(t, c)
	if s.topics.count() != 2 {
		t.Errorf("%d topics", s.topics.count())
	}
}

func TestServeTwiceAndAfterClose(t *testing.T) {
	s := start(t, Config{})
	s.connect(t)
	if err := s.Serve(t.Context()); err == nil {
		t.Error("a second Serve succeeded")
	}
	b, err := New(Config{Socket: filepath.Join(shortDir(t), "s")})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if err := b.Serve(t.Context()); err == nil {
		t.Error("Serve after Close succeeded")
	}
}
