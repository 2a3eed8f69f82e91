package sys

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Counter is one of the processor's own event counters, for the thread that opened it. Close it.
type Counter struct{ fd int }

// CountTLBMisses counts the loads of the calling thread, in user space, whose page was in no data TLB. The caller
// holds runtime.LockOSThread. Many virtual machines have no such counter (ENOENT, EOPNOTSUPP), and
// kernel.perf_event_paranoid or a filter may forbid it (EACCES, EPERM). See perf_event_open(2).
func CountTLBMisses() (*Counter, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HW_CACHE,
		Size: unix.PERF_ATTR_SIZE_VER0,
		Config: unix.PERF_COUNT_HW_CACHE_DTLB | unix.PERF_COUNT_HW_CACHE_OP_READ<<8 |
			unix.PERF_COUNT_HW_CACHE_RESULT_MISS<<16,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("perf_event_open", err)
	}
	return &Counter{fd}, nil
}

// Read returns the count so far.
func (c *Counter) Read() (int64, error) {
	var word [8]byte
	n, err := unix.Read(c.fd, word[:])
	if err != nil {
		return 0, os.NewSyscallError("read", err)
	}
	if n != len(word) {
		return 0, fmt.Errorf("read of an event counter: %d bytes instead of %d", n, len(word))
	}
	return int64(binary.NativeEndian.Uint64(word[:])), nil
}

// Close gives the counter back.
func (c *Counter) Close() error { return CloseFD(c.fd) }
