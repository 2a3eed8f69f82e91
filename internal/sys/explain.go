package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// FileLimit is how many descriptors this process may have (RLIMIT_NOFILE), or 0 if that cannot be told.
func FileLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

// Explain adds the limit and the remedy to an error of a full table of descriptors, this process's or the host's. Others it
// returns as they are.
func Explain(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: %s", err, FileRemedy())
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: the host's table is full: raise it with sysctl fs.file-max", err)
	}
	return err
}

// FileRemedy says what this process's limit of descriptors is, and how to raise it.
func FileRemedy() string {
	return fmt.Sprintf("this process may have %d open files (RLIMIT_NOFILE): raise it with `ulimit -n`, or LimitNOFILE= in the systemd unit", FileLimit())
}
