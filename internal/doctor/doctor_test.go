package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// fine is a host on which everything is as it should be.
func fine(t *testing.T, files map[string]string) host {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"proc/sys/kernel/osrelease":                               "6.12.3-generic\n",
		"proc/self/status":                                        "Name:\thugebus\nCapEff:\t0000000000000000\n",
		"proc/self/limits":                                        "Limit  Soft\nMax open files            524288               524288               files\n",
		"sys/devices/system/cpu/isolated":                         "2-3\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":    "performance\n",
		"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":    "performance\n",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return host{
		root:  root,
		sizes: func() ([]int64, error) { return []int64{2 << 20, 1 << 30}, nil },
		pool: func(size int64) (sys.HugePool, error) {
			return sys.HugePool{PageSize: size, Total: 64, Free: 64}, nil
		},
		thpWord:    func() (string, error) { return "madvise", nil },
		shmemTHP:   func() (string, error) { return "advise", nil },
		lockLimit:  func() (int64, error) { return 1 << 30, nil },
		barriers:   func() (sys.Barriers, error) { return sys.Barriers{Global: true, Private: true}, nil },
		allowed:    func() ([]int, error) { return []int{0, 1, 2, 5}, nil },
		memory:     func() (sys.Room, error) { return sys.Room{Bytes: 8 << 30, Source: "MemAvailable"}, nil },
		hugeRoom:   func(int64) (sys.Room, bool) { return sys.Room{}, false },
		cpuLimit:   func() (float64, string, bool) { return 0, "", false },
		taskLimit:  func() (int64, string, bool) { return 0, "", false },
		trySegment: func() (error, error) { return nil, nil },
	}
}

func TestAHostOnWhichAllIsWell(t *testing.T) {
	h := fine(t, nil)
	socket := filepath.Join(t.TempDir(), "h.sock")
	r := h.examine(t.Context(), socket)
	for _, c := range r.Checks {
		switch {
		case c.Name == "broker":
			// There is none, which only means that somebody has to start it.
			if c.Status != Warning || c.Do != "hugebus broker --socket "+socket {
				t.Errorf("%+v", c)
			}
		case c.Status != OK:
			t.Errorf("%+v", c)
		}
		if c.Name == "" || c.Found == "" {
			t.Errorf("a check says nothing: %+v", c)
		}
	}
	if r.Status != Warning || len(r.Checks) < 19 {
		t.Errorf("status %q of %d checks", r.Status, len(r.Checks))
	}
}

func TestTheWorstStatusCounts(t *testing.T) {
	r := Report{Status: OK}
	for _, s := range []Status{OK, Warning, Error, Warning} {
		r.add(Check{Status: s})
	}
	if r.Status != Error || len(r.Checks) != 4 {
		t.Errorf("%+v", r)
	}
}

// one is a look at a changed host, and what it must say.
type one struct {
	change func(h *host)
	look   func(h host) Check
	status Status
	found  string // part of Found
	do     string // part of Do; empty: nothing is to be done
}

func (o one) check(t *testing.T, name string, files map[string]string) {
	t.Helper()
	h := fine(t, files)
	if o.change != nil {
		o.change(&h)
	}
	c := o.look(h)
	if c.Status != o.status || !strings.Contains(c.Found, o.found) || !strings.Contains(c.Do, o.do) || o.do == "" && c.Do != "" {
		t.Errorf("%s: got %+v\nwant %s, %q, %q", name, c, o.status, o.found, o.do)
	}
}

func TestKernels(t *testing.T) {
	for release, want := range map[string]one{
		"6.18.44\n": {status: OK, found: "SO_PEERPIDFD"},
		"6.4.0\n":   {status: OK, found: "no SO_PEERPIDFD"},
		"5.15.0-91": {status: Warning, found: "MFD_NOEXEC_SEAL", do: "6.3 or later"},
		"5.10.0":    {status: Error, found: "MADV_POPULATE_WRITE", do: "use Linux 5.14"},
		"what":      {status: Warning, found: `"what"`, do: "use Linux"},
	} {
		want.look = host.kernel
		want.check(t, release, map[string]string{"proc/sys/kernel/osrelease": release})
	}
}

func pool(total, free int) func(h *host) {
	return func(h *host) {
		h.pool = func(size int64) (sys.HugePool, error) {
			return sys.HugePool{PageSize: size, Total: total, Free: free}, nil
		}
	}
}

