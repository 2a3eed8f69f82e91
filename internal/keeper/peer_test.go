package keeper

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
)

// strangerName is the hidden subcommand of this test binary that plays another user: "dial" tries to get a keeper's
// lease and prints what comes of it; "listen" is a socket in the place of a keeper's, until its input ends.
const (
	strangerName = "stranger-under-test"
	strangerID   = 65534
)

func strangerRole() {
	if len(os.Args) != 4 || os.Args[1] != strangerName {
		return
	}
	path := os.Args[3]
	if os.Args[2] == "listen" {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err == nil {
			err = os.Chmod(path, 0o666)
		}
		fmt.Println("listening", err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
		os.Exit(0)
	}
	socket, err := net.Dial("unixpacket", path)
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	l := newLink(socket.(*net.UnixConn))
	err = l.Send(control.Request{ID: 1, Op: opHello, Body: []byte(`{"protocol":1,"lease":true}`)})
	if err == nil {
		var p control.Packet
		p, err = l.Receive()
		fmt.Println(string(p.Data))
	}
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(0)
}

// stranger is this test binary as another user, who can reach it and the directory.
func stranger(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	data, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{strangerName}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: strangerID, Gid: strangerID}}
	return cmd
}

func TestKeeperServesItsUserAndRoot(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	info, err := os.Stat(o.Socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v, want 0600", info.Mode(), err)
	}
	dial := func() string {
		out, err := stranger(t, filepath.Dir(o.Socket), "dial", o.Socket).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := dial(); !strings.Contains(got, "permission denied") {
		t.Errorf("another user: %s", got)
	}
	// The mode is the first line of defence, the kernel's word on who it is the second.
	if err := os.Chmod(o.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := dial(); !strings.Contains(got, "serves uid 0 and root, not uid 65534") || !strings.Contains(got, `"refused"`) {
		t.Errorf("another user, through an open door: %s", got)
	}
	mustPut(t, r, "k", "it serves its broker all the same")
}

func TestBrokerTrustsNoStrangersKeeper(t *testing.T) {
	socket := newSocket(t)
	cmd := stranger(t, filepath.Dir(socket), "listen", socket)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	line := make([]byte, len("listening <nil>"))
	if _, err := io.ReadFull(stdout, line); err != nil || string(line) != "listening <nil>" {
		t.Fatalf("%s, %v", line, err)
	}
	_, err = Start(t.Context(), options(t, socket))
	if err == nil || !strings.Contains(err.Error(), "belongs to a process of uid 65534") {
		t.Errorf("a stranger's socket: %v", err)
	}
}

func TestTrusted(t *testing.T) {
	me := uint32(os.Geteuid())
	for uid, want := range map[uint32]bool{0: true, me: true, me + 1: false, strangerID: me == strangerID} {
		if got := trusted(control.Identity{UID: uid}); got != want {
			t.Errorf("uid %d: %v", uid, got)
		}
	}
}
