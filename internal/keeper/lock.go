package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/hugebus/hugebus/internal/sys"
)

// lockSuffix makes the name of a socket's lock file.
const lockSuffix = ".lock"

// errLocked means that another keeper has the socket.
var errLocked = errors.New("another keeper process has this socket")

// A socketLock makes a process the only keeper of a socket: an flock on a file beside it, which the kernel takes back
// when the process ends. The file holds the process id, for messages.
type socketLock struct {
	file *os.File
	path string
}

// lockSocket takes the lock of a socket: errLocked if another keeper has it.
func lockSocket(socket string) (*socketLock, error) {
	path := socket + lockSuffix
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("keeper: lock file: %w", err)
		}
		current, err := lockCurrent(f, path)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if !current { // a keeper that ended has removed it between our open and our flock
			if err := f.Close(); err != nil {
				return nil, err
			}
			continue
		}
		l := &socketLock{file: f, path: path}
		if err := l.sign(); err != nil {
			return nil, errors.Join(err, l.remove())
		}
		return l, nil
	}
}

// lockCurrent locks f, and reports whether it still is what is at path.
func lockCurrent(f *os.File, path string) (bool, error) {
	err := sys.TryLock(f)
	if errors.Is(err, sys.ErrLocked) {
		return false, fmt.Errorf("keeper: %w: pid %s has locked %s", errLocked, lockOwner(f), path)
	}
	if err != nil {
		return false, fmt.Errorf("keeper: lock %s: %w", path, err)
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// lockOwner is the process id in a lock file, or "?" where it is not written yet.
func lockOwner(f *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 20))
	pid := strings.TrimSpace(string(text))
	if _, bad := strconv.Atoi(pid); err != nil || bad != nil {
		return "?"
	}
	return pid
}

func (l *socketLock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("keeper: write %s: %w", l.path, err)
	}
	if _, err := l.file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return fmt.Errorf("keeper: write %s: %w", l.path, err)
	}
	return nil
}

// remove takes the file away, then gives the lock up: whoever waits for this file sees that it is not there any more.
func (l *socketLock) remove() error {
	return errors.Join(os.Remove(l.path), l.file.Close())
}
