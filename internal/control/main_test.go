package control

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	before := openFDs()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if after := openFDs(); after > before {
		fmt.Fprintf(os.Stderr, "descriptors leaked: %d before, %d after\n", before, after)
		code = 1
	}
	os.Exit(code)
}

// openFDs counts this process's descriptors, without those of the Go runtime's poller,
// which come with the first use of the network.
func openFDs() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
			continue
		}
		n++
	}
	return n
}

// pair connects two Conns through a listening socket, as broker and client are.
func pair(t testing.TB) (client, server *Conn) {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	server = NewConn(s, MaxRequest)
	t.Cleanup(func() { client.Close(); server.Close() })
	for _, c := range []*Conn{client, server} {
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return client, server
}

// shortDir is a temporary directory whose path leaves room for a socket's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
