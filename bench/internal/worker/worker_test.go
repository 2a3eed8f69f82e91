package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

// asWorker is the first argument of this test binary when it is a worker of a test.
const asWorker = "as-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asWorker {
		core, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = Serve(testRoles, core, os.Stdin, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testutil.Main(m)
}

func init() { testutil.Register("parent", parent) }

type sum struct {
	A, B int
}

var testRoles = map[string]Role{
	"add": func(t *Task) (any, error) {
		var s sum
		if err := t.Decode(&s); err != nil {
			return nil, err
		}
		return s.A + s.B, t.Await()
	},
	"fail": func(*Task) (any, error) { return nil, errors.New("the broker said no") },
	"fail late": func(t *Task) (any, error) {
		return nil, errors.Join(t.Await(), errors.New("frame 7 arrived changed"))
	},
	"die": func(t *Task) (any, error) {
		if err := t.Await(); err != nil {
			return nil, err
		}
		os.Exit(7)
		return nil, nil
	},
	// It tells its process number through a pipe, its first file, and then spins, like the side of a
	// measurement whose peer is gone.
	"spin": func(t *Task) (any, error) {
		f, err := t.File(0)
		if err != nil {
			return nil, err
		}
		if err := t.Await(); err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
			return nil, err
		}
		for n := 0; ; n++ {
			spun = n
		}
	},
	"read": func(t *Task) (any, error) {
		f, err := t.File(0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := t.Await(); err != nil {
			return nil, err
		}
		text := make([]byte, 5)
		_, err = f.ReadAt(text, 0)
		return string(text), err
	},
}

var spun int

func options(cores []int, files ...*os.File) Options {
	return Options{
		Args:  func(core int) []string { return []string{asWorker, strconv.Itoa(core)} },
		Cores: cores, Files: files, Stderr: os.Stderr,
	}
}

func start(t *testing.T, cores []int, files ...*os.File) *Team {
	t.Helper()
	team, err := Start(t.Context(), options(cores, files...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(team.Close)
	return team
}

func TestWorkersDoTaskAfterTask(t *testing.T) {
	team := start(t, []int{Unpinned, Unpinned})
	for i := range 3 {
		var a, b int
		err := team.Run(t.Context(), Call{Role: "add", Params: sum{i, 10}, Into: &a}, Call{Role: "add", Params: sum{i, 20}, Into: &b})
		if err != nil {
			t.Fatal(err)
		}
		if a != i+10 || b != i+20 {
			t.Errorf("task %d: got %d and %d", i, a, b)
		}
	}
	if problems := team.Unpinned(); len(problems) != 0 {
		t.Errorf("workers that nobody wants pinned complain: %v", problems)
	}
}

func TestWorkersArePinned(t *testing.T) {
	allowed, err := sys.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	team := start(t, allowed[:1])
	if problems := team.Unpinned(); len(problems) != 0 {
		t.Errorf("core %d: %v", allowed[0], problems)
	}
}

func TestAWorkerThatCannotBePinnedSaysSoAndWorks(t *testing.T) {
	team := start(t, []int{100_000})
	problems := team.Unpinned()
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "on core 100000) is not pinned: ") {
		t.Errorf("got %v", problems)
	}
	var got int
	if err := team.Run(t.Context(), Call{Role: "add", Params: sum{1, 2}, Into: &got}); err != nil || got != 3 {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestWorkersGetFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	team := start(t, []int{Unpinned}, f)
	for range 2 {
		var got string
		if err := team.Run(t.Context(), Call{Role: "read", Into: &got}); err != nil || got != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestErrorsOfWorkersReachTheCaller(t *testing.T) {
	for _, c := range []struct{ role, want string }{
		{"fail", "): the broker said no"},
		{"fail late", "): frame 7 arrived changed"},
		{"die", "ended in the middle of the measurement: exit status 7"},
		{"no such role", "ended in the middle of the measurement: exit status 1"},
	} {
		t.Run(c.role, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			o := options([]int{Unpinned, Unpinned}, w)
			o.Stderr = io.Discard
			team, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer team.Close()
			// The other worker spins, and has to be ended.
			err = team.Run(t.Context(), Call{Role: c.role}, Call{Role: "spin"})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "bench: worker 0 (process ") {
				t.Errorf("got %v, want worker 0 and %q", err, c.want)
			}
		})
	}
}

func TestAResultOfAnotherTypeIsAnError(t *testing.T) {
	team := start(t, []int{Unpinned})
	var text string
	err := team.Run(t.Context(), Call{Role: "add", Params: sum{1, 2}, Into: &text})
	if err == nil || !strings.Contains(err.Error(), "result of add 3") {
		t.Errorf("got %v", err)
	}
}

func TestMoreCallsThanWorkersAreAnError(t *testing.T) {
	team := start(t, []int{Unpinned})
	err := team.Run(t.Context(), Call{Role: "add"}, Call{Role: "add"})
	if err == nil || err.Error() != "bench: 2 calls for 1 workers" {
		t.Errorf("got %v", err)
	}
}

// pipeLine reads a process number that a spinning worker wrote.
func pipeLine(t *testing.T, r io.Reader) int {
	t.Helper()
	var pid int
	if _, err := fmt.Fscan(r, &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestTheEndOfTheContextEndsAMeasurement(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	team, err := Start(ctx, options([]int{Unpinned}, w))
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	done := make(chan error)
	go func() { done <- team.Run(ctx, Call{Role: "spin"}) }()
	pid := pipeLine(t, r)
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	team.Close()
	if alive(pid) {
		t.Errorf("worker %d is still there", pid)
	}
}

// parent is a process that starts a team which spins, and is killed.
func parent([]string) {
	team, err := Start(context.Background(), options([]int{Unpinned, Unpinned}, testutil.File(0)))
	if err == nil {
		err = team.Run(context.Background(), Call{Role: "spin"}, Call{Role: "spin"})
	}
	fmt.Fprintln(os.Stderr, err)
}

func TestWorkersEndWhenTheirParentIsKilled(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := testutil.Launch(t, testutil.Child{Role: "parent", Files: []*os.File{w}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	pids := []int{pipeLine(t, r), pipeLine(t, r)}
	p.Kill()
	testutil.Eventually(t, "the workers end", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
}

// alive reports whether a process runs; one that has ended and that nobody has waited for does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := bytes.LastIndexByte(text, ')')
	return after < 0 || len(text) < after+3 || text[after+2] != 'Z'
}

func TestServeRefusesWhatIsNoTask(t *testing.T) {
	for _, in := range []string{`{"kind":"go"}`, `{"kind":"task","role":"unknown"}`} {
		var out bytes.Buffer
		err := Serve(testRoles, Unpinned, strings.NewReader(in), &out)
		if err == nil || !strings.Contains(err.Error(), "instead of a task") {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

func TestServeReportsBadParameters(t *testing.T) {
	var out bytes.Buffer
	in := `{"kind":"task","role":"add","params":"text"}` + "\n"
	if err := Serve(testRoles, Unpinned, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"kind":"failed"`) || !strings.Contains(out.String(), "parameters") {
		t.Errorf("got %s", out.String())
	}
}

func TestJoinKeepsAllRoles(t *testing.T) {
	a := map[string]Role{"a": testRoles["add"]}
	b := map[string]Role{"b": testRoles["fail"]}
	if got := Join(a, b); len(got) != 2 || got["a"] == nil || got["b"] == nil {
		t.Errorf("got %d roles", len(got))
	}
}
