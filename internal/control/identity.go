package control

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// An Identity is what the kernel says about the process at the other end. It is that
// of the moment when the process connected.
type Identity struct {
	// PID is 0 where the process is in a pid namespace that this one does not see.
	PID      int32
	UID, GID uint32
	// Groups are the supplementary groups.
	Groups []uint32
	// Command is the program's name as the kernel shows it; empty if not known for sure.
	Command string
}

// InGroup reports whether gid is the primary or a supplementary group.
func (i Identity) InGroup(gid uint32) bool { return i.GID == gid || slices.Contains(i.Groups, gid) }

// String names the process for logs and refusals.
func (i Identity) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "uid %d", i.UID)
	if u, err := user.LookupId(strconv.FormatUint(uint64(i.UID), 10)); err == nil {
		fmt.Fprintf(&b, " (%s)", u.Username)
	}
	fmt.Fprintf(&b, ", pid %d", i.PID)
	if i.Command != "" {
		fmt.Fprintf(&b, " (%s)", i.Command)
	}
	return b.String()
}

// Peer asks the kernel who is at the other end of the connection.
func (c *Conn) Peer() (Identity, error) {
	var id Identity
	err := c.control(func(fd int) (err error) {
		if id.PID, id.UID, id.GID, err = sys.PeerCred(fd); err != nil {
			return err
		}
		if id.Groups, err = sys.PeerGroups(fd); err != nil {
			return err
		}
		id.Command = command(fd, id.PID)
		return nil
	})
	if err != nil {
		return Identity{}, fmt.Errorf("who connected: %w", err)
	}
	return id, nil
}

// PeerExited reports whether the process at the other end has ended, waiting up to d for
// it. known is false on kernels that cannot tell.
func (c *Conn) PeerExited(d time.Duration) (exited, known bool) {
	// An error is a kernel that cannot tell, or a process that is gone so thoroughly
	// that it has no pidfd: the caller only words a log line by the answer.
	_ = c.control(func(fd int) error {
		pidfd, err := sys.PeerPIDFD(fd)
		if err != nil {
			return err
		}
		defer sys.CloseFD(pidfd)
		exited, err = sys.Exited(pidfd, d)
		known = err == nil
		return err
	})
	return exited, known
}

// PeerDied reports whether the process at the other end has ended, without waiting. known is false
// on kernels that cannot tell. A keeper can hold a socket in whose queue a connection waits while
// no broker lives.
func (c *Conn) PeerDied() (died, known bool) {
	// Without a descriptor there is nothing to be known.
	_ = c.control(func(fd int) error {
		died, known = sys.PeerDied(fd)
		return nil
	})
	return died, known
}

// TakeListener makes this process the peer of those who connect to a listening socket that another
// process has made.
func TakeListener(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = sys.Listen(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// PeerProcess is a pidfd of the process at the other end, which tells for certain when that
// has ended. The caller closes it. Kernels before 6.5 cannot give one, and there is none of a
// process that is gone.
func (c *Conn) PeerProcess() (*os.File, error) {
	var f *os.File
	err := c.control(func(fd int) error {
		pidfd, err := sys.PeerPIDFD(fd)
		if err != nil {
			return err
		}
		if err := sys.SetNonblock(pidfd); err != nil { // so that the poller can watch it
			_ = sys.CloseFD(pidfd)
			return err
		}
		f = os.NewFile(uintptr(pidfd), "pidfd")
		return nil
	})
	return f, err
}

// command reads the program's name. A pid may come to mean another process, but not
// while a pidfd of the peer says that it lives: so the name is read first, and counts
// only if the peer was still alive afterwards.
func command(fd int, pid int32) string {
	pidfd, err := sys.PeerPIDFD(fd)
	if err != nil || pid == 0 {
		return ""
	}
	defer sys.CloseFD(pidfd)
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	if dead, err := sys.Exited(pidfd, 0); err != nil || dead {
		return ""
	}
	name := strings.TrimSpace(string(comm))
	if CheckLabel(name) != nil {
		return ""
	}
	return name
}

func (c *Conn) control(fn func(fd int) error) error {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}
