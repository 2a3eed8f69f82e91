package sys_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestPollerTellsWhoCanBeRead(t *testing.T) {
	p, err := sys.NewPoller(4)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var pairs [3][2]int
	for i := range pairs {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		pairs[i] = pair
		defer sys.CloseFD(pair[0])
		if err := p.Add(pair[0], int32(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := p.Wait(nil, 0); err != nil || len(got) != 0 {
		t.Errorf("before anything was written: %v, %v", got, err)
	}
	if n, err := sys.Write(pairs[2][1], []byte("x")); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := sys.CloseFD(pairs[0][1]); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is not read is told again
		got, err := p.Wait(nil, 10*time.Second)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, []int32{0, 2}) {
			t.Errorf("%v, %v, want the one with a byte and the one that ended", got, err)
		}
	}
	if n, err := sys.Read(pairs[2][0], make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, fd := range []int{pairs[1][1], pairs[2][1]} {
		if err := sys.CloseFD(fd); err != nil {
			t.Error(err)
		}
	}
	if err := p.Add(-1, 0); err == nil {
		t.Error("a descriptor that is none can be watched")
	}
}

func TestResetOnClose(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.ResetOnClose(pair[0]); err != nil {
		t.Error(err)
	}
	l, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_LINGER)
	if err != nil || l != 1 {
		t.Errorf("lingering %d, %v", l, err)
	}
	for _, fd := range pair {
		if err := sys.CloseFD(fd); err != nil {
			t.Error(err)
		}
	}
	if err := sys.ResetOnClose(pair[0]); err == nil {
		t.Error("a closed descriptor has settings")
	}
}
