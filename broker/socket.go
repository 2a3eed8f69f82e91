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
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/sys"
)

// A socket is the control socket with the lock that makes it ours. The lock file stays
// when the broker ends: removing it would let two brokers lock two different files.
type socket struct {
	path      string
	lock      *os.File
	listener  *net.UnixListener
	activated bool         // it is systemd's: the file is not ours to remove
	record    socketRecord // of a listening socket that is kept
	kept      bool         // connects wait in its queue for the next broker
}

// takeSocket takes the lock beside the socket. open listens.
func takeSocket(path string) (*socket, error) {
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
	return s, nil
}

// open takes over the listening socket of an earlier broker, in whose queue clients wait.
// Where there is none it removes a socket file that a dead broker left, and listens anew.
func (s *socket) open(entries []keeper.Entry, mode fs.FileMode, v *vault) error {
	if s.activated {
		return nil
	}
	for i := range entries {
		if e := &entries[i]; e.Key == socketKey && !s.adopt(e) {
			e.Close()
			e.Files = nil
			v.drop(socketKey)
		}
	}
	if s.listener != nil && s.record.Mode == mode {
		s.kept = true
		return nil
	}
	if s.listener == nil {
		if err := s.listen(mode); err != nil {
			return err
		}
	} else if err := os.Chmod(s.path, mode); err != nil {
		return fmt.Errorf("rights of the socket: %w", err)
	}
	s.record.Path, s.record.Mode = s.path, mode
	return s.keep(v)
}

// adopt takes over a listening socket that is kept, if its file is still there.
func (s *socket) adopt(e *keeper.Entry) bool {
	if decodeRecord(e.Key, e.Data, &s.record) != nil || len(e.Files) != 1 || s.record.Path != s.path {
		return false
	}
	info, err := os.Lstat(s.path)
	if err != nil {
		return false
	}
	if inode, ok := sys.FileInode(info); !ok || inode != (sys.Inode{Device: s.record.Dev, Number: s.record.Ino}) {
		return false
	}
	l, err := net.FileListener(e.Files[0])
	if err != nil {
		return false
	}
	u, ok := l.(*net.UnixListener)
	if !ok || u.Addr().Network() != "unixpacket" {
		_ = l.Close() // it is not used
		return false
	}
	if err := control.TakeListener(u); err != nil {
		_ = l.Close() // it is not used
		return false
	}
	s.listener = u
	return true
}

// keep puts the listening socket into the store.
func (s *socket) keep(v *vault) error {
	if s.activated || !v.keeps() {
		return nil
	}
	info, err := os.Lstat(s.path)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	inode, _ := sys.FileInode(info)
	s.record.Dev, s.record.Ino = inode.Device, inode.Number
	f, err := s.listener.File()
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer f.Close()
	if err := v.put(socketKey, s.record, f); err != nil {
		return err
	}
	s.kept = true
	return nil
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
		return fmt.Errorf("another broker%s serves %s already: use that one, stop it, or choose another --socket", lockOwner(f), s.path)
	}
	if err := writePID(f); err != nil {
		return errors.Join(fmt.Errorf("lock file of the socket: %w", err), f.Close())
	}
	s.lock = f
	return nil
}

// lockOwner reads who wrote the lock file, for the message only.
func lockOwner(f *os.File) string {
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
		return fmt.Errorf("another program listens on %s without the lock %s.lock, perhaps the keeper of an earlier broker: end that with `hugebus shutdown`, or choose another --socket", s.path, s.path)
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
// by the kernel, or wait for the next broker where the socket is kept.
func (s *socket) stopAccepting() {
	if s.listener == nil {
		return
	}
	// An error would be that it is closed already.
	_ = s.listener.Close()
}

// release gives the lock back, once, and removes the socket file unless it is kept: forget
// says that it is not after all.
func (s *socket) release(forget bool) error {
	if s.lock == nil {
		return nil
	}
	var err error
	if !s.activated && s.listener != nil && (forget || !s.kept) {
		if err = os.Remove(s.path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	err = errors.Join(err, s.lock.Close())
	s.lock = nil
	return err
}
