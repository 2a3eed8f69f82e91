package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

func init() { testutil.Register("intruder", intruderRole) }

// nobody is a user without rights of any kind.
const nobody = 65534

// intruderRole attaches as a subscriber, by hand, and tries to write to what it got. It says for each of ctl and data
// what mapping it writable, and opening it again for writing, gave.
func intruderRole(args []string) {
	if err := intrude(args[0], args[1]); err != nil {
		fmt.Println("error", err)
	}
}

func intrude(socket, topic string) error {
	conn, err := control.Dial(context.Background(), socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.SayHello(control.NewHello(ring.LayoutVersion)); err != nil {
		return err
	}
	toRead, err := attachSubscriber(conn, 2, topic)
	if err != nil {
		return err
	}
	defer toRead.Discard()
	toWrite, err := attachSubscriber(conn, 3, topic)
	if err != nil {
		return err
	}
	defer toWrite.Discard()
	for i, name := range map[int]string{control.FileCtl: "ctl", control.FileData: "data"} {
		again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", toRead.Files[i].Fd()), os.O_RDWR, 0)
		fmt.Println(name, "opened again:", cause(err))
		if err == nil {
			again.Close()
		}
		// Reading is what it may: otherwise the errors here would say nothing.
		s, err := shm.Open(toRead.Files[i], false)
		if err != nil {
			return err
		}
		s.Close()
		_, err = shm.Open(toWrite.Files[i], true)
		fmt.Println(name, "mapped writable:", cause(err))
	}
	return nil
}

func attachSubscriber(conn *control.Conn, id uint64, topic string) (control.Packet, error) {
	body, err := control.EncodeBody(control.AttachRequest{Topic: topic, Kind: control.KindSubscriber})
	if err != nil {
		return control.Packet{}, err
	}
	if err := conn.Send(control.Request{ID: id, Op: control.OpAttach, Body: body}); err != nil {
		return control.Packet{}, err
	}
	reply, err := conn.Receive()
	if err != nil {
		return control.Packet{}, err
	}
	m, err := control.DecodeMessage(reply.Data)
	if err == nil && m.Error != nil {
		err = m.Error
	}
	return reply, err
}

// cause names the errno of an error.
func cause(err error) string {
	switch {
	case err == nil:
		return "ALLOWED"
	case errors.Is(err, syscall.EACCES):
		return "EACCES"
	}
	return err.Error()
}

// says checks what an intruder says, which is four lines, some of them known.
func says(t *testing.T, p *testutil.Proc, known ...string) {
	t.Helper()
	p.Succeed()
	out := p.Stdout()
	for _, line := range known {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("the intruder does not say %q, but\n%s", line, out)
		}
	}
	if n := strings.Count(out, "\n"); n != 4 {
		t.Errorf("the intruder says %d lines, want 4:\n%s", n, out)
	}
}

func TestSubscriberCannotMapFramesWritable(t *testing.T) {
	for _, pages := range []string{"4KiB", "auto"} {
		w := newWorld(t)
		topic := w.topic(t, client.TopicOptions{Capacity: 2 << 20, Pages: pages})
		p := testutil.Start(t, "intruder", w.socket, topic)
		says(t, p, "ctl mapped writable: EACCES", "data mapped writable: EACCES")
	}
}

// TestSubscriberOfAnotherUserCannotOpenFramesForWriting: the owner of a memfd may open it again through /proc as it
// likes, and so may root; nobody else may, whatever descriptor it was given.
func TestSubscriberOfAnotherUserCannotOpenFramesForWriting(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := newBroker(t, broker.Config{
		Socket: filepath.Join(dir, "s"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Access: []broker.Rule{{Name: "strangers read", Topics: []string{"open"}, Users: []string{fmt.Sprint(nobody)}, Allow: []broker.Right{broker.Subscribe}}},
	})
	c := dial(t, socket)
	for _, topic := range []string{"open", "shut"} {
		if _, err := c.CreateTopic(t.Context(), topic, client.TopicOptions{Capacity: 2 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	binary := copyOfSelf(t, dir)
	intruder := func(topic string) *testutil.Proc {
		return testutil.Launch(t, testutil.Child{
			Binary: binary, Role: "intruder", Args: []string{socket, topic}, User: &syscall.Credential{Uid: nobody, Gid: nobody},
		})
	}
	says(t, intruder("open"), "ctl opened again: EACCES", "data opened again: EACCES",
		"ctl mapped writable: EACCES", "data mapped writable: EACCES")
	refused := intruder("shut")
	refused.Succeed()
	if out := refused.Stdout(); !strings.Contains(out, "error") || !strings.Contains(out, "shut") {
		t.Errorf("a topic without a rule: %s", out)
	}
}

// copyOfSelf copies this test binary to where everybody may execute it.
func copyOfSelf(t *testing.T, dir string) string {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	name := filepath.Join(dir, "binary")
	out, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}
