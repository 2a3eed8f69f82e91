package shm

import (
	"errors"
	"fmt"
	"os"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// mapping is a mapped file, and what is known of its pages.
type mapping struct {
	mem      mmap.MMap
	pages    Pages
	pageSize int64
}

// mapFile maps size bytes of f from its start. Pages are ordinary ones until somebody finds out more.
func mapFile(f *os.File, size int64, writable bool) (mapping, error) {
	prot, what := mmap.RDONLY, "for reading"
	if writable {
		prot, what = mmap.RDWR, "for reading and writing"
	}
	mem, err := mmap.MapRegion(f, int(size), prot, 0, 0)
	if err != nil {
		return mapping{}, fmt.Errorf("map %s %s: %w", FormatSize(size), what, os.NewSyscallError("mmap", err))
	}
	return mapping{mem: mem, pages: Pages4KiB, pageSize: int64(os.Getpagesize())}, nil
}

// discard unmaps what did not become a Segment.
func (m *mapping) discard() {
	if m.mem != nil {
		_ = m.mem.Unmap() // the error that led here says more
	}
}

// populateNew makes every page of a new segment present.
func populateNew(f *os.File, mem []byte, o Options) error {
	err := sys.Populate(mem, true)
	if errors.Is(err, unix.EINVAL) {
		err = allocate(f, int64(len(mem)))
	}
	if err == nil {
		return nil
	}
	return o.shortage("populate", err)
}

// shortage explains a shortage that the checks before did not see: they were looks, and somebody else was faster,
// or there is a limit that they do not know.
func (o Options) shortage(what string, err error) error {
	where := ""
	if o.Node != nil {
		where = fmt.Sprintf(" on NUMA node %d", *o.Node)
	}
	if size := o.Pages.hugetlb(); size != 0 {
		pool, _ := sys.HugePages(size)
		need := o.Size / size
		return fmt.Errorf("%s %d huge pages of %v%s (free now: %d of %d): %s: %w (%w)",
			what, need, o.Pages, where, pool.Free, pool.Total, poolRemedy(pool, need), unix.ENOMEM, err)
	}
	room, _ := sys.AvailableMemory()
	return fmt.Errorf("%s %s%s (available now: %s, %s): use a smaller size, or free memory: %w (%w)",
		what, roughly(o.Size), where, roughly(room.Bytes), room.Source, unix.ENOMEM, err)
}

// allocate is for kernels that cannot populate (before 5.14): it gets every page of the file by fallocate, which
// fails where touching would raise SIGBUS. The pages are there then, and only the page tables are filled in later.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		if err != unix.EINTR {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// lock keeps the memory from being swapped out.
func lock(mem []byte) error {
	err := sys.Lock(mem)
	if err == nil {
		return nil
	}
	limit := "no limit"
	if n, lerr := sys.MemlockLimit(); lerr == nil && n >= 0 {
		limit = FormatSize(n)
	}
	return fmt.Errorf("lock %s in memory (RLIMIT_MEMLOCK is %s): raise it with ulimit -l, or LimitMEMLOCK=infinity in the "+
		"systemd unit, or give the program CAP_IPC_LOCK; or do not lock: %w (%w)",
		roughly(int64(len(mem))), limit, unix.ENOMEM, err)
}
