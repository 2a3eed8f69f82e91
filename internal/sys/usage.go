package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what this process, all of its threads, has used so far.
type Usage struct {
	// CPU is the processor time, in user space and in the kernel.
	CPU time.Duration
	// Faults counts accesses for which the kernel had to map a page, from memory or from disk.
	Faults int64
	// Sleeps counts switches to another thread because this one had to wait.
	Sleeps int64
}

// ProcessUsage asks the kernel. See getrusage(2).
func ProcessUsage() (Usage, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return Usage{}, os.NewSyscallError("getrusage", err)
	}
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return Usage{CPU: cpu, Faults: int64(r.Minflt) + int64(r.Majflt), Sleeps: int64(r.Nvcsw)}, nil
}

// YieldThread lets another thread run on this processor, if one waits for it. See sched_yield(2).
func YieldThread() {
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // it always succeeds
}
