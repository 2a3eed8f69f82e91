package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

// A socket is the control socket with the lock that makes it ours. The lock file stays
// when the broker ends: removing it would let two brokers lock two different files.
type socket struct {
	path     string
	lock     *os.File
	listener *net.UnixListener
}

// takeSocket takes the lock beside the socket, removes a socket file that a dead broker
// left, and listens.
func takeSocket(path string, mode fs.FileMode) (*socket, error) {
	if err := control.CheckSocketPath(path); err != nil {
		return nil, err
	}
	if err := control.PrepareSocketDir(path); err != nil {
		return nil, err
	}
	s := &socket{path: path}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	if err := s.listen(mode); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

func (s *socket) takeLock() error {
	name := s.path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("lock file of the socket: %w", err)
	}
	if err := sys.TryLock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, sys.ErrLocked) {
			return fmt.Errorf("lock %s: %w", name, err)
		}
		return fmt.Errorf("another broker%s serves %s already: use that one, stop it, or choose another --socket", holder(f), s.path)
	}
	if err := writePID(f); err != nil {
		return errors.Join(fmt.Errorf("lock file of the socket: %w", err), f.Close())
	}
	s.lock = f
	return nil
}

// holder reads who wrote the lock file, for the message only.
func holder(f *os.File) string {
	text := make([]byte, 32)
	n, err := f.ReadAt(text, 0)
	if pid := strings.TrimSpace(string(text[:n])); n > 0 && pid != "" {
		return " (pid " + pid + ")"
	}
	_ = err // an empty file ends with io.EOF: its owner has not written yet
	return ""
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err
}

// listen replaces a stale socket file. We hold the lock, so no living broker of ours
// owns it; but it may be somebody else's socket, or no socket at all.
func (s *socket) listen(mode fs.FileMode) error {
	info, err := os.Lstat(s.path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and not a socket: remove it, or choose another --socket", s.path)
	case err == nil && answers(s.path):
		return fmt.Errorf("another program listens on %s without the lock %s.lock: stop it, or choose another --socket", s.path, s.path)
	case err == nil:
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("remove the stale socket: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("listen on the socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // release does it, while the lock is still held
	if err := os.Chmod(s.path, mode); err != nil {
		return errors.Join(fmt.Errorf("rights of the socket: %w", err), l.Close(), os.Remove(s.path))
	}
	s.listener = l
	return nil
}

// answers reports whether somebody listens on a socket file.
func answers(path string) bool {
	for _, kind := range []string{"unixpacket", "unix", "unixgram"} {
		c, err := net.DialTimeout(kind, path, time.Second)
		if err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}

// stopAccepting makes the accept loop end. Clients that connect from now on are refused
// by the kernel.
func (s *socket) stopAccepting() {
	// An error would be that it is closed already.
	_ = s.listener.Close()
}

// release removes the socket file and gives the lock back, once.
func (s *socket) release() error {
	if s.lock == nil {
		return nil
	}
	err := os.Remove(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, s.lock.Close())
	s.lock = nil
	return err
}
