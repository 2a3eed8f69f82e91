package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// maxName is what memfd_create takes: NAME_MAX less "memfd:".
const maxName = 249

// Options says what segment Create makes.
type Options struct {
	// Name shows up in /proc/PID/maps as memfd:Name. It need not be unique; at most 249 bytes; empty is "hugebus".
	Name string
	// Size is the number of bytes, above 0. It is rounded up to ordinary pages; but hugetlb and transparent huge
	// pages, if asked for by name, need an exact multiple of their page size.
	Size int64
	// Pages is the kind of pages. Any other value than PagesAuto is strict: that kind or an error.
	Pages Pages
	// Lock keeps the memory from being swapped out (mlock). Hugetlb pages never are.
	Lock bool
	// Node is the NUMA node that all pages must come from; nil for no preference.
	Node *int
}

// Create makes a segment, filled with zeros: sealed against any change of its size, with mode 0400, mapped for
// reading and writing, and with every page present. The caller closes it.
//
// Errors say what was needed, what there was, and what to do. Where memory, huge pages or what may be locked are
// short, errors.Is(err, unix.ENOMEM) holds; sizes and names that cannot work give unix.EINVAL.
func Create(o Options) (*Segment, error) {
	if o.Name == "" {
		o.Name = "hugebus"
	}
	s, err := o.create()
	if err != nil {
		return nil, fmt.Errorf("shm: create %q, %s: %w", o.Name, FormatSize(o.Size), err)
	}
	return s, nil
}

func (o Options) create() (*Segment, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Pages == PagesAuto {
		// What goes wrong here is no reason to fail: ordinary pages may still do, and if they do not, their error
		// is the one that counts.
		if o.Size%Pages2MiB.hugetlb() == 0 {
			if s, err := o.with(Pages2MiB).createHugetlb(); err == nil {
				return s, nil
			}
		}
		return o.createShmem()
	}
	if o.Pages.hugetlb() != 0 {
		return o.createHugetlb()
	}
	return o.createShmem()
}

func (o Options) with(p Pages) Options {
	o.Pages = p
	return o
}

// check refuses what cannot work on any machine, and nodes that this one lacks.
func (o Options) check() error {
	if o.Size <= 0 {
		return fmt.Errorf("size %d must be above 0: %w", o.Size, unix.EINVAL)
	}
	// Rounding up must not wrap around.
	if o.Size > 1<<62 {
		return fmt.Errorf("size must be at most %s: %w", FormatSize(1<<62), unix.EINVAL)
	}
	if len(o.Name) > maxName {
		return fmt.Errorf("name has %d bytes, at most %d are allowed: %w", len(o.Name), maxName, unix.EINVAL)
	}
	if strings.ContainsRune(o.Name, 0) {
		return fmt.Errorf("name contains a zero byte: %w", unix.EINVAL)
	}
	if int(o.Pages) >= len(pagesNames) {
		return fmt.Errorf("%v is not a page size: use auto, 1GiB, 2MiB, thp or 4KiB: %w", o.Pages, unix.EINVAL)
	}
	if unit := o.Pages.hugetlb(); unit != 0 && o.Size%unit != 0 {
		return fmt.Errorf("size must be a multiple of the page size %v: use %s, or pages \"auto\": %w",
			o.Pages, FormatSize(roundUp(o.Size, unit)), unix.EINVAL)
	}
	return o.checkNode()
}

func (o Options) checkNode() error {
	if o.Node == nil {
		return nil
	}
	nodes, err := sys.Nodes()
	if err != nil {
		return fmt.Errorf("NUMA node %d: %w", *o.Node, err)
	}
	for _, n := range nodes {
		if n == *o.Node {
			return nil
		}
	}
	return fmt.Errorf("there is no NUMA node %d (online: %v): leave the node out, or use one of these: %w",
		*o.Node, nodes, unix.EINVAL)
}

// createHugetlb makes the segment on pages of the pool that o.Pages names.
func (o Options) createHugetlb() (*Segment, error) {
	if err := o.checkPool(); err != nil {
		return nil, err
	}
	fd, err := sys.MemfdCreate(o.Name, o.Pages.hugetlb())
	if err != nil {
		return nil, err
	}
	return o.finish(fd, func(m *mapping) error {
		m.pages, m.pageSize = o.Pages, o.Pages.hugetlb()
		return nil
	})
}

