package sys

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestListenOverflows(t *testing.T) {
	for _, tc := range []struct {
		text             string
		overflows, drops uint64
		wrong            string
	}{
		{"TcpExt: A ListenOverflows B ListenDrops\nTcpExt: 1 2 3 4\nIpExt: A ListenDrops\nIpExt: 5 6\n", 2, 4, ""},
		{"TcpExt: A ListenOverflows\nTcpExt: 1 2\n", 2, 0, "no ListenDrops"},
		{"TcpExt: A ListenOverflows ListenDrops\nTcpExt: 1 2\n", 2, 0, "no ListenDrops"},
		{"TcpExt: ListenOverflows ListenDrops\nTcpExt: x 2\n", 0, 0, "ListenOverflows"},
		{"IpExt: A\nIpExt: 1\n", 0, 0, "no two lines TcpExt"},
	} {
		overflows, drops, err := listenOverflows(tree(t, map[string]string{"proc/net/netstat": tc.text}))
		if overflows != tc.overflows || drops != tc.drops || (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%q: %d, %d, %v", tc.text, overflows, drops, err)
		}
	}
	if _, _, err := listenOverflows(t.TempDir()); err == nil {
		t.Error("no file, and no error")
	}
	if _, _, err := ListenOverflows(); err != nil {
		t.Error(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if _, _, err := ListenQueue(fds[0]); err == nil {
		t.Error("the queue of a Unix socket")
	}
}
