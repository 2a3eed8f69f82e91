package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes files below a new directory that stands for /.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHugePages(t *testing.T) {
	const dir = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	root := tree(t, map[string]string{
		dir + "nr_hugepages": "64\n", dir + "free_hugepages": "40\n", dir + "resv_hugepages": "8\n",
		dir + "nr_overcommit_hugepages": "10\n", dir + "surplus_hugepages": "3\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
	})
	sizes, err := hugePageSizes(root)
	if err != nil || !slices.Equal(sizes, []int64{2 << 20, 1 << 30}) {
		t.Errorf("sizes %v, %v", sizes, err)
	}
	// 40 free, of which 8 belong to others, and 7 that the kernel may add.
	p, err := hugePages(root, 2<<20)
	if want := (HugePool{PageSize: 2 << 20, Total: 64, Free: 39}); err != nil || p != want {
		t.Errorf("got %+v, %v; want %+v", p, err, want)
	}
	if _, err := hugePages(root, 16<<20); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("size that is not there: %v", err)
	}
	if sizes, err := hugePageSizes(t.TempDir()); err != nil || len(sizes) != 0 {
		t.Errorf("kernel without hugetlb: %v, %v", sizes, err)
	}
	if got, want := p.SysctlName(), "/"+dir+"nr_hugepages"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bad := tree(t, map[string]string{"sys/kernel/mm/hugepages/hugepages-xkB/nr_hugepages": ""})
	if _, err := hugePageSizes(bad); err == nil || !strings.Contains(err.Error(), "not a page size") {
		t.Errorf("bad name: %v", err)
	}
}

func TestHugePagesOfThisMachine(t *testing.T) {
	sizes, err := HugePageSizes()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range sizes {
		total, free, err := NrHugepages(size)
		if err != nil || total < 0 || free < 0 {
			t.Errorf("size %d: %d, %d, %v", size, total, free, err)
		}
	}
}

func TestChosenWord(t *testing.T) {
	root := tree(t, map[string]string{"good": "always [madvise] never\n", "bad": "always never\n"})
	if w, err := chosenWord(filepath.Join(root, "good")); err != nil || w != "madvise" {
		t.Errorf("got %q, %v", w, err)
	}
	if _, err := chosenWord(filepath.Join(root, "bad")); err == nil || !strings.Contains(err.Error(), "no word in brackets") {
		t.Errorf("got %v", err)
	}
	for name, read := range map[string]func() (string, error){"ShmemTHP": ShmemTHP, "THP": THP} {
		if w, err := read(); err == nil && strings.ContainsAny(w, " []\n") || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, w, err)
		}
	}
}

func TestParseList(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []int
		err  string
	}{
		{"", nil, ""}, {"\n", nil, ""}, {"0\n", []int{0}, ""},
		{"0-3,8,10-11", []int{0, 1, 2, 3, 8, 10, 11}, ""},
		{"3-1", nil, `"3-1" ends before it starts`},
		{"x", nil, "invalid syntax"}, {"1-x", nil, "invalid syntax"}, {"-1", nil, "invalid syntax"}, {"99999", nil, "out of range"},
	} {
		got, err := ParseList(c.in)
		if c.err == "" && (err != nil || !slices.Equal(got, c.want)) ||
			c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %v, %v; want %v, %q", c.in, got, err, c.want, c.err)
		}
	}
}

func TestMemInfo(t *testing.T) {
	root := tree(t, map[string]string{"proc/meminfo": "MemTotal:  100 kB\nMemAvailable:   50 kB\nHugePages_Total:  7\nBad: x kB\n"})
	for key, want := range map[string]int64{"MemTotal": 100 << 10, "MemAvailable": 50 << 10, "HugePages_Total": 7} {
		if got, err := memInfo(root, key); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", key, got, err, want)
		}
	}
	if _, err := memInfo(root, "Mem"); err == nil || err.Error() != "/proc/meminfo: no line Mem" {
		t.Errorf("got %v", err)
	}
	if _, err := memInfo(root, "Bad"); err == nil || !strings.HasPrefix(err.Error(), "/proc/meminfo: Bad: ") {
		t.Errorf("got %v", err)
	}
	if n, err := MemInfo("MemTotal"); err != nil || n <= 0 {
		t.Errorf("this machine: %d, %v", n, err)
	}
}

