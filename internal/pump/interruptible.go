package pump

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// A Reader is an input whose Read another goroutine can end, by a deadline.
type Reader interface {
	io.ReadCloser
	// SetReadDeadline makes a Read that waits, and later ones, return os.ErrDeadlineExceeded from then on.
	SetReadDeadline(t time.Time) error
}

// Interruptible makes a Reader of a file that may block, such as standard input. It does not change f, which others may
// share: a pipe or a terminal is opened once more (a descriptor's non-blocking mode belongs to all who have inherited
// it, and the shell is one of them). What cannot be opened again, such as a socket, is read by a goroutine, which lasts
// until f ends.
func Interruptible(f *os.File) Reader {
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err == nil && again.SetReadDeadline(time.Time{}) == nil {
		return again
	}
	if err == nil {
		_ = again.Close() // it is of no use
	}
	if info, err := f.Stat(); err == nil && (info.Mode().IsRegular() || isNull(info)) {
		return steady{f} // it never waits for anybody
	}
	r, w, err := os.Pipe()
	if err != nil {
		return steady{f}
	}
	go func() {
		_, err := io.Copy(w, f)
		_ = err // the end of f, or r was closed: nobody is there to hear of it
		_ = w.Close()
	}()
	return r
}

func isNull(info os.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// steady is a file whose reads do not block for long.
type steady struct{ f *os.File }

func (s steady) Read(b []byte) (int, error)        { return s.f.Read(b) }
func (s steady) SetReadDeadline(_ time.Time) error { return nil }

// Close leaves the file open: it is somebody else's.
func (s steady) Close() error { return nil }
