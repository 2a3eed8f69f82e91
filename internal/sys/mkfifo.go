package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Mkfifo makes a named pipe that its owner alone may open. See mkfifo(3).
func Mkfifo(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return nil
}
