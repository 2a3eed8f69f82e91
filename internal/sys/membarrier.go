package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2). x/sys has the call's number but not these.
const (
	membarrierQuery                    = 0
	membarrierGlobalExpedited          = 1 << 1
	membarrierRegisterGlobalExpedited  = 1 << 2
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// Barriers says which kinds of membarrier this process can use, after MembarrierRegister.
type Barriers struct {
	// Global: MembarrierGlobal works, and this process takes part when another one calls it.
	Global bool
	// Private: MembarrierPrivate works.
	Private bool
}

// MembarrierRegister registers this process for the expedited barriers and reports which of them exist. Registering
// again is harmless and cheap. A kernel without membarrier (or a seccomp filter that forbids it) is not an error: it
// is Barriers{}. An error means that the kernel offers a command and then refused the registration.
//
// Registering matters on both sides: MembarrierGlobal reaches only the threads of registered processes.
func MembarrierRegister() (Barriers, error) {
	known, err := membarrier(membarrierQuery)
	if err != nil {
		return Barriers{}, nil
	}
	var b Barriers
	const global = membarrierGlobalExpedited | membarrierRegisterGlobalExpedited
	if known&global == global {
		if _, err := membarrier(membarrierRegisterGlobalExpedited); err != nil {
			return b, os.NewSyscallError("membarrier REGISTER_GLOBAL_EXPEDITED", err)
		}
		b.Global = true
	}
	const private = membarrierPrivateExpedited | membarrierRegisterPrivateExpedited
	if known&private == private {
		if _, err := membarrier(membarrierRegisterPrivateExpedited); err != nil {
			return b, os.NewSyscallError("membarrier REGISTER_PRIVATE_EXPEDITED", err)
		}
		b.Private = true
	}
	return b, nil
}

// MembarrierGlobal returns after every running thread of every process that called MembarrierRegister has gone
// through a full memory barrier. It interrupts those processors, so it costs a few microseconds; it is for the rare
// side of a protocol. The caller itself need not be registered.
func MembarrierGlobal() error {
	_, err := membarrier(membarrierGlobalExpedited)
	return os.NewSyscallError("membarrier GLOBAL_EXPEDITED", err)
}

// MembarrierPrivate is MembarrierGlobal for the threads of this process alone. It fails with EPERM before
// MembarrierRegister.
func MembarrierPrivate() error {
	_, err := membarrier(membarrierPrivateExpedited)
	return os.NewSyscallError("membarrier PRIVATE_EXPEDITED", err)
}

// membarrier returns a plain errno, or nil.
func membarrier(cmd int) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, uintptr(cmd), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
