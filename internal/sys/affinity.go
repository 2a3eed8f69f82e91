package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxCPUs is how many processors a unix.CPUSet can name.
const maxCPUs = 1024

// PinThread ties the calling thread to one processor. The caller holds runtime.LockOSThread, or the goroutine moves
// on to a thread that is not tied. The error for a processor that is not there, or not allowed by the cpuset, names
// those that are.
func PinThread(cpu int) error {
	if cpu < 0 || cpu >= maxCPUs {
		return fmt.Errorf("pin thread to cpu %d: not in 0 to %d", cpu, maxCPUs-1)
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		allowed, _ := AllowedCPUs()
		return fmt.Errorf("pin thread to cpu %d (this thread may use %v): %w",
			cpu, allowed, os.NewSyscallError("sched_setaffinity", err))
	}
	return nil
}

// AllowedCPUs returns, in rising order, the processors that the calling thread may run on.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	cpus := make([]int, 0, set.Count())
	for cpu := range maxCPUs {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
