//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Enabled reports whether this build has failpoints.
const Enabled = true

// exitStatus is the status of a process that a failpoint made exit. Not 1 or 2, which Go's own failures use.
const exitStatus = 3

var (
	mu    sync.Mutex
	hits  = make(map[string]int)
	hooks = make(map[string]func())
	armed = mustParse()
)

func mustParse() map[string]spec {
	specs, err := parse(os.Getenv(Env))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return specs
}

// Hit counts a hit of the failpoint and, if the variable says so, acts. Safe for concurrent use.
func Hit(name string) {
	mu.Lock()
	hits[name]++
	n, hook := hits[name], hooks[name]
	mu.Unlock()
	if hook != nil {
		hook()
	}
	if s, ok := armed[name]; ok && s.at == n {
		act(name, s.action)
	}
}

// Hits returns how often the failpoint was hit in this process.
func Hits(name string) int {
	mu.Lock()
	defer mu.Unlock()
	return hits[name]
}

// Do calls f at every hit of the failpoint, on the goroutine that hits it, until undo is called: a test of one process can
// look at, or change, what is there at that instant, hold it there, or panic. Only in builds with the tag.
func Do(name string, f func()) (undo func()) {
	set := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		hooks[name] = f
	}
	set(f)
	return func() { set(nil) }
}

func act(name, action string) {
	switch action {
	case "kill":
		fmt.Fprintf(os.Stderr, "failpoint %s\n", name)
		send(os.Kill)
		select {} // the signal is on its way
	case "stop":
		// The kernel may let this thread run on a little after the signal is sent. Waiting for SIGCONT, and not just
		// sending SIGSTOP, is what makes the point exact.
		resumed := make(chan os.Signal, 1)
		signal.Notify(resumed, syscall.SIGCONT)
		fmt.Fprintf(os.Stderr, "failpoint %s\n", name)
		send(syscall.SIGSTOP)
		<-resumed
		signal.Stop(resumed)
	case "exit":
		os.Exit(exitStatus)
	case "panic":
		panic("failpoint " + name)
	}
}

func send(sig os.Signal) {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(sig)
		_ = self.Release() // or a process that goes on would hold a descriptor of itself
	}
	if err != nil { // never seen; going on past an armed failpoint would make a test pass for nothing
		panic(fmt.Sprintf("failpoint: signal %v to the own process: %v", sig, err))
	}
}