// checkPool says in numbers what the kernel would only call ENOMEM.
func (o Options) checkPool() error {
	pool, err := sys.HugePages(o.Pages.hugetlb())
	if errors.Is(err, fs.ErrNotExist) {
		sizes, _ := sys.HugePageSizes()
		var have []string
		for _, s := range sizes {
			have = append(have, FormatSize(s))
		}
		if have == nil {
			have = []string{"none"}
		}
		return fmt.Errorf("this machine has no huge pages of %v (it has: %s): use another page size, or \"auto\": %w",
			o.Pages, strings.Join(have, ", "), unix.ENODEV)
	}
	if err != nil {
		return err
	}
	need := o.Size / pool.PageSize
	if need > int64(pool.Free) {
		return fmt.Errorf("needs %d huge pages of %v, %d of %d are free: %s: %w",
			need, o.Pages, pool.Free, pool.Total, poolRemedy(pool, need), unix.ENOMEM)
	}
	if room, ok := sys.CgroupHuge(pool.PageSize); ok && room.Bytes < o.Size {
		return fmt.Errorf("needs %s of huge pages, %s are available (%s): raise that limit, or use pages \"auto\": %w",
			FormatSize(o.Size), roughly(room.Bytes), room.Source, unix.ENOMEM)
	}
	return nil
}

// poolRemedy says how to get need free pages. The sysctl is for the machine's default size only.
func poolRemedy(pool sys.HugePool, need int64) string {
	if need <= int64(pool.Free) {
		return "try again, look at the hugetlb limits of the cgroup, or use pages \"auto\""
	}
	total := int64(pool.Total) + need - int64(pool.Free)
	remedy := fmt.Sprintf("as root type: echo %d > %s", total, pool.SysctlName())
	if size, err := sys.MemInfo("Hugepagesize"); err == nil && size == pool.PageSize {
		remedy = fmt.Sprintf("as root type: sysctl -w vm.nr_hugepages=%d", total)
	}
	if pool.PageSize >= 1<<30 {
		remedy += fmt.Sprintf(" (if that finds none, boot with hugepagesz=1G hugepages=%d)", total)
	}
	return remedy + ", or use pages \"auto\""
}

// createShmem makes the segment on ordinary or transparent huge pages.
func (o Options) createShmem() (*Segment, error) {
	thp, err := planTHP(o)
	if err != nil {
		return nil, err
	}
	o.Size = roundUp(o.Size, int64(os.Getpagesize()))
	if err := o.checkMemory(); err != nil {
		return nil, err
	}
	fd, err := sys.MemfdCreate(o.Name, 0)
	if err != nil {
		return nil, err
	}
	return o.finish(fd, thp.settle)
}

// spare is the part of what is available that a segment never takes: what reads as available is an estimate, and
// whoever takes the last of it wakes the OOM killer.
const spare = 32

// checkMemory refuses what would not fit, before the kernel finds out: it does not answer with an error, it kills.
func (o Options) checkMemory() error {
	room, err := sys.AvailableMemory()
	if err != nil {
		return fmt.Errorf("how much memory is available: %w", err)
	}
	if o.Node != nil {
		// Memory that is bound to a node comes from nowhere else, not even when the node is full.
		node, err := sys.NodeMemory(*o.Node)
		if err != nil {
			return fmt.Errorf("how much memory NUMA node %d has: %w", *o.Node, err)
		}
		if node.Bytes < room.Bytes {
			room = node
		}
	}
	if usable := room.Bytes - room.Bytes/spare; o.Size > usable {
		return fmt.Errorf("needs %s, %s are available (%s, less 1/%d that is left alone): use a smaller size, or free memory: %w",
			roughly(o.Size), roughly(usable), room.Source, spare, unix.ENOMEM)
	}
	return nil
}

// finish takes ownership of the new memfd fd and does what all kinds have in common. settle runs once every page is
// there, and finds out what kind they are.
func (o Options) finish(fd int, settle func(*mapping) error) (_ *Segment, err error) {
	f := os.NewFile(uintptr(fd), "memfd:"+o.Name)
	var m mapping
	defer func() {
		if err != nil {
			m.discard()
			f.Close()
		}
	}()
	// First of all, while nobody else can know of it: see the package's comment.
	if err := f.Chmod(0o400); err != nil {
		return nil, err
	}
	if err := f.Truncate(o.Size); err != nil {
		return nil, err
	}
	if err := sys.Seal(fd, sys.SealFixed); err != nil {
		return nil, err
	}
	if m, err = mapFile(f, o.Size, true); err != nil {
		// Huge pages are reserved by mmap.
		if errors.Is(err, unix.ENOMEM) {
			err = o.shortage("map", err)
		}
		return nil, err
	}
	if o.Pages.hugetlb() == 0 {
		// EINVAL: a kernel that has no transparent huge pages, which then cannot give the wrong ones.
		if err := sys.AdviseHuge(m.mem, o.Pages != Pages4KiB); err != nil && !errors.Is(err, unix.EINVAL) {
			return nil, err
		}
	}
	if o.Node != nil {
		if err := sys.BindNode(m.mem, *o.Node); err != nil {
			return nil, fmt.Errorf("bind to NUMA node %d: %w", *o.Node, err)
		}
	}
	if err := populateNew(f, m.mem, o); err != nil {
		return nil, err
	}
	if err := settle(&m); err != nil {
		return nil, err
	}
	if o.Lock && o.Pages.hugetlb() == 0 {
		if err := lock(m.mem); err != nil {
			return nil, err
		}
	}
	return newSegment(f, m), nil
}

// roundUp returns the least multiple of unit that is at least n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
