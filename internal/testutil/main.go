package testutil

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// WatchdogEnv is the environment variable that changes how long a test binary or a child may run (a Go duration).
const WatchdogEnv = "HUGEBUS_WATCHDOG"

// watchdogLimit only catches hangs: it is shorter than the ten minutes of go test, which kills no children.
const watchdogLimit = 8 * time.Minute

// Main is the whole of a TestMain. In a child that Start made, it runs the child's role. Otherwise it runs the tests, and
// then fails the binary if a goroutine, a file descriptor or a mapping of a memfd is left that was not there before.
// It does not return.
//
// A run that lasts longer than eight minutes ($HUGEBUS_WATCHDOG) prints all goroutines, kills its children and exits with
// status 2; fuzzing and benchmarks, which last as long as they were asked to, are not watched.
func Main(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(runRole(role, os.Args[1:]))
	}
	flag.Parse()
	open := endless()
	if !open {
		defer startWatchdog().Stop()
	}
	before := resources()
	code := m.Run()
	if code == 0 && !open {
		if leak := leaks(before); leak != "" {
			fmt.Fprintf(os.Stderr, "testutil: left after all tests:\n%s", leak)
			code = 1
		}
	}
	os.Exit(code)
}

// endless reports whether go test was asked for something that has no natural length or keeps its own workers.
func endless() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker", "test.bench"} {
		f := flag.Lookup(name)
		if f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// leaks compares what is open with what was open before, and returns a description of what is left, or "".
func leaks(before census) string {
	text := ""
	if err := goleak.Find(); err != nil { // it looks again for a while by itself
		text += err.Error() + "\n"
	}
	// What a goroutine closes last may close a moment after the goroutine is gone from the list, so look again for a while.
	left := before.added(resources())
	for deadline := time.Now().Add(2 * time.Second); len(left) > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		left = before.added(resources())
	}
	for _, what := range left {
		text += what + "\n"
	}
	return text
}

// startWatchdog arms the timer that ends a process which hangs.
func startWatchdog() *time.Timer {
	limit := watchdogLimit
	if s := os.Getenv(WatchdogEnv); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			fmt.Fprintf(os.Stderr, "testutil: %s is %q: use a duration such as 20m\n", WatchdogEnv, s)
			os.Exit(2)
		}
		limit = d
	}
	return time.AfterFunc(limit, func() {
		fmt.Fprintf(os.Stderr, "testutil: still running after %v (%s); all goroutines:\n", limit, WatchdogEnv)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		children.kill()
		os.Exit(2)
	})
}

// children are the processes that Start made and nobody has waited for yet.
var children childSet

type childSet struct {
	mu  sync.Mutex
	set map[*os.Process]struct{}
}

func (c *childSet) add(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == nil {
		c.set = make(map[*os.Process]struct{})
	}
	c.set[p] = struct{}{}
}

func (c *childSet) remove(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.set, p)
}

func (c *childSet) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.set {
		_ = p.Kill()
	}
}
