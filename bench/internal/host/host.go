// Package host looks at what spoils a measurement on this machine.
package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hugebus/hugebus/internal/sys"
)

// Pair picks two cores to measure between: the first two that are allowed and are not
// threads of one core, or just the first two, or the only one twice.
func Pair(allowed []int) []int { return pair(DefaultRoot, allowed) }

func pair(root string, allowed []int) []int {
	switch len(allowed) {
	case 0:
		return []int{0, 0}
	case 1:
		return []int{allowed[0], allowed[0]}
	}
	for _, second := range allowed[1:] {
		if !Siblings(root, allowed[0], second) {
			return []int{allowed[0], second}
		}
	}
	return allowed[:2]
}

// DefaultRoot is where the kernel describes processors.
const DefaultRoot = "/sys/devices/system/cpu"

// Siblings reports whether two processors are threads of one core.
func Siblings(root string, a, b int) bool {
	text, err := os.ReadFile(filepath.Join(root, "cpu"+strconv.Itoa(a), "topology/thread_siblings_list"))
	if err != nil {
		return false // no such file: no threads that share a core
	}
	list, err := sys.ParseList(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	for _, n := range list {
		if n == b && a != b {
			return true
		}
	}
	return false
}

// busyLoad is the load average above which other work is likely to disturb.
const busyLoad = 0.5

// Warnings says what is likely to spoil a measurement between cores, each in one
// sentence with its remedy. A negative core is unpinned.
func Warnings(cores []int) []string { return warnings("/proc/loadavg", DefaultRoot, cores) }

func warnings(loadFile, root string, cores []int) []string {
	var found []string
	if len(cores) == 2 {
		a, b := cores[0], cores[1]
		switch {
		case a < 0 || b < 0:
			found = append(found, "the processes are not pinned: they may move between cores, and share one; give --cores A,B")
		case a == b:
			found = append(found, fmt.Sprintf("both processes run on core %d: each waits while the other spins, for whole time slices; figures say little", a))
		case Siblings(root, a, b):
			found = append(found, fmt.Sprintf("cores %d and %d are threads of one core: faster round trips and slower work than between cores", a, b))
		}
	}
	if load, ok := loadAverage(loadFile); ok && load > busyLoad {
		found = append(found, fmt.Sprintf("the load average is %.2f: other work takes the cores away now and then, so tails are theirs", load))
	}
	for _, core := range cores {
		if g := governor(root, core); g != "" && g != "performance" {
			found = append(found, fmt.Sprintf("core %d has the frequency governor %s: the first rounds may be slow; use performance", core, g))
			break
		}
	}
	return found
}

func loadAverage(file string) (float64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	return load, err == nil
}

func governor(root string, core int) string {
	if core < 0 {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, "cpu"+strconv.Itoa(core), "cpufreq/scaling_governor"))
	if err != nil {
		return "" // a virtual machine, most often: the host decides
	}
	return strings.TrimSpace(string(text))
}

// PageWarning says what it means that memory is on ordinary pages; empty if it is not.
func PageWarning(pages string, capacity int64) string {
	const noticeable = 4 << 20 // bytes: about what the second-level TLB covers with 4 KiB pages
	if pages != "4KiB" || capacity <= noticeable {
		return ""
	}
	return "the ring is on 4 KiB pages: large rings are slower so; free huge pages with sysctl vm.nr_hugepages (hugebus doctor says more)"
}
