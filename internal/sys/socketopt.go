package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// A SocketOption is an integer option of a socket; see man 7 socket and man 7 tcp.
type SocketOption struct{ level, name int }

// The options that a gateway sets.
var (
	RecvBuffer  = SocketOption{unix.SOL_SOCKET, unix.SO_RCVBUF}
	SendBuffer  = SocketOption{unix.SOL_SOCKET, unix.SO_SNDBUF}
	BusyPoll    = SocketOption{unix.SOL_SOCKET, unix.SO_BUSY_POLL} // microseconds; more than net.core.busy_poll needs CAP_NET_ADMIN
	ReusePort   = SocketOption{unix.SOL_SOCKET, unix.SO_REUSEPORT}
	IncomingCPU = SocketOption{unix.SOL_SOCKET, unix.SO_INCOMING_CPU}
	QuickAck    = SocketOption{unix.IPPROTO_TCP, unix.TCP_QUICKACK}
	FastOpen    = SocketOption{unix.IPPROTO_TCP, unix.TCP_FASTOPEN}
	KeepAlive   = SocketOption{unix.SOL_SOCKET, unix.SO_KEEPALIVE}
	NoDelay     = SocketOption{unix.IPPROTO_TCP, unix.TCP_NODELAY}
	CountDrops  = SocketOption{unix.SOL_SOCKET, unix.SO_RXQ_OVFL} // each datagram comes with how many were dropped so far
)

// SetSocketOption sets an option.
func SetSocketOption(fd int, o SocketOption, value int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, o.level, o.name, value))
}

// GetSocketOption reads an option. The kernel says twice what was set for buffers, its own overhead included.
func GetSocketOption(fd int, o SocketOption) (int, error) {
	v, err := unix.GetsockoptInt(fd, o.level, o.name)
	return v, os.NewSyscallError("getsockopt", err)
}

// SetBacklog changes how many connections may wait to be accepted on a socket that listens already. The kernel cuts it
// down to net.core.somaxconn.
func SetBacklog(fd, n int) error {
	return os.NewSyscallError("listen", unix.Listen(fd, n))
}
