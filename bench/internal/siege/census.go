package siege

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hugebus/hugebus/internal/sys"
)

// A census is what a process holds: open descriptors by what they lead to, and mappings of memfds.
type census map[string]int

// inode is what tells one socket or pipe from another, and is no difference here.
var inode = regexp.MustCompile(`:\[\d+\]`)

// takeCensus looks at another process.
func takeCensus(pid int) (census, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("siege: %w", err)
	}
	c := census{}
	for _, e := range open {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil { // an error: closed meanwhile
			c["descriptor of "+inode.ReplaceAllString(to, "")]++
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("siege: %w", err)
	}
	for line := range strings.Lines(string(maps)) {
		if _, name, ok := strings.Cut(line, "/memfd:"); ok {
			c["mapping of memfd:"+strings.TrimSpace(name)]++
		}
	}
	return c, nil
}

// more is what now has and c has not.
func (c census) more(now census) (more []string) {
	for what, n := range now {
		if n > c[what] {
			more = append(more, fmt.Sprintf("%d x %s", n-c[what], what))
		}
	}
	slices.Sort(more)
	return more
}

// count is how many descriptors and how many mappings it has.
func (c census) count() (descriptors, mappings int) {
	for what, n := range c {
		if strings.HasPrefix(what, "mapping") {
			mappings += n
		} else {
			descriptors += n
		}
	}
	return descriptors, mappings
}

// otherTopics reports whether some process has a topic mapped. Asked when all of ours have ended: others use huge pages then.
func otherTopics() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/maps") // the pattern is good
	for _, maps := range all {
		text, err := os.ReadFile(maps)
		if err == nil && strings.Contains(string(text), "/memfd:hugebus.") {
			return true
		}
	}
	return false
}

// freeHugePages is how many 2 MiB pages nobody uses.
func freeHugePages() int {
	_, free, err := sys.NrHugepages(2 << 20)
	if err != nil {
		return 0 // a kernel without them leaks none
	}
	return free
}
