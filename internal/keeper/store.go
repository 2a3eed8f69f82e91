package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hugebus/hugebus/internal/sys"
)

const (
	// MaxKey is the most bytes of a key.
	MaxKey = 160
	// MaxData is the most bytes of one entry's data.
	MaxData = 16 << 20
	// MaxFiles is the most descriptors of one entry.
	MaxFiles = 64
)

var (
	// ErrLost means that the keeper process ended while this broker lived. Nothing is lost as long as the broker lives:
	// Start another keeper and Put everything again.
	ErrLost = errors.New("keeper: the keeper process is gone")
	// ErrHeld means that another broker holds the lease. The error is a *HeldError.
	ErrHeld = errors.New("keeper: another broker holds the lease")
	// ErrFull means that a bound on entries, bytes or descriptors would be passed. Nothing was changed.
	ErrFull = errors.New("keeper: full")
	// ErrNotFound means that there is no entry with that key.
	ErrNotFound = errors.New("keeper: no such entry")
	// ErrNotRunning means that no keeper process listens on the socket.
	ErrNotRunning = errors.New("keeper: no keeper process runs")
	// ErrVersion means that the keeper process speaks a version of the protocol that this program does not.
	ErrVersion = errors.New("keeper: versions differ")
)

// A Store keeps named entries, each some bytes and some descriptors, beyond the death of the process that put them
// there. One process at a time has a given Store. Methods are safe for concurrent use and happen one after another.
//
// Put, Update and Delete change an entry all at once: a process that is killed in the middle leaves the old entry or the
// new one. So does a call whose context ends, or whose connection breaks, in the middle; a later call on the same key
// decides it. Any other error leaves the entry as it was. After Close every method returns os.ErrClosed; after the
// store is lost, ErrLost.
type Store interface {
	// Put makes or replaces an entry. The files stay the caller's.
	Put(ctx context.Context, key string, data []byte, files []*os.File) error
	// Update gives an entry new bytes and leaves its descriptors; ErrNotFound if there is none.
	Update(ctx context.Context, key string, data []byte) error
	// Delete takes an entry away; none there is no error.
	Delete(ctx context.Context, key string) error
	// Load returns all entries in the order of their keys. Their files are the caller's, to be closed.
	Load(ctx context.Context) ([]Entry, error)
	// Lost is closed when the store is gone without having been closed. Of stores that cannot get lost it is nil.
	Lost() <-chan struct{}
	// Close gives the lease up. Entries stay.
	Close() error
	// String names the store for logs.
	String() string
}

// An Entry is what a Store keeps under one key.
type Entry struct {
	Key   string
	Data  []byte
	Files []*os.File
}

// Close closes the entry's files.
func (e Entry) Close() {
	for _, f := range e.Files {
		_ = f.Close() // nothing was written through it
	}
}

// A HeldError says which process holds the lease. It is an ErrHeld.
type HeldError struct {
	// PID is the holder's, or 0 if its pid namespace is not visible.
	PID int
	// Message says who it is and what to do.
	Message string
}

// Error is the message.
func (e *HeldError) Error() string { return "keeper: " + e.Message }

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// checkKey tells what is wrong with a key. systemd shows keys in names of descriptors, which is where the rule comes
// from (FDNAME in sd_notify(3)).
func checkKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("keeper: key of %d bytes is not from 1 to %d", len(key), MaxKey)
	}
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' || c == ':' {
			return fmt.Errorf("keeper: key %q has %q at byte %d: use printable ASCII without a colon", key, c, i)
		}
	}
	return nil
}

func checkData(key string, size int64) error {
	if size > MaxData {
		return fmt.Errorf("%w: data of %s has %d bytes, above the limit of %d an entry", ErrFull, key, size, MaxData)
	}
	return nil
}

func checkEntry(key string, data []byte, files []*os.File) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("%w: %s has %d descriptors, above the limit of %d an entry", ErrFull, key, len(files), MaxFiles)
	}
	for i, f := range files {
		if f == nil {
			return fmt.Errorf("keeper: file %d of %s is nil", i, key)
		}
	}
	return checkData(key, int64(len(data)))
}

// dup returns another descriptor of f, which cannot be closed and its number given away meanwhile.
func dup(f *os.File) (int, error) {
	fd := -1
	err := withFD(f, func(n int) (err error) {
		fd, err = sys.Dup(n)
		return err
	})
	return fd, err
}

// withFD calls fn with the descriptor of f, or of a socket.
func withFD(f syscallConn, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// dupAll duplicates all of files, or none.
func dupAll(files []*os.File) ([]int, error) {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fd, err := dup(f)
		if err != nil {
			closeFDs(fds)
			return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// bare turns files into bare descriptors, and closes the files in every case.
func bare(files []*os.File) ([]int, error) {
	defer closeFiles(files)
	return dupAll(files)
}

// openFDs makes files of duplicates of fds, for a caller who may close them.
func openFDs(key string, fds []int) ([]*os.File, error) {
	files := make([]*os.File, 0, len(fds))
	for i, fd := range fds {
		n, err := sys.Dup(fd)
		if err != nil {
			closeFiles(files)
			return nil, fmt.Errorf("duplicate descriptor %d of %s: %w", i, key, err)
		}
		files = append(files, newFile(n, key, i))
	}
	return files, nil
}

func newFile(fd int, key string, i int) *os.File {
	return os.NewFile(uintptr(fd), fmt.Sprintf("%s[%d]", key, i))
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = sys.CloseFD(fd) // a duplicate, through which nothing was written
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // as above
	}
}

func closeEntries(entries []Entry) {
	for _, e := range entries {
		e.Close()
	}
}
