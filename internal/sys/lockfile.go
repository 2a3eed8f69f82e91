package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another open file holds the lock.
var ErrLocked = errors.New("locked by another process")

// TryLock takes an exclusive flock(2) on f without waiting: ErrLocked if somebody has it. The kernel gives it back
// when the last descriptor of this open file is closed, so it cannot outlive its process.
func TryLock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		lockErr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
	}); err != nil {
		return err
	}
	if errors.Is(lockErr, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return os.NewSyscallError("flock", lockErr)
}
