package sys

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CgroupTasks returns how many more processes and threads the tightest pids limit of this process's cgroups leaves,
// and which file says so; false if there is no limit.
func CgroupTasks() (left int64, source string, limited bool) { return cgroupTasks("/") }

func cgroupTasks(root string) (int64, string, bool) {
	chain, ok := findCgroup(root, "pids")
	if !ok {
		return 0, "", false
	}
	room, limited := chain.tightest(root, "pids.max", "pids.current", func(string) int64 { return 0 })
	return room.Bytes, room.Source, limited
}

// CgroupCPU returns the processor time that the tightest cpu limit of this process's cgroups allows, in processors
// (1.5 is one and a half), and which file says so; false if there is no limit.
func CgroupCPU() (cpus float64, source string, limited bool) { return cgroupCPU("/") }

func cgroupCPU(root string) (cpus float64, source string, limited bool) {
	chain, ok := findCgroup(root, "cpu")
	if !ok {
		return 0, "", false
	}
	for _, dir := range chain.dirs {
		quota, period, file := chain.cpuLimit(dir)
		if quota <= 0 || period <= 0 {
			continue
		}
		if n := float64(quota) / float64(period); !limited || n < cpus {
			cpus, limited = n, true
			source = "/" + strings.TrimLeft(strings.TrimPrefix(file, root), "/")
		}
	}
	return cpus, source, limited
}

// cpuLimit reads the quota and the period of one cgroup, in µs; a quota that is not above 0 is none.
func (c cgroupChain) cpuLimit(dir string) (quota, period int64, file string) {
	if !c.v2 {
		file = filepath.Join(dir, "cpu.cfs_quota_us")
		quota, err := readInt(file)
		if err != nil {
			return 0, 0, file
		}
		period, err := readInt(filepath.Join(dir, "cpu.cfs_period_us"))
		if err != nil {
			return 0, 0, file
		}
		return quota, period, file
	}
	file = filepath.Join(dir, "cpu.max")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, file // the root has none
	}
	first, second, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	quota, err = strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, 0, file // "max": no limit
	}
	period, err = strconv.ParseInt(second, 10, 64)
	if err != nil {
		return 0, 0, file
	}
	return quota, period, file
}
