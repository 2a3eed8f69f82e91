package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"
)

// Segment is one shared memory object, mapped. Make it with Create or Open, release it with Close. All methods may be
// called from several goroutines at the same time.
//
// The memory stays mapped until Close was called and every Acquire has its Release. Whoever uses the memory while
// another goroutine may call Close holds an Acquire:
//
//	if err := seg.Acquire(); err != nil {
//		return err // os.ErrClosed
//	}
//	defer seg.Release()
//	use(seg.Bytes())
type Segment struct {
	mem      mmap.MMap
	file     *os.File
	pages    Pages
	pageSize int64

	// refs counts the users of the mapping in its low bits: one for the owner until Close, one for each Acquire.
	// closedBit says that Close was called. Unmapped when it is closedBit alone.
	refs atomic.Int64
}

// closedBit is above any number of users.
const closedBit = 1 << 62

func newSegment(f *os.File, m mapping) *Segment {
	s := &Segment{mem: m.mem, file: f, pages: m.pages, pageSize: m.pageSize}
	s.refs.Store(1)
	return s
}

// Bytes returns the memory, from the start of a page, Size bytes. It is nil when the memory is unmapped already. Do
// not keep it beyond Close or Release: touching it after the unmapping is a fault that cannot be recovered from.
// Writing to memory that was opened read-only is such a fault, too.
func (s *Segment) Bytes() []byte {
	if s.refs.Load() == closedBit {
		return nil
	}
	return s.mem
}

// Size returns the number of bytes of the segment: what was asked for, rounded up to whole pages.
func (s *Segment) Size() int64 { return int64(len(s.mem)) }

// Pages returns the kind of pages that the segment really has; never PagesAuto. PagesTHP means that the kernel had
// the whole segment (but for a last part that is less than a huge page) on huge pages when it was mapped.
func (s *Segment) Pages() Pages { return s.pages }

// PageSize returns the size in bytes of the pages that the segment really has, by the same rule as Pages.
func (s *Segment) PageSize() int64 { return s.pageSize }

// File returns the descriptor of the segment, to be passed to another process. After Create it is writable; after
// Open it is the one that was given. It still belongs to s: do not close it, and do not use it after Close.
func (s *Segment) File() *os.File { return s.file }

// ReadOnlyFile returns a new descriptor by which the memory can be read and mapped, and not written. The caller
// closes it. It needs /proc, and to be the user who created the segment. After Close it returns os.ErrClosed.
func (s *Segment) ReadOnlyFile() (*os.File, error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("shm: read-only descriptor: %w", err)
	}
	var ro *os.File
	cerr := raw.Control(func(fd uintptr) {
		ro, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY, 0)
	})
	if s.refs.Load()&closedBit != 0 {
		if ro != nil {
			ro.Close()
		}
		return nil, os.ErrClosed
	}
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("shm: read-only descriptor (is /proc mounted?): %w", err)
	}
	return ro, nil
}

// Acquire keeps the memory mapped until Release. After Close it returns os.ErrClosed. It never blocks.
func (s *Segment) Acquire() error {
	for {
		n := s.refs.Load()
		if n&closedBit != 0 {
			return os.ErrClosed
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Release ends one Acquire. The last one after Close unmaps the memory. A Release without an Acquire would take the
// memory from under somebody else, so it panics.
func (s *Segment) Release() {
	for {
		n := s.refs.Load()
		users := n &^ closedBit
		if n&closedBit == 0 {
			users-- // the owner is not one of those who acquired
		}
		if users <= 0 {
			panic("shm: Release of a Segment without Acquire")
		}
		if !s.refs.CompareAndSwap(n, n-1) {
			continue
		}
		if n-1 == closedBit {
			// Nobody is left to whom an error could be returned. The kernel has none to give for a whole mapping.
			if err := s.unmap(); err != nil {
				slog.Error("shm: a segment stays mapped", "file", s.file.Name(), "bytes", len(s.mem), "error", err)
			}
		}
		return
	}
}

// Close closes the descriptor, makes every later Acquire fail, and unmaps the memory, at once or in the last Release.
// Closing again does nothing. What other processes have mapped is not affected.
func (s *Segment) Close() error {
	for {
		n := s.refs.Load()
		if n&closedBit != 0 {
			return nil
		}
		if !s.refs.CompareAndSwap(n, (n-1)|closedBit) {
			continue
		}
		err := s.file.Close()
		if n == 1 {
			err = errors.Join(err, s.unmap())
		}
		if err != nil {
			return fmt.Errorf("shm: close: %w", err)
		}
		return nil
	}
}

// unmap leaves s.mem as it is: Size still answers, and Bytes looks at refs.
func (s *Segment) unmap() error {
	m := s.mem
	return m.Unmap()
}
