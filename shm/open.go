package shm

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// ErrNotSealed means that a descriptor is not a memfd whose size is fixed by seals. It is not mapped: a peer could
// shrink it, and the next access would end this process with SIGBUS.
var ErrNotSealed = errors.New("not a memfd that is sealed against shrinking and growing: a peer could make us die of SIGBUS")

// Open maps a segment that another process created, from its descriptor f, for reading or also for writing. It takes
// ownership of f in every case: Close closes it, and so does Open where it returns an error.
//
// Writing needs a writable descriptor: one from ReadOnlyFile gives unix.EACCES. A descriptor that is not a sealed
// segment gives ErrNotSealed. Every page is present when Open returns.
func Open(f *os.File, writable bool) (*Segment, error) {
	m, err := openMapping(f, writable)
	if err != nil {
		m.discard()
		f.Close()
		return nil, fmt.Errorf("shm: open: %w", err)
	}
	return newSegment(f, m), nil
}

// openMapping may return a mapping together with an error.
func openMapping(f *os.File, writable bool) (m mapping, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return m, err
	}
	var hugetlb int64
	cerr := raw.Control(func(fd uintptr) {
		// The seals come first: only they make the size that is read next stay what it is.
		if err = checkSealed(int(fd)); err == nil {
			hugetlb, err = sys.HugetlbPageSize(int(fd))
		}
	})
	if err := errors.Join(cerr, err); err != nil {
		return m, err
	}
	info, err := f.Stat()
	if err != nil {
		return m, err
	}
	size := info.Size()
	if size <= 0 || size > math.MaxInt {
		return m, fmt.Errorf("size %d must be above 0: %w", size, unix.EINVAL)
	}
	if m, err = mapFile(f, size, writable); err != nil {
		return m, err
	}
	// EINVAL is a kernel before 5.14; the pages are there since Create, and only the page tables are filled in later.
	if err := sys.Populate(m.mem, writable); err != nil && !errors.Is(err, unix.EINVAL) {
		return m, fmt.Errorf("populate %s: %w", FormatSize(size), err)
	}
	return m, m.identify(hugetlb)
}

func checkSealed(fd int) error {
	const need = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := sys.Seals(fd)
	if errors.Is(err, unix.EINVAL) || err == nil && seals&need != need {
		return ErrNotSealed
	}
	return err
}

// identify finds out what pages a mapping has that others made.
func (m *mapping) identify(hugetlb int64) error {
	if hugetlb != 0 {
		for _, p := range []Pages{Pages2MiB, Pages1GiB} {
			if p.hugetlb() == hugetlb {
				m.pages, m.pageSize = p, hugetlb
				return nil
			}
		}
		return fmt.Errorf("huge pages of %s are none that hugebus makes: %w", FormatSize(hugetlb), unix.EINVAL)
	}
	size, err := sys.THPSize()
	if err != nil || size > int64(len(m.mem)) {
		return nil // ordinary pages
	}
	return thpPlan{size: size}.settle(m)
}