func TestMemory(t *testing.T) {
	small := func(h host) Check { return h.hugePages()[0] }
	large := func(h host) Check { return h.hugePages()[1] }
	failing := errors.New("no sys here")
	for name, c := range map[string]one{
		"no pages of 2 MiB":   {pool(0, 0), small, Warning, "0 in the pool, 0 free", "sysctl -w vm.nr_hugepages=64"},
		"all in use":          {pool(100, 3), small, Warning, "100 in the pool, 3 free (6MiB)", "sysctl -w vm.nr_hugepages=129"},
		"just enough":         {pool(32, 32), small, OK, "32 free (64MiB)", ""},
		"no pages of 1 GiB":   {pool(0, 0), large, OK, "0 in the pool", "echo 1 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"},
		"no hugetlb":          {func(h *host) { h.sizes = func() ([]int64, error) { return nil, nil } }, small, Warning, "no hugetlb", "CONFIG_HUGETLBFS"},
		"no /sys":             {func(h *host) { h.pool = func(int64) (sys.HugePool, error) { return sys.HugePool{}, failing } }, small, Warning, "no sys here", "mount /sys"},
		"shmem never":         {func(h *host) { h.shmemTHP = word("never", nil) }, host.thp, Warning, "never", "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"},
		"no shmem THP":        {func(h *host) { h.shmemTHP = word("", fs.ErrNotExist) }, host.thp, Warning, "none", "hugetlb"},
		"THP unreadable":      {func(h *host) { h.shmemTHP = word("", failing) }, host.thp, Warning, "no sys", "mount /sys"},
		"private always":      {func(h *host) { h.thpWord = word("always", nil) }, host.thpPrivate, OK, "always", "echo madvise"},
		"private none":        {func(h *host) { h.thpWord = word("", fs.ErrNotExist) }, host.thpPrivate, OK, "none", ""},
		"private unreadable":  {func(h *host) { h.thpWord = word("", failing) }, host.thpPrivate, Warning, "no sys", "mount /sys"},
		"lock limit":          {func(h *host) { h.lockLimit = func() (int64, error) { return 8 << 20, nil } }, host.memlock, Warning, "limit of 8MiB", "LimitMEMLOCK"},
		"lock without":        {func(h *host) { h.lockLimit = func() (int64, error) { return -1, nil } }, host.memlock, OK, "no limit", ""},
		"lock unknown":        {func(h *host) { h.lockLimit = func() (int64, error) { return 0, failing } }, host.memlock, Warning, "no sys", "seccomp"},
		"little memory":       {func(h *host) { h.memory = room(100<<20, nil) }, host.cgroupMemory, Warning, "100.0 MiB", "MemoryMax="},
		"memory unknown":      {func(h *host) { h.memory = room(0, failing) }, host.cgroupMemory, Warning, "no sys", "mount /proc"},
		"cgroup of hugepages": {func(h *host) { h.hugeRoom = hugeRoom(2 << 20) }, host.cgroupHuge, Warning, "2MiB: 2.0 MiB left", "--pages thp"},
		"enough hugepages":    {func(h *host) { h.hugeRoom = hugeRoom(3 << 30) }, host.cgroupHuge, OK, "1GiB: 3.0 GiB left", ""},
	} {
		c.check(t, name, nil)
	}
	capable := one{func(h *host) { h.lockLimit = func() (int64, error) { return 0, nil } }, host.memlock, OK, "CAP_IPC_LOCK", ""}
	capable.check(t, "CAP_IPC_LOCK", map[string]string{"proc/self/status": "CapEff:\t0000000000004000\n"})
}

func word(w string, err error) func() (string, error) {
	return func() (string, error) { return w, err }
}

func room(n int64, err error) func() (sys.Room, error) {
	return func() (sys.Room, error) { return sys.Room{Bytes: n, Source: "somewhere"}, err }
}

func hugeRoom(n int64) func(int64) (sys.Room, bool) {
	return func(int64) (sys.Room, bool) { return sys.Room{Bytes: n, Source: "somewhere"}, true }
}

