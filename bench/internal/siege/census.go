package siege

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hugebus/hugebus/internal/chaos"
	"github.com/hugebus/hugebus/internal/sys"
)

// inode is what tells one socket or pipe from another, and is no difference here.
var inode = regexp.MustCompile(`:\[\d+\]`)

// takeCensus is what another process holds, without telling its sockets and pipes apart.
func takeCensus(pid int) (chaos.Holdings, error) {
	held, err := chaos.HeldBy(pid)
	if err != nil {
		return nil, fmt.Errorf("siege: %w", err)
	}
	census := chaos.Holdings{}
	for what, n := range held {
		census[inode.ReplaceAllString(what, "")] += n
	}
	return census, nil
}

// count is how many descriptors and how many mappings there are.
func count(census chaos.Holdings) (descriptors, mappings int) {
	for what, n := range census {
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
