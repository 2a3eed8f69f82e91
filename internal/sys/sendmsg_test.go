package sys_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestSendMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	send := func(text string, oob []byte) (sent error) {
		if err := raw.Control(func(fd uintptr) { sent = sys.SendMessage(int(fd), []byte(text), oob) }); err != nil {
			t.Fatal(err)
		}
		return sent
	}
	if err := send("with a descriptor", sys.Rights([]int{int(os.Stderr.Fd())})); err != nil {
		t.Fatal(err)
	}
	data, oob := make([]byte, 64), make([]byte, sys.RightsSpace(1))
	n, oobn, flags, _, err := server.ReadMsgUnix(data, oob)
	if err != nil || string(data[:n]) != "with a descriptor" {
		t.Fatalf("%q, %v", data[:n], err)
	}
	fds, err := sys.ParseRights(oob[:oobn], flags)
	if err != nil || len(fds) != 1 {
		t.Fatalf("%v, %v", fds, err)
	}
	sys.CloseFD(fds[0])
	for err = nil; err == nil; {
		err = send("until there is no room", nil)
	}
	if err != unix.EAGAIN {
		t.Errorf("a full queue: %v", err)
	}
	server.Close()
	if err := send("", nil); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody there: %v", err)
	}
}