func TestNodes(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/devices/system/node/online":        "0-1\n",
		"sys/devices/system/node/node1/meminfo": "\nNode 1 MemTotal:   100 kB\nNode 1 MemFree:  10 kB\nNode 1 Inactive(file):  5 kB\n",
		"sys/devices/system/node/node0/meminfo": "Node 0 MemFree:  10 kB\n",
	})
	if got, err := nodes(root); err != nil || !slices.Equal(got, []int{0, 1}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := nodes(t.TempDir()); err != nil || len(got) != 0 {
		t.Errorf("kernel without NUMA: %v, %v", got, err)
	}
	want := Room{15 << 10, "MemFree and Inactive(file) in /sys/devices/system/node/node1/meminfo"}
	if room, err := nodeMemory(root, 1); err != nil || room != want {
		t.Errorf("got %+v, %v; want %+v", room, err, want)
	}
	const noLine = "/sys/devices/system/node/node0/meminfo: no line Node 0 Inactive(file)"
	if _, err := nodeMemory(root, 0); err == nil || err.Error() != noLine {
		t.Errorf("got %v", err)
	}
	if _, err := nodeMemory(root, 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("node that is not there: %v", err)
	}
	online, err := Nodes()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range online {
		// A node may have processors and no memory, so 0 is fine.
		if _, err := NodeMemory(n); err != nil {
			t.Errorf("node %d of this machine: %v", n, err)
		}
	}
}

const (
	mounts1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n" +
		"36 31 0:33 / /sys/fs/cgroup/ht rw - cgroup cgroup rw,hugetlb\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	mounts2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	// A container: only its own part of the tree is mounted.
	mounts3 = "30 23 0:26 /docker/abc /my\\040cgroup rw - cgroup2 cgroup2 rw\n"
	meminfo = "MemAvailable: 1000 kB\n"
)

func TestAvailableMemory(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Room
	}{
		"no cgroup": {map[string]string{}, Room{1000 << 10, "MemAvailable in /proc/meminfo"}},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/a/b\n0::/\n", "proc/self/mountinfo": mounts1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     "1\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "5000\n",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes":   "4000\n",
			"sys/fs/cgroup/memory/a/memory.stat":             "inactive_file 1\ntotal_inactive_file 300\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "4000\n",
		}, Room{1300, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes less what is used"}},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/user/app\n", "proc/self/mountinfo": mounts2,
			"sys/fs/cgroup/user/memory.max":         "max\n",
			"sys/fs/cgroup/user/memory.current":     "4000\n",
			"sys/fs/cgroup/user/app/memory.max":     "8000\n",
			"sys/fs/cgroup/user/app/memory.current": "5000\n",
			"sys/fs/cgroup/user/app/memory.stat":    "anon 9\ninactive_file 500\n",
		}, Room{3500, "/sys/fs/cgroup/user/app/memory.max less what is used"}},
		"version 2, used up": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mounts2,
			"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "200\n",
		}, Room{0, "/sys/fs/cgroup/memory.max less what is used"}},
		"container": {map[string]string{
			"proc/self/cgroup": "0::/docker/abc\n", "proc/self/mountinfo": mounts3,
			"my cgroup/memory.max": "900\n", "my cgroup/memory.current": "200\n",
		}, Room{700, "/my cgroup/memory.max less what is used"}},
		"outside of the mounted part": {map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mounts2,
			"sys/fs/cgroup/memory.max": "900\n", "sys/fs/cgroup/memory.current": "100\n",
		}, Room{800, "/sys/fs/cgroup/memory.max less what is used"}},
		"limit above what the machine has": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mounts2,
			"sys/fs/cgroup/memory.max": "99999999999\n", "sys/fs/cgroup/memory.current": "100\n",
		}, Room{1000 << 10, "MemAvailable in /proc/meminfo"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["proc/meminfo"] = meminfo
			got, err := availableMemory(tree(t, c.files))
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if _, err := availableMemory(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no /proc: %v", err)
	}
	if room, err := AvailableMemory(); err != nil || room.Bytes <= 0 {
		t.Errorf("this machine: %+v, %v", room, err)
	}
}

func TestCgroupHuge(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup": "5:hugetlb:/a\n", "proc/self/mountinfo": mounts1,
		"sys/fs/cgroup/ht/a/hugetlb.2MB.limit_in_bytes": "4194304\n",
		"sys/fs/cgroup/ht/a/hugetlb.2MB.usage_in_bytes": "2097152\n",
	})
	if room, ok := cgroupHuge(root, 2<<20); !ok || room.Bytes != 2<<20 {
		t.Errorf("version 1: %+v, %v", room, ok)
	}
	root = tree(t, map[string]string{
		"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mounts2,
		"sys/fs/cgroup/a/hugetlb.1GB.max": "1073741824\n", "sys/fs/cgroup/a/hugetlb.1GB.current": "0\n",
	})
	if room, ok := cgroupHuge(root, 1<<30); !ok || room.Bytes != 1<<30 {
		t.Errorf("version 2: %+v, %v", room, ok)
	}
	if room, ok := cgroupHuge(root, 2<<20); ok {
		t.Errorf("no limit: %+v", room)
	}
	if room, ok := cgroupHuge(t.TempDir(), 2<<20); ok {
		t.Errorf("no /proc: %+v", room)
	}
}
