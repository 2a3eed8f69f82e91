package testutil_test

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestChildHasItsRoleArgumentsAndInput(t *testing.T) {
	p := testutil.Start(t, "echo", "one", "two words")
	p.Expect("one two words")
	p.Send("x")
	p.Expect("got x")
	p.Send("y")
	p.ExpectError("noted y")
	p.CloseInput()
	p.Succeed()
	if got, want := p.Stdout(), "one two words\ngot x\ngot y\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if p.Expect("got y"); p.Pid() == os.Getpid() {
		t.Error("the child is this process")
	}
}

func TestChildExitStatus(t *testing.T) {
	for _, status := range []int{0, 1, 77} {
		p := testutil.Start(t, "exit", strconv.Itoa(status))
		if got := p.Wait().ExitCode(); got != status {
			t.Errorf("status %d, want %d", got, status)
		}
	}
}

func TestChildOfAnUnknownRole(t *testing.T) {
	p := testutil.Start(t, "nobody")
	if s := p.Wait(); s.ExitCode() != 2 || !strings.Contains(p.Stderr(), `no role "nobody" here; there are ["echo"`) {
		t.Errorf("%v: %s", s, p.Stderr())
	}
}

func TestChildThatIsKilled(t *testing.T) {
	p := testutil.Start(t, "hang")
	p.Expect("hanging")
	p.Kill()
	if ws := p.Wait().Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v", ws)
	}
	p.Signal(os.Interrupt) // to one that is gone: no error
}

func TestChildThatStopsGoesOn(t *testing.T) {
	p := testutil.Start(t, "stop")
	p.AtFailpoint("here")
	p.Signal(syscall.SIGCONT)
	p.Expect("resumed")
	p.Succeed()
}

func TestHaltedChildGoesOn(t *testing.T) {
	p := testutil.Start(t, "echo")
	p.Expect("")
	p.Halt()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil || !strings.Contains(string(stat), ") T ") {
		t.Errorf("%s, %v", stat, err)
	}
	p.Send("x")
	p.Signal(syscall.SIGCONT)
	p.Expect("got x")
	p.CloseInput()
	p.Succeed()
}

func TestChildIsKilledWhenItsTestEnds(t *testing.T) {
	var p *testutil.Proc
	t.Run("inner", func(t *testing.T) {
		p = testutil.Start(t, "hang")
		p.Expect("hanging")
	})
	if ws := p.Wait().Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v", ws)
	}
}

// TestChildDoesNotOutliveItsParent kills a process whose own child is stopped, which a test that crashes leaves.
func TestChildDoesNotOutliveItsParent(t *testing.T) {
	p := testutil.Start(t, "nest")
	grandchild, err := strconv.Atoi(p.Line())
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	testutil.Eventually(t, "the grandchild is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", grandchild))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func TestChildGetsFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testutil.Launch(t, testutil.Child{Role: "files", Files: []*os.File{r}})
	r.Close()
	if _, err := io.WriteString(w, "through a pipe"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	p.Expect("through a pipe <nil>")
	p.Succeed()
}

// TestChildPassesNoRoleOn: what a role starts by itself must not think that it is the role.
func TestChildPassesNoRoleOn(t *testing.T) {
	p := testutil.Launch(t, testutil.Child{Role: "environment", Env: []string{"COLOUR=green"}})
	p.Expect("|green")
	p.Succeed()
}

func TestRegisterTwice(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "role echo is registered twice") {
			t.Error(got)
		}
	}()
	testutil.Register("echo", nil)
}

// complaints records what a testing.TB is told, in place of failing.
type complaints struct {
	testing.TB
	text    string
	cleanup []func()
}

type stopped struct{}

func (c *complaints) Helper()             {}
func (c *complaints) Cleanup(f func())    { c.cleanup = append(c.cleanup, f) }
func (c *complaints) Failed() bool        { return c.text != "" }
func (c *complaints) Logf(string, ...any) {}
func (c *complaints) Fatalf(format string, args ...any) {
	c.text = fmt.Sprintf(format, args...)
	panic(stopped{})
}

// told returns what f complains of.
func told(t *testing.T, f func(testing.TB)) string {
	c := &complaints{TB: t}
	defer func() {
		for _, f := range c.cleanup {
			f()
		}
	}()
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(stopped{}) {
				panic(r)
			}
		}()
		f(c)
	}()
	return c.text
}

func TestComplaintsNameTheChildsWords(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		do   func(testing.TB)
	}{
		"other line":   {`says "one", want "two"`, func(t testing.TB) { testutil.Start(t, "echo", "one").Expect("two") }},
		"no line":      {"waiting for a line from child", func(t testing.TB) { testutil.Start(t, "exit", "0").Line() }},
		"other error":  {`waiting for "gone" on standard error`, func(t testing.TB) { testutil.Start(t, "exit", "0").ExpectError("gone") }},
		"status":       {"exit status 9", func(t testing.TB) { testutil.Start(t, "exit", "9").Succeed() }},
		"role's words": {"no role", func(t testing.TB) { testutil.Start(t, "nobody").Succeed() }},
		"no program":   {"start /nowhere", func(t testing.TB) { testutil.Launch(t, testutil.Child{Binary: "/nowhere"}) }},
		"no package":   {"go list", func(t testing.TB) { testutil.BuildTagged(t, "github.com/hugebus/hugebus/nowhere", "x") }},
		"written after": {"to child", func(t testing.TB) {
			p := testutil.Start(t, "exit", "0")
			p.Wait()
			p.Send("too late")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told(t, c.do); !strings.Contains(got, c.want) {
				t.Errorf("says %q, want %q in it", got, c.want)
			}
		})
	}
}
