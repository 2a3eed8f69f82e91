package failpoint_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/testutil"
)

const here, there = "here", "there"

func init() { testutil.Register("walk", walk) }

// walk hits two failpoints three times and says after each which hits it has counted.
func walk([]string) {
	for range 3 {
		failpoint.Hit(here)
		fmt.Println(here, failpoint.Hits(here))
		failpoint.Hit(there)
		fmt.Println(there, failpoint.Hits(there))
	}
}

func TestMain(m *testing.M) { testutil.Main(m) }

const all = "here 1\nthere 1\nhere 2\nthere 2\nhere 3\nthere 3\n"

func TestActions(t *testing.T) {
	program := testutil.BuildTagged(t, "github.com/hugebus/hugebus/internal/failpoint", "failpoint")
	start := func(t *testing.T, points string) *testutil.Proc {
		return testutil.Launch(t, testutil.Child{Binary: program, Role: "walk", Env: []string{failpoint.Env + "=" + points}})
	}
	for points, want := range map[string]struct{ stdout, stderr, end string }{
		"":                         {all, "", "exit status 0"},
		"elsewhere=kill":           {all, "", "exit status 0"},
		"here=kill@4":              {all, "", "exit status 0"},
		"here=kill":                {"", "", "signal: killed"},
		"there=kill@2":             {"here 1\nthere 1\nhere 2\n", "", "signal: killed"},
		"here=exit@2":              {"here 1\nthere 1\n", "", "exit status 3"},
		"there=panic":              {"here 1\n", "failpoint there", "exit status 2"},
		"there=exit@3;here=exit@3": {"here 1\nthere 1\nhere 2\nthere 2\n", "", "exit status 3"},
		"here=explode":             {"", `HUGEBUS_FAILPOINTS: "here=explode": unknown action "explode"`, "exit status 2"},
	} {
		t.Run(points, func(t *testing.T) {
			p := start(t, points)
			s := p.Wait()
			if p.Stdout() != want.stdout || !strings.Contains(p.Stderr(), want.stderr) || s.String() != want.end {
				t.Errorf("%v\nstdout %q\nstderr %q", s, p.Stdout(), p.Stderr())
			}
		})
	}

	t.Run("stop and go on", func(t *testing.T) {
		p := start(t, "there=stop@2")
		p.AtFailpoint(there)
		if got, want := p.Stdout(), "here 1\nthere 1\nhere 2\n"; got != want {
			t.Errorf("stopped after %q, want %q", got, want)
		}
		p.Signal(syscall.SIGCONT)
		p.Succeed()
		if p.Stdout() != all {
			t.Errorf("in the end %q", p.Stdout())
		}
	})

	t.Run("stop and be killed", func(t *testing.T) {
		p := start(t, "here=stop")
		p.AtFailpoint(here)
		p.Signal(os.Kill)
		if ws := p.Wait().Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL || p.Stdout() != "" {
			t.Errorf("%v, said %q", ws, p.Stdout())
		}
	})
}

// TestOffCostsNothing asks the compiler: a call of an inlined empty function is no code.
func TestOffCostsNothing(t *testing.T) {
	out, err := exec.Command("go", "build", "-gcflags=-m=2", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "can inline Hit with cost 0") {
		t.Errorf("Hit is not free:\n%s", out)
	}
}
