package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// SyscallCounter counts the system calls of a process, all of its threads, the way strace does: by ptrace(2). Each one
// stops its thread twice for some microseconds, so a process that makes many gets slow.
//
// It needs no rights beyond those over a process of one's own; a container, another tracer or Yama
// (kernel.yama.ptrace_scope) may forbid it: see AllowTracing.
//
// To the kernel, who waits for a child also waits for whatever any thread of its process traces. So a process that
// counts the system calls of its own child must not wait for that child meanwhile, as exec.Cmd.Wait does: the wait
// would take a stop for an end. Count from a process of its own.
type SyscallCounter struct {
	pid   int
	calls atomic.Int64
	stop  atomic.Bool
	done  chan error
}

// CountSyscalls begins to count the system calls of a process.
func CountSyscalls(pid int) (*SyscallCounter, error) {
	c := &SyscallCounter{pid: pid, done: make(chan error, 1)}
	started := make(chan error, 1)
	onOwnThread(func() {
		t := tracer{counter: c, inside: map[int]bool{}}
		if err := t.seize(); err != nil {
			t.release()
			started <- err
			return
		}
		started <- nil
		err := t.follow()
		t.release()
		c.done <- err
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("count the system calls of process %d: %w", pid, err)
	}
	return c, nil
}

// Stop ends the counting and returns how many system calls were begun. The process goes on at full speed.
func (c *SyscallCounter) Stop() (int64, error) {
	c.stop.Store(true)
	// The tracer waits until something happens to the process: this does, and Go programs ignore it (others, too: its
	// default is to do nothing). ESRCH: it is dead, which also wakes the tracer.
	if err := unix.Kill(c.pid, unix.SIGURG); err != nil && !errors.Is(err, unix.ESRCH) {
		return 0, os.NewSyscallError("kill", err)
	}
	if err := <-c.done; err != nil {
		return 0, fmt.Errorf("count the system calls of process %d: %w", c.pid, err)
	}
	return c.calls.Load(), nil
}

// AllowTracing lets any process of the same user trace this one where Yama restricts that to its ancestors
// (kernel.yama.ptrace_scope 1). It does nothing on a kernel without Yama.
func AllowTracing() error {
	const any = ^uintptr(0) // PR_SET_PTRACER_ANY
	if err := unix.Prctl(unix.PR_SET_PTRACER, any, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return os.NewSyscallError("prctl", err)
	}
	return nil
}

// onOwnThread runs f on a thread that no other goroutine uses, and which ends with it: a tracer is a thread, and the
// kernel releases what it traces when it ends. Go never ends the main thread, so f does not run there.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			elsewhere := make(chan struct{})
			go func() {
				runtime.LockOSThread()
				close(elsewhere)
				f()
			}()
			<-elsewhere // until then this goroutine keeps the main thread for itself
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
}

// tracer is the thread that ptrace talks to.
type tracer struct {
	counter *SyscallCounter
	inside  map[int]bool // threads that we follow: whether each is inside a system call
}

// syscallStop is how a stop at a system call looks with PTRACE_O_TRACESYSGOOD.
const syscallStop = unix.SIGTRAP | 0x80

// seize takes hold of all threads. Threads that a seized one starts are ours by themselves; so it looks again until
// there is none that it does not know.
func (t *tracer) seize() error {
	for {
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", t.counter.pid))
		if err != nil || len(found) == 0 {
			return errors.Join(err, unix.ESRCH)
		}
		fresh := 0
		for _, dir := range found {
			tid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				return err
			}
			if _, ours := t.inside[tid]; ours {
				continue
			}
			err = unix.PtraceSeize(tid)
			if errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			if err != nil {
				return os.NewSyscallError("ptrace", err)
			}
			fresh++
			t.inside[tid] = false
			if err := t.interrupt(tid); err != nil {
				return err
			}
		}
		if fresh == 0 {
			return nil
		}
	}
}

// interrupt stops a thread that was just seized, and lets it go on up to its next system call.
func (t *tracer) interrupt(tid int) error {
	if err := unix.PtraceInterrupt(tid); err != nil {
		return os.NewSyscallError("ptrace", err)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(tid, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case !status.Stopped():
			delete(t.inside, tid)
			return nil
		}
		if err := unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE); err != nil {
			return os.NewSyscallError("ptrace", err)
		}
		return t.goOn(tid, status)
	}
}

// follow counts until Stop, or until the process is dead.
func (t *tracer) follow() error {
	for len(t.inside) > 0 {
		var status unix.WaitStatus
		// WNOTHREAD: only what this thread traces, not the children of other threads, for which others wait.
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case !status.Stopped():
			delete(t.inside, tid)
			continue
		}
		if _, ours := t.inside[tid]; !ours {
			t.inside[tid] = false // a new thread, which begins with a stop
		}
		if status.StopSignal() == syscallStop {
			t.inside[tid] = !t.inside[tid]
			if t.inside[tid] && !t.counter.stop.Load() {
				t.counter.calls.Add(1)
			}
		}
		if t.counter.stop.Load() {
			return t.detach(tid, status)
		}
		if err := t.goOn(tid, status); err != nil {
			return err
		}
	}
	return nil
}

// goOn lets a stopped thread go on to its next system call, with the signal that it was stopped for, if any.
func (t *tracer) goOn(tid int, status unix.WaitStatus) error {
	err := error(nil)
	if groupStop(status) {
		// It is stopped for its user (SIGSTOP, Ctrl-Z) and has to stay so.
		if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_LISTEN, uintptr(tid), 0, 0, 0, 0); errno != 0 {
			err = errno
		}
	} else {
		err = unix.PtraceSyscall(tid, signalOf(status))
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // it was killed in its stop
		return os.NewSyscallError("ptrace", err)
	}
	return nil
}

// groupStop reports whether a seized thread has stopped because its process was told to stop.
func groupStop(status unix.WaitStatus) bool {
	return status.TrapCause() == -1 && int(status)>>16 == unix.PTRACE_EVENT_STOP && status.StopSignal() != unix.SIGTRAP
}

// signalOf is the signal that a stopped thread is about to get, or 0 if it was stopped for another reason.
func signalOf(status unix.WaitStatus) int {
	sig := status.StopSignal()
	if sig == syscallStop || int(status)>>16 != 0 {
		return 0
	}
	return int(sig)
}

// detach lets a stopped thread go.
func (t *tracer) detach(tid int, status unix.WaitStatus) error {
	delete(t.inside, tid)
	sig := signalOf(status)
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(sig), 0, 0); errno != 0 && errno != unix.ESRCH {
		return os.NewSyscallError("ptrace", errno)
	}
	return nil
}

// release lets every thread go that is still held. Where it cannot, the end of this thread does: see ptrace(2) on the
// death of a tracer.
func (t *tracer) release() {
	for tid := range t.inside {
		if unix.PtraceInterrupt(tid) != nil {
			continue // it is dead
		}
		for {
			var status unix.WaitStatus
			_, err := unix.Wait4(tid, &status, unix.WALL|unix.WNOTHREAD, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil && status.Stopped() {
				// An error would be that it was killed in its stop.
				_ = t.detach(tid, status)
			}
			break
		}
	}
}
