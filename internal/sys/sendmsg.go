package sys

import (
	"golang.org/x/sys/unix"
)

// SendMessage sends one message with control data (see Rights) through a connected socket: net.UnixConn sends none
// through a connected datagram socket. Errors are plain unix.Errno values; a non-blocking socket without room gives
// unix.EAGAIN.
func SendMessage(fd int, data, oob []byte) error {
	for {
		err := unix.Sendmsg(fd, data, oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}
