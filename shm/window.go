package shm

import (
	"errors"
	"fmt"
	"os"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// A Window is one more mapping of a Segment in the same process, for one user, who can be cut off from the shared memory
// while the Segment's other users go on: Fence. Fence may be called while the user reads and writes; Close may not.
type Window struct {
	mem  mmap.MMap
	page int64 // bytes; what Fence rounds to
}

// Window maps s once more, for reading and writing. Every page is present when it returns. The caller closes it, before
// or after s. An error leaves nothing behind; after Close of s it is os.ErrClosed.
func (s *Segment) Window() (*Window, error) {
	if err := s.Acquire(); err != nil {
		return nil, err
	}
	defer s.Release()
	m, err := mapFile(s.file, s.Size(), true)
	if err != nil {
		return nil, fmt.Errorf("shm: window: %w", err)
	}
	w := &Window{mem: m.mem, page: int64(os.Getpagesize())}
	switch s.pages {
	case Pages2MiB, Pages1GiB:
		w.page = s.pageSize
	case PagesTHP:
		_ = sys.AdviseHuge(w.mem, true) // the window is right without, and a little slower
	}
	// EINVAL is a kernel before 5.14; the pages are there, and only the page tables are filled in later.
	if err := sys.Populate(w.mem, true); err != nil && !errors.Is(err, unix.EINVAL) {
		m.discard()
		return nil, fmt.Errorf("shm: window: populate %s: %w", FormatSize(s.Size()), err)
	}
	return w, nil
}

// Bytes is the memory, as long as the window is open: the same bytes as the Segment's, but for those that Fence took away.
func (w *Window) Bytes() []byte { return w.mem }

// Fence takes n bytes from off on, and what shares a page with them, away from the window's user, who finds
// private memory there from now on, all zeros: no store by way of the window reaches the Segment there when Fence has
// returned. An error: nothing has changed.
func (w *Window) Fence(off, n int64) error {
	if off < 0 || n < 0 || off > int64(len(w.mem))-n {
		return fmt.Errorf("shm: fence %d bytes at %d of a window of %d: %w", n, off, len(w.mem), unix.EINVAL)
	}
	from, to := off&^(w.page-1), min((off+n+w.page-1)&^(w.page-1), int64(len(w.mem)))
	if from == to {
		return nil
	}
	if err := sys.Replace(w.mem[from:to]); err != nil {
		return fmt.Errorf("shm: fence %s: %w", FormatSize(to-from), err)
	}
	return nil
}

// Close unmaps the window. Nobody uses it any more.
func (w *Window) Close() error {
	if w.mem == nil {
		return nil
	}
	err := w.mem.Unmap()
	w.mem = nil
	if err != nil {
		return fmt.Errorf("shm: close window: %w", err)
	}
	return nil
}
