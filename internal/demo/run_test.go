package demo

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// options are those of a short run.
func options() Options {
	return Options{
		Frames: 3000, Capacity: 64 << 10, Pages: "auto", Listen: "127.0.0.1:0", Child: self,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// place is where the run puts its files; nothing is left there when the test ends.
func place(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
		_ = os.RemoveAll(dir)
	})
}

func TestARunFindsEveryFrame(t *testing.T) {
	place(t)
	o := options()
	var mu sync.Mutex
	var told []uint64
	o.Progress = func(done, all uint64) {
		mu.Lock()
		defer mu.Unlock()
		if all != o.Frames {
			t.Errorf("progress of %d frames", all)
		}
		told = append(told, done)
	}
	var pids []int
	o.Began = func(p []int) { pids = p }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.Bytes != bytesOf(0, 3000) || r.Capacity != 64<<10 || r.Pages == "" || len(pids) != 3 || len(r.Group.Shares) != 2 {
		t.Errorf("%+v, pids %v", r, pids)
	}
	for i := 1; i < len(told); i++ {
		if told[i] < told[i-1] || told[i] > 3000 {
			t.Errorf("progress %v", told)
		}
	}
}

func TestRunsThatCannotBe(t *testing.T) {
	place(t)
	for want, change := range map[string]func(o *Options){
		"99 frames: use 100":   func(o *Options) { o.Frames = 99 },
		"2000000000 frames":    func(o *Options) { o.Frames = 2_000_000_000 },
		"96KiB is not a power": func(o *Options) { o.Capacity = 96 << 10 },
		"4KiB is too small":    func(o *Options) { o.Capacity = 4 << 10 },
		"no such file":         func(o *Options) { o.Child = func(_, _ string) *exec.Cmd { return exec.Command("/does/not/exist") } },
		// Which of the workers is told of is by chance.
		") ended in the middle: exit status 1": func(o *Options) { o.Child = func(_, _ string) *exec.Cmd { return exec.Command("false") } },
		") ended in the middle: exit status 0": func(o *Options) { o.Child = func(_, _ string) *exec.Cmd { return exec.Command("true") } },
		"worker 1 said \"hello\"": func(o *Options) {
			o.Child = func(_, _ string) *exec.Cmd { return exec.Command("sh", "-c", "echo hello; exec sleep 600") }
		},
		"what is wrong with me": func(o *Options) {
			o.Child = func(_, _ string) *exec.Cmd {
				return exec.Command("sh", "-c", "echo not this >&2; echo what is wrong with me >&2; exit 3")
			}
		},
		"unknown process \"chief\"": func(o *Options) { o.Child = func(_, arg string) *exec.Cmd { return self("chief", arg) } },
		"listen on 256.0.0.1:0":     func(o *Options) { o.Listen = "256.0.0.1:0" },
		"needs 1TiB":                func(o *Options) { o.Capacity = 1 << 40 },
	} {
		o := options()
		change(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestARunThatIsInterrupted(t *testing.T) {
	place(t)
	before, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(before, options()); !errors.Is(err, errInterrupted) {
		t.Errorf("before it began: %v", err)
	}
	o := options()
	o.Frames = 200_000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Began = func([]int) { cancel() }
	if _, err := Run(ctx, o); !errors.Is(err, errInterrupted) {
		t.Errorf("in the middle: %v", err)
	}
	// Readers that never get ready.
	o = options()
	started := make(chan struct{}, 3)
	o.Child = func(string, string) *exec.Cmd {
		started <- struct{}{}
		return exec.Command("sleep", "600")
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := Run(ctx, o); !errors.Is(err, errInterrupted) {
		t.Errorf("readers that are not ready: %v", err)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Error(err)
	}
}

func TestARunWhoseReaderDies(t *testing.T) {
	place(t)
	for i, name := range []string{"worker 1", "worker 2", "subscriber"} {
		o := options()
		o.Frames = 200_000
		o.KeepGoing = name == "subscriber" // it cannot be done without
		o.Began = func(pids []int) { kill(t, pids[i]) }
		_, err := Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), name+" (pid ") || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARunKeepsGoingWithoutAWorker(t *testing.T) {
	place(t)
	o := options()
	o.Frames, o.KeepGoing = 50_000, true
	o.Began = func(pids []int) { kill(t, pids[0]) }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Lost+r.Corrupted != 0 || len(r.Died) != 1 || !strings.Contains(r.Died[0], "worker 1") || r.Group.Duplicated > r.Group.Redelivered ||
		r.OK != (r.Duplicated == 0) {
		t.Errorf("%+v", r)
	}
}

// What never comes counts as lost when nothing has moved for a while.
func TestWhatNeverComes(t *testing.T) {
	r := &run{stall: 30 * time.Millisecond, Options: Options{Frames: 100}}
	for range workers + 1 {
		r.children = append(r.children, &child{tally: fresh(t, 100)})
	}
	w := r.watch()
	defer w.close()
	if err := w.arrived(t.Context(), 100); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if err := w.arrived(ctx, 100); err != errInterrupted {
		t.Errorf("error %v", err)
	}
}

func TestPartsOfARun(t *testing.T) {
	for frames, want := range map[uint64][2]uint64{
		100: {80, 90}, 1_000_000: {880_000, 980_000}, 10_000_000: {9_880_000, 9_980_000},
	} {
		full, counted := Options{Frames: frames}.parts()
		if full != want[0] || counted != want[1] {
			t.Errorf("%d frames: %d, %d; want %v", frames, full, counted, want)
		}
	}
}

func TestATemporaryDirectoryThatIsTooDeepForASocket(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 90))
	if err := os.Mkdir(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	dir, err := socketDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if len(dir) > 90 {
		t.Errorf("%s is too long", dir)
	}
}
