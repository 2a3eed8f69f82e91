package sys

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// unlimited is where we stop believing that a number is a limit: version 1 cgroups say "none" by a number close to
// 2^63.
const unlimited = 1 << 60

// cgroupChain is the directories of one controller that bound this process, its own cgroup first, then the parents
// as far as they are visible.
type cgroupChain struct {
	dirs []string
	v2   bool
}

// cgroupMemory returns the tightest memory limit of the cgroups that this process is in; false if there is none.
func cgroupMemory(root string) (Room, bool) {
	chain, ok := findCgroup(root, "memory")
	if !ok {
		return Room{}, false
	}
	limit, usage, cache := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if chain.v2 {
		limit, usage, cache = "memory.max", "memory.current", "inactive_file"
	}
	return chain.tightest(root, limit, usage, func(dir string) int64 {
		return statValue(filepath.Join(dir, "memory.stat"), cache)
	})
}

// CgroupHuge returns how much room the tightest hugetlb limit of this process's cgroups leaves for pages of size
// bytes; false if there is no limit.
func CgroupHuge(size int64) (Room, bool) { return cgroupHuge("/", size) }

func cgroupHuge(root string, size int64) (Room, bool) {
	chain, ok := findCgroup(root, "hugetlb")
	if !ok {
		return Room{}, false
	}
	prefix := "hugetlb." + strconv.FormatInt(size>>20, 10) + "MB."
	if size >= 1<<30 {
		prefix = "hugetlb." + strconv.FormatInt(size>>30, 10) + "GB."
	}
	limit, usage := prefix+"limit_in_bytes", prefix+"usage_in_bytes"
	if chain.v2 {
		limit, usage = prefix+"max", prefix+"current"
	}
	return chain.tightest(root, limit, usage, func(string) int64 { return 0 })
}

// tightest returns the least of limit - (usage - free) over the chain, where free says how much of the usage the
// kernel would give back at once.
func (c cgroupChain) tightest(root, limit, usage string, free func(dir string) int64) (Room, bool) {
	var room Room
	found := false
	for _, dir := range c.dirs {
		// "max" is not a number, and a directory may lack the files (the root has none): no limit in both cases.
		most, err := readInt(filepath.Join(dir, limit))
		if err != nil || most >= unlimited {
			continue
		}
		used, err := readInt(filepath.Join(dir, usage))
		if err != nil {
			continue
		}
		left := max(0, most-max(0, used-free(dir)))
		if !found || left < room.Bytes {
			file := "/" + strings.TrimLeft(strings.TrimPrefix(filepath.Join(dir, limit), root), "/")
			room, found = Room{Bytes: left, Source: file + " less what is used"}, true
		}
	}
	return room, found
}

// findCgroup finds the directories of a controller from /proc/self/cgroup (which cgroup) and /proc/self/mountinfo
// (where that tree is mounted). A controller that is attached to a version 1 tree is not in the version 2 tree.
func findCgroup(root, controller string) (cgroupChain, bool) {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return cgroupChain{}, false
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return cgroupChain{}, false
	}
	var path2 string
	has2 := false
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			path2, has2 = f[2], true
		case slices.Contains(strings.Split(f[1], ","), controller):
			dirs := cgroupDirs(root, string(mounts), "cgroup", controller, f[2])
			return cgroupChain{dirs: dirs}, len(dirs) > 0
		}
	}
	if !has2 {
		return cgroupChain{}, false
	}
	dirs := cgroupDirs(root, string(mounts), "cgroup2", "", path2)
	return cgroupChain{dirs: dirs, v2: true}, len(dirs) > 0
}

// cgroupDirs returns the directory of the cgroup path and of its parents, up to where the tree is mounted.
func cgroupDirs(root, mounts, fsType, controller, path string) []string {
	for line := range strings.Lines(mounts) {
		// See proc_pid_mountinfo(5): fields, optional fields, a lone dash, type, source, options.
		head, tail, ok := strings.Cut(strings.TrimSpace(line), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 3 || t[0] != fsType {
			continue
		}
		if controller != "" && !slices.Contains(strings.Split(t[2], ","), controller) {
			continue
		}
		// A container often has only its own part of the tree mounted; its cgroup is then relative to that part.
		rel := path
		if h[3] != "/" {
			rel, ok = strings.CutPrefix(path, h[3])
			if !ok {
				rel = "/"
			}
		}
		if strings.HasPrefix(rel, "/..") {
			rel = "/"
		}
		top := filepath.Join(root, mountEscapes.Replace(h[4]))
		var dirs []string
		for dir := filepath.Join(top, rel); ; dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == top || len(dir) <= len(top) {
				return dirs
			}
		}
	}
	return nil
}

// mountEscapes undoes the four escapes of mountinfo.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// statValue returns one number of a "name value" file, or 0.
func statValue(file, key string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == key {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
