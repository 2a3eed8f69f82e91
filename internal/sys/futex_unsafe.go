package sys

import (
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2). Without FUTEX_PRIVATE_FLAG they work between processes that map the same memory.
const (
	futexWait = 0
	futexWake = 1
)

// FutexWait blocks the calling thread while *addr is val, until FutexWake, or for as long as timeout says if that is
// above 0. addr may lie in memory that several processes share. It may also return nil for no reason, so look at
// *addr again. Errors to expect: EAGAIN (*addr was not val), EINTR, ETIMEDOUT.
//
// A thread is held for the whole wait: this is for measuring what the raw primitive costs, not for waiting in
// goroutines, which package doorbell does.
func FutexWait(addr *atomic.Uint32, val uint32, timeout time.Duration) error {
	var ts *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	// Sound: an atomic.Uint32 is exactly the aligned 32-bit word that the kernel reads, and both pointers stay alive
	// across the call because they are converted in its argument list.
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWait, uintptr(val),
		uintptr(unsafe.Pointer(ts)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("futex wait", errno)
	}
	return nil
}

// FutexWake wakes up to n of those who wait on addr, in any process, and returns how many it woke.
func FutexWake(addr *atomic.Uint32, n int) (int, error) {
	// Sound for the reason given in FutexWait.
	r, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWake, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("futex wake", errno)
	}
	return int(r), nil
}
