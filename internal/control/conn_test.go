package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestPacketsKeepTheirBordersAndOrder(t *testing.T) {
	client, server := pair(t)
	for i := range 5 {
		if err := client.Send(Request{ID: uint64(i + 1), Op: OpPing}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		p, err := server.Receive()
		if err != nil {
			t.Fatal(err)
		}
		r, err := DecodeRequest(p.Data)
		if err != nil || r.ID != uint64(i+1) || r.Op != OpPing {
			t.Fatalf("request %d: %+v, %v", i, r, err)
		}
	}
	client.Close()
	if _, err := server.Receive(); err != io.EOF {
		t.Fatalf("after close: %v, want io.EOF", err)
	}
}

func TestDescriptorsArriveInOrderAndCloseOnExec(t *testing.T) {
	client, server := pair(t)
	var files []*os.File
	for _, text := range []string{"ctl", "cursors", "data"} {
		f, err := os.CreateTemp(t.TempDir(), text)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if err := server.Send(Message{ID: 1}, files...); err != nil {
		t.Fatal(err)
	}
	p, err := client.Receive()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard()
	if len(p.Files) != 3 {
		t.Fatalf("%d descriptors arrived, want 3", len(p.Files))
	}
	for i, want := range []string{"ctl", "cursors", "data"} {
		got := make([]byte, 16)
		n, _ := p.Files[i].ReadAt(got, 0)
		if string(got[:n]) != want {
			t.Errorf("descriptor %d reads %q, want %q", i, got[:n], want)
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + itoa(int(p.Files[i].Fd())))
		if err != nil {
			t.Fatal(err)
		}
		// flags are octal; 02000000 is O_CLOEXEC.
		if !bytes.Contains(info, []byte("flags:\t02")) {
			t.Errorf("descriptor %d is not close-on-exec: %s", i, info)
		}
	}
}

func itoa(n int) string { return strings.TrimSpace(string(appendInt(nil, n))) }

func appendInt(b []byte, n int) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

func TestTooLargeIsRefusedOnBothSides(t *testing.T) {
	client, server := pair(t)
	err := client.Send(Request{ID: 1, Op: OpPing, Body: []byte(`"` + strings.Repeat("x", MaxMessage) + `"`)})
	wantCode(t, err, CodeTooLarge)

	for _, size := range []int{MaxRequest + 1, MaxRequest + 2, MaxMessage} {
		if _, _, err := client.socket.WriteMsgUnix(make([]byte, size), nil, nil); err != nil {
			t.Fatal(err)
		}
		_, err = server.Receive()
		wantCode(t, err, CodeTooLarge)
	}
	// The connection still works.
	if err := client.Send(Request{ID: 2, Op: OpPing}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Receive(); err != nil {
		t.Fatal(err)
	}
}

func TestLargestMessageArrivesWhole(t *testing.T) {
	client, server := pair(t)
	for _, c := range []struct {
		from, to *Conn
		size     int
	}{{client, server, MaxRequest}, {server, client, MaxMessage}} {
		if _, _, err := c.from.socket.WriteMsgUnix(bytes.Repeat([]byte("x"), c.size), nil, nil); err != nil {
			t.Fatal(err)
		}
		p, err := c.to.Receive()
		if err != nil || len(p.Data) != c.size {
			t.Fatalf("%d bytes, %v", len(p.Data), err)
		}
	}
}

func TestDescriptorsOfBadPacketsAreClosed(t *testing.T) {
	client, server := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	rights := func(n int) []byte {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		return sys.Rights(fds)
	}
	before := openFDs()
	cases := []struct {
		name string
		data []byte
		n    int
		code Code
	}{
		{"one more than allowed", []byte("{}"), MaxDescriptors + 1, CodeDescriptors},
		{"as many as the buffer holds", []byte("{}"), 2 * MaxDescriptors, CodeDescriptors},
		{"cut off control data", []byte("{}"), 100, CodeDescriptors},
		{"too large a message", make([]byte, MaxRequest+1), 3, CodeTooLarge},
	}
	for _, c := range cases {
		if _, _, err := client.socket.WriteMsgUnix(c.data, rights(c.n), nil); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		_, err := server.Receive()
		wantCode(t, err, c.code)
		if after := openFDs(); after != before {
			t.Errorf("%s: %d descriptors open, %d before", c.name, after, before)
		}
	}
}

func TestEmptyPacketIsTheEnd(t *testing.T) {
	client, server := pair(t)
	if _, err := client.socket.Write(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Receive(); err != io.EOF {
		t.Errorf("empty packet: %v, want io.EOF", err)
	}
}

func TestSendRefusesTooManyDescriptors(t *testing.T) {
	client, _ := pair(t)
	wantCode(t, client.Send(Request{ID: 1, Op: OpPing}, make([]*os.File, MaxDescriptors+1)...), CodeDescriptors)
}

func TestSendEndsWithItsContextWhenNobodyReads(t *testing.T) {
	client, server := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	sent := uint64(0)
	for {
		err := client.SendContext(ctx, Request{ID: sent + 1, Op: OpPing})
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent++
	}
	// One waits for room, the others for that one; each ends with its own context, and none has been sent.
	first, end := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { waiting <- client.SendContext(first, Request{ID: 1 << 20, Op: OpPing}) }()
	short, cancelShort := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelShort()
	if err := client.SendContext(short, Request{ID: 1 << 21, Op: OpPing}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	end()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// What was sent is there, and when it is read there is room again.
	for n := range sent {
		p, err := server.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if r, err := DecodeRequest(p.Data); err != nil || r.ID != n+1 {
			t.Fatalf("packet %d: %+v, %v", n, r, err)
		}
	}
	if err := client.Send(Request{ID: 7, Op: OpPing}); err != nil {
		t.Fatal(err)
	}
	if p, err := server.Receive(); err != nil || !strings.Contains(string(p.Data), `"id":7`) {
		t.Errorf("%s, %v", p.Data, err)
	}
}

func TestCloseEndsReceive(t *testing.T) {
	client, _ := pair(t)
	done := make(chan error)
	go func() {
		_, err := client.Receive()
		done <- err
	}()
	client.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("receive on a closed connection: %v", err)
	}
}

func TestPeerIsThisProcess(t *testing.T) {
	client, server := pair(t)
	id, err := server.Peer()
	if err != nil {
		t.Fatal(err)
	}
	if int(id.PID) != os.Getpid() || int(id.UID) != os.Getuid() || int(id.GID) != os.Getgid() {
		t.Errorf("identity %+v is not that of this process", id)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range append(groups, os.Getgid()) {
		if !id.InGroup(uint32(g)) {
			t.Errorf("group %d is missing in %v", g, id.Groups)
		}
	}
	if exited, known := server.PeerExited(0); known && exited {
		t.Error("this process is said to have ended")
	}
	client.Close()
	if s := id.String(); !strings.Contains(s, "uid "+itoa(os.Getuid())) || !strings.Contains(s, "pid "+itoa(os.Getpid())) {
		t.Errorf("identity reads %q", s)
	}
}

func wantCode(t *testing.T, err error, code Code) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v, want code %s", err, code)
	}
}
