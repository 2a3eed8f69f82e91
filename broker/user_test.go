package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func init() { testutil.Register("stranger", stranger) }

// strangerUID is that of nobody in particular.
const strangerUID = 54321

// stranger is a child process that becomes another user, with a supplementary group,
// and asks for one thing after the other. It prints what it gets.
func stranger(args []string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(syscall.Setgroups([]int{54399}))
	check(syscall.Setgid(strangerUID))
	check(syscall.Setuid(strangerUID))
	conn, err := control.Dial(context.Background(), args[0])
	check(err)
	defer conn.Close()
	_, err = conn.SayHello(control.NewHello(ring.LayoutVersion))
	check(err)
	ask := func(op control.Op, body any) {
		raw, err := control.EncodeBody(body)
		check(err)
		check(conn.Send(control.Request{ID: 7, Op: op, Body: raw}))
		p, err := conn.Receive()
		check(err)
		m, err := control.DecodeMessage(p.Data)
		check(err)
		if m.Error != nil {
			fmt.Println(op, m.Error.Code, m.Error)
			return
		}
		fmt.Println(op, "ok", len(p.Files))
		if len(p.Files) != 0 {
			// The kernel must refuse what the broker did not give.
			f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.Files[control.FileData].Fd()), os.O_RDWR, 0)
			if err == nil {
				f.Close()
			}
			fmt.Println("reopen", os.IsPermission(err))
		}
		p.Discard()
	}
	ask(control.OpList, control.ListRequest{})
	ask(control.OpCreate, control.CreateRequest{Name: "mine"})
	ask(control.OpShow, control.ShowRequest{Name: "orders"})
	ask(control.OpRemove, control.RemoveRequest{Name: "orders"})
	ask(control.OpUnstick, control.UnstickRequest{Name: "orders"})
	ask(control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindPublisher})
	ask(control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber})
	ask(control.OpAttach, control.AttachRequest{Topic: "no such topic", Kind: control.KindSubscriber})
	ask(control.OpAttach, control.AttachRequest{Topic: "nosuchtopic", Kind: control.KindSubscriber})
}

// socketForAll is a socket path that other users reach.
func socketForAll(t *testing.T) string {
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "s")
}

func TestAnotherUserIsRefusedWithTheRulesName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; CI runs this as root too")
	}
	s := start(t, Config{Socket: socketForAll(t)})
	s.connect(t).create("orders", small)
	child := testutil.Start(t, "stranger", s.Addr())
	child.Expect("list ok 0")
	for _, what := range []string{"create", "see", "see", "see", "publish to", "subscribe to"} {
		line := child.Line()
		for _, want := range []string{" refused ", fmt.Sprintf("uid %d, pid %d", strangerUID, child.Pid()), "may not " + what + " topic", `rule "owner-only"`} {
			if !strings.Contains(line, want) {
				t.Errorf("%q does not say %q", line, want)
			}
		}
	}
	if line := child.Line(); !strings.Contains(line, "invalid") {
		t.Errorf("bad name: %q", line)
	}
	// Whether a topic exists is not told to who may not use it.
	if line := child.Line(); !strings.Contains(line, "refused") {
		t.Errorf("missing topic: %q", line)
	}
	child.Succeed()
}

func TestAnotherUserGetsWhatARuleGrants(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; CI runs this as root too")
	}
	s := start(t, Config{Socket: socketForAll(t), Access: []Rule{
		{Name: "readers", Topics: []string{"ord*"}, Groups: []string{"54399"}, Allow: []Right{Subscribe}},
	}})
	s.connect(t).create("orders", small)
	child := testutil.Start(t, "stranger", s.Addr())
	child.Expect("list ok 0")
	for _, want := range []string{`create refused`, "show ok 0", "remove refused", "unstick refused", "attach refused"} {
		if line := child.Line(); !strings.HasPrefix(line, want) {
			t.Errorf("%q, want %q", line, want)
		} else if strings.Contains(want, "attach") && !strings.Contains(line, `rule "readers": does not allow publish`) {
			t.Errorf("%q does not name the rule", line)
		}
	}
	child.Expect("attach ok 5")
	child.Expect("reopen true")
	child.Succeed()
	if err := os.Chmod(s.Addr(), 0o600); err != nil {
		t.Fatal(err)
	}
	barred := testutil.Start(t, "stranger", s.Addr())
	barred.Wait()
	if !strings.Contains(barred.Stderr(), "may not connect") || !strings.Contains(barred.Stderr(), "socket_mode") {
		t.Errorf("without rights on the socket: %s", barred.Stderr())
	}
}
