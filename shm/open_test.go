package shm_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/shm"
)

// reopened returns another descriptor of a segment, as another process would get it.
func reopened(t testing.TB, s *shm.Segment, writable bool) *os.File {
	t.Helper()
	if !writable {
		f, err := s.ReadOnlyFile()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	fd, err := sys.Dup(int(s.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "dup")
}

// open opens a segment that is closed when the test ends.
func open(t testing.TB, f *os.File, writable bool) *shm.Segment {
	t.Helper()
	s, err := shm.Open(f, writable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// eachKind runs a test on segments of every kind of pages that there is now.
func eachKind(t *testing.T, test func(t *testing.T, s *shm.Segment)) {
	for _, p := range []shm.Pages{shm.PagesAuto, shm.Pages4KiB, shm.PagesTHP, shm.Pages2MiB} {
		t.Run(p.String(), func(t *testing.T) {
			if p == shm.Pages2MiB {
				needHuge(t, 2*mib, 2)
			}
			if p == shm.PagesTHP {
				setShmemTHP(t, "advise")
			}
			test(t, createHuge(t, shm.Options{Name: "kind", Size: 4 * mib, Pages: p}))
		})
	}
}

func TestOpenSharesTheMemory(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shm.Segment) {
		ro, rw := open(t, reopened(t, s, false), false), open(t, reopened(t, s, true), true)
		for _, o := range []*shm.Segment{ro, rw} {
			if o.Size() != s.Size() || o.Pages() != s.Pages() || o.PageSize() != s.PageSize() {
				t.Errorf("%d bytes on %v (%d), want %d on %v (%d)", o.Size(), o.Pages(), o.PageSize(), s.Size(), s.Pages(), s.PageSize())
			}
			checkPages(t, o)
		}
		copy(s.Bytes()[4096:], "from the creator")
		copy(rw.Bytes()[8192:], "from a writer")
		for _, m := range [][]byte{s.Bytes(), ro.Bytes(), rw.Bytes()} {
			if !bytes.HasPrefix(m[4096:], []byte("from the creator\x00")) || !bytes.HasPrefix(m[8192:], []byte("from a writer\x00")) {
				t.Errorf("got %q, %q", m[4096:4116], m[8192:8212])
			}
		}
		// A mapping outlives the descriptor and the creator.
		s.Close()
		if !bytes.HasPrefix(ro.Bytes()[8192:], []byte("from a writer")) {
			t.Error("the memory is gone with its creator")
		}
	})
}

func TestReadOnlyDescriptorCannotBeMappedForWriting(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shm.Segment) {
		_, err := shm.Open(reopened(t, s, false), true)
		const want = "shm: open: map 4MiB for reading and writing: mmap: permission denied"
		if !errors.Is(err, unix.EACCES) || err.Error() != want {
			t.Errorf("Open: %v", err)
		}
		ro := reopened(t, s, false)
		defer ro.Close()
		if b, err := unix.Mmap(int(ro.Fd()), 0, 4*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EACCES {
			t.Errorf("mmap: %d bytes, %v; want EACCES", len(b), err)
		}
		if flags, err := unix.FcntlInt(ro.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %#x, %v: not close-on-exec", flags, err)
		}
		// A mapping that was made for reading cannot be changed to writing either.
		m := open(t, reopened(t, s, false), false)
		if err := unix.Mprotect(m.Bytes(), unix.PROT_READ|unix.PROT_WRITE); err != unix.EACCES {
			t.Errorf("mprotect: %v, want EACCES", err)
		}
		for _, n := range []int64{0, 8 * mib} {
			if err := unix.Ftruncate(int(ro.Fd()), n); err == nil {
				t.Errorf("ftruncate to %d worked", n)
			}
		}
		if _, err := ro.WriteAt([]byte("x"), 0); err == nil {
			t.Error("write worked")
		}
	})
}

// rawMemfd returns a memfd that this package did not make.
func rawMemfd(t *testing.T, size int64, seals int) *os.File {
	t.Helper()
	fd, err := sys.MemfdCreate("raw", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "raw")
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := sys.Seal(fd, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOpenRefusesWhatIsNotASealedSegment(t *testing.T) {
	regular, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := regular.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, f := range map[string]*os.File{
		"not sealed":   rawMemfd(t, 4096, 0),
		"can shrink":   rawMemfd(t, 4096, unix.F_SEAL_GROW|unix.F_SEAL_SEAL),
		"can grow":     rawMemfd(t, 4096, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL),
		"regular file": regular,
		"pipe":         r,
	} {
		s, err := shm.Open(f, false)
		if !errors.Is(err, shm.ErrNotSealed) {
			t.Errorf("%s: %v, %v", name, s, err)
		} else if !strings.Contains(err.Error(), "not a memfd that is sealed against shrinking and growing") {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: Open left the file open", name)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	empty := rawMemfd(t, 0, sys.SealFixed)
	if _, err := shm.Open(empty, false); !errors.Is(err, unix.EINVAL) || err.Error() != "shm: open: size 0 must be above 0: invalid argument" {
		t.Errorf("empty: %v", err)
	}
	if err := empty.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("Open left the file open")
	}
	if _, err := shm.Open(empty, false); !errors.Is(err, os.ErrClosed) && err == nil {
		t.Errorf("closed: %v", err)
	}
	if _, err := shm.Open(nil, false); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
}

func TestOpenOfASealedMemfdFromElsewhere(t *testing.T) {
	s := open(t, rawMemfd(t, 8192, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW), true)
	s.Bytes()[8191] = 1
	if s.Size() != 8192 || s.Pages() != shm.Pages4KiB {
		t.Errorf("%d bytes on %v", s.Size(), s.Pages())
	}
}
