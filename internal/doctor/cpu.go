package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hugebus/hugebus/internal/sys"
)

// membarrier looks whether sleepers can make sure that they miss nothing.
func (h host) membarrier() Check {
	const name = "membarrier"
	b, err := h.barriers()
	switch {
	case err != nil:
		return warn(name, err.Error(), "allow membarrier in the container's seccomp profile")
	case b.Global && b.Private:
		return good(name, "global expedited, private expedited")
	}
	missing := []string{}
	if !b.Global {
		missing = append(missing, "global expedited (publishers then pay for a fence in every commit)")
	}
	if !b.Private {
		missing = append(missing, "private expedited (clients then pay for a fence in every call)")
	}
	return warn(name, "missing: "+strings.Join(missing, ", "),
		"allow membarrier in the container's seccomp profile, or use a kernel with CONFIG_MEMBARRIER (4.16 or later)")
}

// cpus looks at how many processors there are for us.
func (h host) cpus() Check {
	const name = "processors"
	allowed, err := h.allowed()
	switch {
	case err != nil:
		return warn(name, err.Error(), "allow sched_getaffinity in the container's seccomp profile")
	case len(allowed) < 2:
		return warn(name, fmt.Sprintf("1 (number %s): publishers and subscribers take turns, and --wait spin only steals time", list(allowed)),
			"give this process at least 2 processors (taskset, cpuset, the container's --cpus)")
	}
	return good(name, fmt.Sprintf("%d (%s)", len(allowed), list(allowed)))
}

// list writes numbers as the kernel does: 0-3,8.
func list(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(numbers[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// isolation looks for processors that the scheduler leaves alone.
func (h host) isolation() Check {
	const name = "isolated processors"
	isolated, err := sys.ParseList(h.text("sys/devices/system/cpu/isolated"))
	if err != nil || len(isolated) == 0 {
		c := good(name, "none, which only matters for the last microseconds of the worst latencies")
		c.Do = "for those, boot with isolcpus=2,3 nohz_full=2,3 (say) and pin with taskset -c 2"
		return c
	}
	return good(name, list(isolated)+"; pin the processes that spin there (taskset -c)")
}

// governor looks at frequency scaling.
func (h host) governor() Check {
	const name = "frequency governor"
	files, err := filepath.Glob(filepath.Join(h.root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
	if err != nil || len(files) == 0 {
		return good(name, "not under this kernel's control (as in most virtual machines)")
	}
	var words []string
	for _, f := range files {
		rel, err := filepath.Rel(h.root, f)
		if err != nil {
			continue
		}
		if w := h.text(rel); w != "" && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	found := strings.Join(words, ", ")
	if found == "performance" {
		return good(name, found)
	}
	return warn(name, found+": an idle processor takes long to get fast, which latencies show",
		"as root: echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
}
