package testutil

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// census counts what a process holds, by description.
type census map[string]int

// resources returns the process's open descriptors and its mappings of memfds.
func resources() census {
	warmUp()
	c := make(census)
	for _, fd := range descriptors() {
		c["descriptor of "+fd]++
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		c["unreadable: "+err.Error()]++
		return c
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:") {
			c["mapping "+strings.TrimSpace(line)]++
		}
	}
	return c
}

// warmUp makes the runtime open what it opens once and keeps (its epoll and its wake-up descriptor), so that the first
// test that waits for a descriptor does not look like a leak.
func warmUp() {
	r, w, err := os.Pipe()
	if err != nil {
		return // no descriptors left; the tests will say so better
	}
	_ = r.Close()
	_ = w.Close()
}

// descriptors returns where each open descriptor leads.
func descriptors() []string {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{"unreadable: " + err.Error()}
	}
	var targets []string
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue // the one that read the folder
		}
		targets = append(targets, target)
	}
	return targets
}

// added returns what now has and c has not.
func (c census) added(now census) []string {
	var more []string
	for what, n := range now {
		if extra := n - c[what]; extra > 0 {
			more = append(more, fmt.Sprintf("%d x %s", extra, what))
		}
	}
	slices.Sort(more)
	return more
}
