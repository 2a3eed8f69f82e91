package sys_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// TestDropsAreCounted fills a socket's queue, and looks at the count both ways: as the socket has it, and as a datagram brings it.
func TestDropsAreCounted(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, sys.SetSocketOption(fd, sys.CountDrops, 1))
	must(t, sys.SetSocketOption(fd, sys.RecvBuffer, 1))
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	must(t, err)
	sender, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(sender)
	send := func() { must(t, unix.Sendto(sender, []byte("some bytes"), 0, name)) }
	receive := func() (drops uint32, told bool) {
		oob := make([]byte, sys.DropsSpace())
		_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 100), oob, 0)
		must(t, err)
		return sys.ParseDrops(oob[:n])
	}
	if n, err := sys.Drops(fd); n != 0 || err != nil {
		t.Errorf("at first: %d, %v", n, err)
	}
	const sent = 200
	for range sent {
		send()
	}
	dropped, err := sys.Drops(fd)
	must(t, err)
	if n, told := receive(); told || n != 0 || dropped == 0 || dropped >= sent {
		t.Errorf("the first datagram: %d, %t; %d dropped", n, told, dropped)
	}
	for i := dropped; i < sent-1; i++ {
		receive()
	}
	send()
	if n, told := receive(); !told || n != dropped {
		t.Errorf("the last datagram: %d, %t; %d dropped", n, told, dropped)
	}
	if _, told := sys.ParseDrops([]byte{1, 2, 3}); told {
		t.Error("a count in rubbish")
	}
	if _, err := sys.Drops(-1); err == nil {
		t.Error("a count of no socket")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
