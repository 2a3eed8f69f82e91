package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestDefaultSocketByUser(t *testing.T) {
	cases := []struct {
		uid         int
		run, tmp, w string
	}{
		{0, "/run/user/0", "/tmp", "/run/hugebus/control.sock"},
		{1000, "/run/user/1000", "/tmp", "/run/user/1000/hugebus/control.sock"},
		{1000, "", "/tmp", "/tmp/hugebus-1000/control.sock"},
		{1000, "relative", "/var/tmp", "/var/tmp/hugebus-1000/control.sock"},
	}
	for _, c := range cases {
		if got := defaultSocket(c.uid, c.run, c.tmp); got != c.w {
			t.Errorf("uid %d, runtime dir %q: %s, want %s", c.uid, c.run, got, c.w)
		}
	}
}

func TestSocketPathLimits(t *testing.T) {
	longest := "/" + strings.Repeat("x", MaxSocketPath-1)
	if err := CheckSocketPath(longest); err != nil {
		t.Errorf("%d bytes: %v", len(longest), err)
	}
	err := CheckSocketPath(longest + "x")
	if err == nil || !strings.Contains(err.Error(), "has 108 bytes, above the kernel's limit of 107") {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := Dial(t.Context(), longest+"x"); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("dial: %v", err)
	}
	for _, bad := range []string{"", "@abstract"} {
		if CheckSocketPath(bad) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestSocketDirMissing(t *testing.T) {
	dir := filepath.Join(shortDir(t), "nowhere")
	path := filepath.Join(dir, "s")
	err := PrepareSocketDir(path)
	if err == nil || !strings.Contains(err.Error(), "mkdir -p "+dir) {
		t.Errorf("broker's side: %v", err)
	}
	_, err = Dial(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "directory "+dir+" is not there") {
		t.Errorf("client's side: %v", err)
	}
	file := filepath.Join(filepath.Dir(dir), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := PrepareSocketDir(filepath.Join(file, "s")); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a file as directory: %v", err)
	}
}

func TestOwnDirIsMadeAndChecked(t *testing.T) {
	base := shortDir(t)
	dir := filepath.Join(base, "a", "hugebus")
	if err := prepareOwnDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := prepareOwnDir(dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := checkOwnDir(dir); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a directory that everybody may write: %v", err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	if err := checkOwnDir(link); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a symbolic link: %v", err)
	}
	if os.Geteuid() == 0 {
		strange := filepath.Join(base, "strange")
		if err := os.Mkdir(strange, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(strange, 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := checkOwnDir(strange); err == nil || !strings.Contains(err.Error(), "does not belong to uid 0") {
			t.Errorf("a stranger's directory: %v", err)
		}
	}
}

func TestDialSaysWhatIsMissing(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	if _, err := Dial(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no such socket") {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Dial(t.Context(), path); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("stale socket: %v", err)
	}
	stream := filepath.Join(dir, "stream")
	sl, err := net.Listen("unix", stream)
	if err != nil {
		t.Fatal(err)
	}
	defer sl.Close()
	if _, err := Dial(t.Context(), stream); err == nil || !strings.Contains(err.Error(), "socket of another kind") {
		t.Errorf("stream socket: %v", err)
	}
}

func TestDialTriesAgainWhileTheBrokersQueueIsFull(t *testing.T) {
	full := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EAGAIN)}
	client, _ := net.Pipe()
	defer client.Close()
	tries := 0
	got, err := dialPatiently(t.Context(), func() (net.Conn, error) {
		if tries++; tries < 4 {
			return nil, full
		}
		return client, nil
	})
	if err != nil || got != client || tries != 4 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = dialPatiently(ctx, func() (net.Conn, error) { cancel(); return nil, full })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("after the context ended: %v", err)
	}
}
