package sys

import (
	"fmt"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

// SealFixed is the set of seals that fixes a memfd's size for good: nobody can shrink it (which would make every
// process that maps it die of SIGBUS), nobody can grow it, and nobody can add or take back a seal.
const SealFixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// MemfdCreate returns a new memory file of size 0 that can be sealed, is close-on-exec, and cannot be executed where
// the kernel knows MFD_NOEXEC_SEAL (6.3). hugePage is 0 for ordinary pages, or the size in bytes of the hugetlb pages
// to use. name shows up in /proc/PID/maps as memfd:name and need not be unique. The caller owns the descriptor.
//
// A huge page size that the machine lacks gives ENODEV or EINVAL.
func MemfdCreate(name string, hugePage int64) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if hugePage != 0 {
		if hugePage < 0 || hugePage&(hugePage-1) != 0 {
			return -1, fmt.Errorf("memfd_create: huge page size %d is not a power of two", hugePage)
		}
		flags |= unix.MFD_HUGETLB | bits.TrailingZeros64(uint64(hugePage))<<unix.MFD_HUGE_SHIFT
	}
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		// An older kernel refuses flags that it does not know. If the page size was what it did not like, this one
		// fails the same way.
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	return fd, nil
}

// Seal adds seals to the memfd fd.
func Seal(fd, seals int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl F_ADD_SEALS", err)
}

// Seals returns the seals of fd. EINVAL means that it is not memory that can be sealed.
func Seals(fd int) (int, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return seals, os.NewSyscallError("fcntl F_GET_SEALS", err)
}

// HugetlbPageSize returns the page size in bytes of the hugetlb file fd, or 0 if it is not one.
func HugetlbPageSize(fd int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	if st.Type != unix.HUGETLBFS_MAGIC {
		return 0, nil
	}
	return st.Bsize, nil
}