func TestProcessorsAndLimits(t *testing.T) {
	failing := errors.New("forbidden")
	barriers := func(b sys.Barriers, err error) func(h *host) {
		return func(h *host) { h.barriers = func() (sys.Barriers, error) { return b, err } }
	}
	for name, c := range map[string]one{
		"no membarrier":     {barriers(sys.Barriers{}, nil), host.membarrier, Warning, "global expedited (publishers", "CONFIG_MEMBARRIER"},
		"global only":       {barriers(sys.Barriers{Global: true}, nil), host.membarrier, Warning, "missing: private", "seccomp"},
		"membarrier fails":  {barriers(sys.Barriers{}, failing), host.membarrier, Warning, "forbidden", "seccomp"},
		"one processor":     {func(h *host) { h.allowed = func() ([]int, error) { return []int{3}, nil } }, host.cpus, Warning, "1 (number 3)", "taskset"},
		"no affinity":       {func(h *host) { h.allowed = func() ([]int, error) { return nil, failing } }, host.cpus, Warning, "forbidden", "seccomp"},
		"several":           {nil, host.cpus, OK, "4 (0-2,5)", ""},
		"isolated":          {nil, host.isolation, OK, "2-3;", ""},
		"throttled":         {func(h *host) { h.cpuLimit = cpu(0.5) }, host.cgroupCPU, Warning, "0.50 processors", "CPUQuota="},
		"two by limit":      {func(h *host) { h.cpuLimit = cpu(2) }, host.cgroupCPU, OK, "2.00 processors", ""},
		"few tasks":         {func(h *host) { h.taskLimit = tasks(10) }, host.cgroupTasks, Warning, "10 more", "TasksMax="},
		"many tasks":        {func(h *host) { h.taskLimit = tasks(1000) }, host.cgroupTasks, OK, "1000 more", ""},
		"many open files":   {nil, host.openFiles, OK, "524288", ""},
		"governors as they": {nil, host.governor, OK, "performance", ""},
	} {
		c.check(t, name, nil)
	}
	for text, c := range map[string]one{
		"Max open files            1024      4096    files\n": {nil, host.openFiles, Warning, "limit of 1024", "LimitNOFILE="},
		"Max open files            unlimited unlimited\n":     {nil, host.openFiles, OK, "no limit", ""},
		"": {nil, host.openFiles, Warning, "cannot be read", "mount /proc"},
	} {
		c.check(t, text, map[string]string{"proc/self/limits": text})
	}
	saving := one{nil, host.governor, Warning, "performance, powersave", "echo performance"}
	saving.check(t, "powersave", map[string]string{"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n"})
	none := one{nil, host.isolation, OK, "none", "isolcpus="}
	none.check(t, "no isolation", map[string]string{"sys/devices/system/cpu/isolated": "\n"})
	virtual := one{func(h *host) { h.root = t.TempDir() }, host.governor, OK, "virtual machines", ""}
	virtual.check(t, "virtual machine", nil)
}

func cpu(n float64) func() (float64, string, bool) {
	return func() (float64, string, bool) { return n, "cpu.max", true }
}

func tasks(n int64) func() (int64, string, bool) {
	return func() (int64, string, bool) { return n, "pids.max", true }
}

func TestSegments(t *testing.T) {
	h := fine(t, nil)
	broken := errors.New("memfd_create: operation not permitted")
	h.trySegment = func() (error, error) { return broken, nil }
	if c := h.segments(); len(c) != 1 || c[0].Status != Error || c[0].Found != broken.Error() || !strings.Contains(c[0].Do, "seccomp") {
		t.Errorf("%+v", c)
	}
	h.trySegment = func() (error, error) { return nil, broken }
	if c := h.segments(); len(c) != 2 || c[0].Status != OK || c[1].Status != Error || !strings.Contains(c[1].Do, "mount -t proc") {
		t.Errorf("%+v", c)
	}
}

// Whatever this machine is like: the looks work on it, and each says something.
func TestThisMachine(t *testing.T) {
	r := Examine(t.Context(), filepath.Join(t.TempDir(), "h.sock"))
	seen := map[string]bool{}
	for _, c := range r.Checks {
		if c.Name == "" || c.Found == "" || c.Status != OK && c.Do == "" || seen[c.Name] {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
		if (c.Name == "shared memory" || c.Name == "/proc/self/fd") && c.Status != OK {
			t.Errorf("%+v", c) // all other tests need it too
		}
	}
}
