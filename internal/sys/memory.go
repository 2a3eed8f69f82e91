package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Populate makes every page of the mapping b present: readable, or writable too if write. Where touching a page
// would raise SIGBUS or SIGSEGV it returns an error instead, among them ENOMEM and EFAULT for want of memory.
// Kernels before 5.14 answer EINVAL. See MADV_POPULATE_WRITE in madvise(2). b is a whole mapping, or starts and
// ends at pages of it.
func Populate(b []byte, write bool) error {
	advice, name := unix.MADV_POPULATE_READ, "madvise MADV_POPULATE_READ"
	if write {
		advice, name = unix.MADV_POPULATE_WRITE, "madvise MADV_POPULATE_WRITE"
	}
	for {
		err := unix.Madvise(b, advice)
		// A signal (the Go scheduler sends some) may end a long call; pages that are there already stay there, so
		// the next call gets further.
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		return os.NewSyscallError(name, err)
	}
}

// AdviseHuge asks for transparent huge pages for the mapping b (huge), or for none. EINVAL where the kernel has none.
func AdviseHuge(b []byte, huge bool) error {
	if huge {
		return os.NewSyscallError("madvise MADV_HUGEPAGE", unix.Madvise(b, unix.MADV_HUGEPAGE))
	}
	return os.NewSyscallError("madvise MADV_NOHUGEPAGE", unix.Madvise(b, unix.MADV_NOHUGEPAGE))
}

// Collapse asks the kernel to put the pages of the mapping b together into transparent huge pages, now. It is best
// effort: EAGAIN or ENOMEM mean that some of them could not be. Linux 6.1; EINVAL before.
func Collapse(b []byte) error {
	return os.NewSyscallError("madvise MADV_COLLAPSE", unix.Madvise(b, unix.MADV_COLLAPSE))
}

// Lock keeps the mapping b in memory. EPERM and ENOMEM mean that RLIMIT_MEMLOCK (see MemlockLimit) is too low.
func Lock(b []byte) error {
	return os.NewSyscallError("mlock", unix.Mlock(b))
}

// MemlockLimit returns how many bytes this process may lock, or -1 for any number. A process with CAP_IPC_LOCK is
// not held to it.
func MemlockLimit() (int64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return 0, os.NewSyscallError("getrlimit RLIMIT_MEMLOCK", err)
	}
	if r.Cur > 1<<62 {
		return -1, nil
	}
	return int64(r.Cur), nil
}
