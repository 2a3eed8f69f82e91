package door

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"github.com/hugebus/hugebus/internal/sys"
)

// ListenPacket takes datagrams at udp://HOST:PORT. The kernel tells with them how many it had to drop (sys.ParseDrops).
func ListenPacket(ctx context.Context, address string, s Settings) (*net.UDPConn, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	network, rest := Split(address)
	if network != "udp" {
		return nil, fmt.Errorf("listen on %s: that is no address for datagrams: use udp://HOST:PORT", address)
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return apply(c, append(s.forAll(), option{"counting drops", sys.CountDrops, 1}))
	}}
	conn, err := lc.ListenPacket(ctx, "udp", rest)
	if err != nil {
		return nil, listenError(address, err)
	}
	return conn.(*net.UDPConn), nil
}

// RecvBufferOf returns the size of a socket's receive buffer as it would be asked for: the kernel takes twice as much, for
// its own needs, but not more than net.core.rmem_max.
func RecvBufferOf(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var optionErr error
	if err := raw.Control(func(fd uintptr) { n, optionErr = sys.GetSocketOption(int(fd), sys.RecvBuffer) }); err != nil {
		return 0, err
	}
	return n / 2, optionErr
}
