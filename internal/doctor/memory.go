package doctor

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/shm"
)

// kernel looks at what this release of Linux can do.
func (h host) kernel() Check {
	const name = "kernel"
	release := h.text("proc/sys/kernel/osrelease")
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return warn(name, fmt.Sprintf("release %q is not understood", release), "use Linux 5.14 or later")
	}
	at := func(a, b int) bool { return major > a || major == a && minor >= b }
	switch {
	case !at(5, 14):
		return bad(name, "Linux "+release+" has no MADV_POPULATE_WRITE: a shortage of memory would be a crash, not an error",
			"use Linux 5.14 or later")
	case !at(6, 3):
		return warn(name, "Linux "+release+" lacks memfds that cannot be executed (MFD_NOEXEC_SEAL)",
			"Linux 6.3 or later adds this hardening; everything else works")
	case !at(6, 5):
		return good(name, "Linux "+release+": MADV_POPULATE_WRITE, MFD_NOEXEC_SEAL; no SO_PEERPIDFD (6.5)")
	}
	return good(name, "Linux "+release+": MADV_POPULATE_WRITE, MFD_NOEXEC_SEAL, SO_PEERPIDFD")
}

// trySegment makes a small segment the way a broker does, and opens it the way a subscriber does. A first error makes
// the second meaningless.
func trySegment() (sealed, readOnly error) {
	seg, err := shm.Create(shm.Options{Name: "hugebus-doctor", Size: 4096, Pages: shm.Pages4KiB})
	if err != nil {
		return err, nil
	}
	defer func() { _ = seg.Close() }() // it was only tried
	f, err := seg.ReadOnlyFile()
	if err != nil {
		return nil, err
	}
	reader, err := shm.Open(f, false)
	if err != nil {
		return nil, err
	}
	return nil, reader.Close()
}

// segments looks whether shared memory can be made, sealed, populated, and given to readers.
func (h host) segments() []Check {
	sealed, readOnly := h.trySegment()
	if sealed != nil {
		return []Check{bad("shared memory", sealed.Error(),
			"allow memfd_create, fcntl and madvise in the container's seccomp profile, and some memory in its cgroup")}
	}
	made := good("shared memory", "a memfd can be made, sealed, populated and mapped")
	if readOnly != nil {
		return []Check{made, bad("/proc/self/fd", readOnly.Error(), "mount /proc in this container (mount -t proc proc /proc)")}
	}
	return []Check{made, good("/proc/self/fd", "gives out descriptors that can be read only")}
}

// hugePages looks at the pools of hugetlb pages. Pages of 2 MiB are those that matter.
func (h host) hugePages() []Check {
	sizes, err := h.sizes()
	if err != nil || len(sizes) == 0 {
		return []Check{warn("huge pages", "this kernel has no hugetlb pages; topics use ordinary or transparent ones",
			"boot a kernel with CONFIG_HUGETLBFS to have them")}
	}
	var checks []Check
	for _, size := range sizes {
		pool, err := h.pool(size)
		if err != nil {
			checks = append(checks, warn("huge pages", err.Error(), "mount /sys in this container"))
			continue
		}
		checks = append(checks, h.pagePool(pool))
	}
	return checks
}

func (h host) pagePool(p sys.HugePool) Check {
	name := "huge pages of " + shm.FormatSize(p.PageSize)
	found := fmt.Sprintf("%d in the pool, %d free (%s)", p.Total, p.Free, shm.FormatSize(int64(p.Free)*p.PageSize))
	need := (broker.DefaultCapacity + p.PageSize - 1) / p.PageSize
	switch {
	case int64(p.Free) >= need:
		return good(name, found)
	case p.PageSize != 2<<20:
		// Only who asks for them by name gets them.
		c := good(name, found)
		if p.PageSize == 1<<30 {
			c.Do = "for --pages 1GiB, as root: " + h.setPages(p, need) + " (best at boot: hugepagesz=1G hugepages=1)"
		}
		return c
	}
	used := int64(p.Total - min(p.Free, p.Total))
	return warn(name, fmt.Sprintf("%s, and a topic of the default capacity (%s) takes %d: topics fall back to transparent or ordinary pages",
		found, shm.FormatSize(broker.DefaultCapacity), need), "as root: "+h.setPages(p, max(2*need, used+need)))
}

func (h host) setPages(p sys.HugePool, n int64) string {
	if p.PageSize == 2<<20 {
		return fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", n)
	}
	return fmt.Sprintf("echo %d > %s", n, p.SysctlName())
}

// thp looks at the setting for transparent huge pages of shared memory.
func (h host) thp() Check {
	const name = "transparent huge pages (shared)"
	word, err := h.shmemTHP()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(name, "this kernel has none", "reserve hugetlb pages instead (see above)")
	case err != nil:
		return warn(name, err.Error(), "mount /sys in this container")
	case word == "never" || word == "deny":
		return warn(name, word+": topics that get no hugetlb pages use ordinary ones",
			"as root: echo advise > "+sys.ShmemTHPFile)
	}
	return good(name, word)
}

// thpPrivate looks at the setting for private memory, such as the heaps of programs that use the bus.
func (h host) thpPrivate() Check {
	const name = "transparent huge pages (private)"
	word, err := h.thpWord()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return good(name, "this kernel has none; topics do not use them")
	case err != nil:
		return warn(name, err.Error(), "mount /sys in this container")
	case word == "always":
		c := good(name, "always")
		c.Do = "if programs show pauses, as root: echo madvise > " + sys.THPFile
		return c
	}
	return good(name, word+"; topics do not use them")
}

// memlock looks at how much memory may be locked, which --lock needs.
func (h host) memlock() Check {
	const name = "locked memory"
	limit, err := h.lockLimit()
	switch {
	case err != nil:
		return warn(name, err.Error(), "allow getrlimit in the container's seccomp profile")
	case h.mayLock():
		return good(name, "no limit (CAP_IPC_LOCK)")
	case limit < 0:
		return good(name, "no limit")
	case limit < broker.DefaultCapacity:
		return warn(name, fmt.Sprintf("limit of %s, and a topic of the default capacity (%s) does not fit: --lock fails",
			shm.FormatSize(limit), shm.FormatSize(broker.DefaultCapacity)),
			"ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit; only for topics with --lock")
	}
	return good(name, "limit of "+shm.FormatSize(limit))
}
