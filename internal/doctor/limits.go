package doctor

import (
	"fmt"
	"strconv"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/shm"
)

const (
	fewFiles = 4096 // open files: a topic takes a broker five, each client one
	fewTasks = 64   // threads: a few Go processes
)

// roughly writes a number of bytes for reading, not for reading back.
func roughly(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + " " + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// cgroupMemory looks at how much memory there is for topics.
func (h host) cgroupMemory() Check {
	const name = "memory"
	room, err := h.memory()
	if err != nil {
		return warn(name, err.Error(), "mount /proc in this container")
	}
	found := fmt.Sprintf("%s to be had (%s)", roughly(room.Bytes), room.Source)
	if room.Bytes < 2*broker.DefaultCapacity {
		return warn(name, fmt.Sprintf("%s, and a topic of the default capacity takes %s", found, shm.FormatSize(broker.DefaultCapacity)),
			"raise the limit (MemoryMax= in the unit, --memory of the container), or create topics with a smaller --capacity")
	}
	return good(name, found)
}

// cgroupHuge looks at the cgroup's limits of hugetlb pages.
func (h host) cgroupHuge() Check {
	const name = "cgroup limit of huge pages"
	sizes, err := h.sizes()
	if err != nil {
		return warn(name, err.Error(), "mount /sys in this container")
	}
	found := ""
	for _, size := range sizes {
		room, limited := h.hugeRoom(size)
		if !limited {
			continue
		}
		if found != "" {
			found += "; "
		}
		found += fmt.Sprintf("%s: %s left (%s)", shm.FormatSize(size), roughly(room.Bytes), room.Source)
		if size == 2<<20 && room.Bytes < broker.DefaultCapacity {
			return warn(name, found+": a topic of the default capacity falls back to other pages",
				"as root: echo max > that file, or --pages thp")
		}
	}
	if found == "" {
		found = "none"
	}
	return good(name, found)
}

// cgroupCPU looks at throttling.
func (h host) cgroupCPU() Check {
	const name = "cgroup limit of processor time"
	cpus, source, limited := h.cpuLimit()
	switch {
	case !limited:
		return good(name, "none")
	case cpus < 1:
		return warn(name, fmt.Sprintf("%.2f processors (%s): all are stopped together when it is used up, for up to 100 ms", cpus, source),
			"raise it (CPUQuota= in the unit, --cpus of the container) to at least one processor for each process that spins")
	}
	return good(name, fmt.Sprintf("%.2f processors (%s); processes that spin use it up", cpus, source))
}

// cgroupTasks looks at the limit of processes and threads.
func (h host) cgroupTasks() Check {
	const name = "cgroup limit of tasks"
	left, source, limited := h.taskLimit()
	switch {
	case !limited:
		return good(name, "none")
	case left < fewTasks:
		return warn(name, fmt.Sprintf("%d more processes and threads (%s): a Go program takes some ten", left, source),
			"raise it (TasksMax= in the unit, --pids-limit of the container)")
	}
	return good(name, fmt.Sprintf("%d more processes and threads (%s)", left, source))
}

// openFiles looks at the limit of descriptors. A Go program raises its soft limit to the hard one by itself.
func (h host) openFiles() Check {
	const name = "open files"
	word := h.field("proc/self/limits", "Max open files")
	if word == "unlimited" {
		return good(name, "no limit")
	}
	limit, err := strconv.ParseInt(word, 10, 64)
	switch {
	case err != nil:
		return warn(name, "/proc/self/limits cannot be read", "mount /proc in this container")
	case limit < fewFiles:
		return warn(name, fmt.Sprintf("limit of %d: a broker needs 5 for each topic and 1 for each client, an ingress 1 for each connection", limit),
			"ulimit -n 65536, or LimitNOFILE=65536 in the service's unit")
	}
	return good(name, fmt.Sprintf("limit of %d", limit))
}
