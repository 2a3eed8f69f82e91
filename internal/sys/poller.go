package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Poller waits for many descriptors at once (epoll(7), level-triggered). One goroutine waits; others may add meanwhile.
// It is for who reads thousands of sockets in one loop; a goroutine for each, by package net, costs a switch for every read.
type Poller struct {
	fd     int
	events []unix.EpollEvent
}

// NewPoller returns a Poller that hands out up to batch descriptors at once. Close it.
func NewPoller(batch int) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &Poller{fd: fd, events: make([]unix.EpollEvent, batch)}, nil
}

// Add watches fd until it is closed. Wait tells of it by tag.
func (p *Poller) Add(fd int, tag int32) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: tag}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e))
}

// Wait waits until descriptors can be read (or have ended), for d at most, and appends their tags to dst. After a signal, or when d is over, it
// appends none.
func (p *Poller) Wait(dst []int32, d time.Duration) ([]int32, error) {
	n, err := unix.EpollWait(p.fd, p.events, int(d.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return dst, os.NewSyscallError("epoll_wait", err)
	}
	for i := range max(n, 0) {
		dst = append(dst, p.events[i].Fd)
	}
	return dst, nil
}

// Close ends it; what it watched stays open.
func (p *Poller) Close() error { return os.NewSyscallError("close", unix.Close(p.fd)) }

// ResetOnClose makes closing the socket fd end its connection at once, by a reset, so that it leaves nothing behind: thousands of
// connections closed in the ordinary way keep their ports for a minute.
func ResetOnClose(fd int) error {
	return os.NewSyscallError("setsockopt SO_LINGER", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

// Write writes what a non-blocking descriptor takes, and goes on after a signal. Errors are plain unix.Errno values.
func Write(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Write(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}
