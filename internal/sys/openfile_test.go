package sys_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestSameOpenFile(t *testing.T) {
	eventFD := func() int {
		fd, err := sys.EventFD()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sys.CloseFD(fd) })
		return fd
	}
	a, b := eventFD(), eventFD()
	dup, err := sys.Dup(a)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(dup)
	for _, c := range []struct {
		name string
		x, y int
		want bool
	}{{"itself", a, a, true}, {"a duplicate", a, dup, true}, {"another eventfd", a, b, false}} {
		if got, err := sys.SameOpenFile(c.x, c.y); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	if _, err := sys.SameOpenFile(a, 1<<20); err == nil {
		t.Error("a descriptor that is not open: no error")
	}
}

func TestInodeOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var got [2]sys.Inode
	for i := range got {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got[i], err = sys.InodeOf(int(f.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != got[1] || got[0].Number == 0 {
		t.Errorf("one file opened twice: %v", got)
	}
	if _, err := sys.InodeOf(-1); err == nil {
		t.Error("descriptor -1: no error")
	}
}

func TestHungUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	raw, err := server.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	hungUp := func() (up bool) {
		var inner error
		if err := raw.Control(func(fd uintptr) { up, inner = sys.HungUp(int(fd)) }); err != nil || inner != nil {
			t.Fatal(err, inner)
		}
		return up
	}
	if _, err := client.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	if hungUp() {
		t.Error("hung up while the other end is open")
	}
	client.Close()
	if !hungUp() {
		t.Error("not hung up, with a packet unread, after the other end was closed")
	}
}

func TestRaiseFileLimit(t *testing.T) {
	n, err := sys.RaiseFileLimit()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := sys.RaiseFileLimit(); err != nil || again != n || n == 0 {
		t.Errorf("limit %d, then %d, %v", n, again, err)
	}
}
