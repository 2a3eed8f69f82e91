// Package sys holds the raw Linux system calls that the rest of hugebus needs, each as a small function that
// returns an error instead of an errno, and the readers of /proc and /sys that belong to them.
//
// Every function may be called by several goroutines at the same time unless it says otherwise. Errors of system
// calls are *os.SyscallError, so that errors.Is(err, unix.ENOSYS) works and the text names the call.
//
// Only this package and shm call the kernel directly; a repository test enforces it.
package sys
