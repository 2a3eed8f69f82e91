package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxIovecs is how many vectors one Writev takes (UIO_MAXIOV).
const MaxIovecs = 1024

// Writev writes the vectors to a non-blocking descriptor with one system call, and again after a signal. It returns how
// many bytes were written, and unix.EAGAIN where there is no room now. It allocates nothing: unix.Writev would make its
// own vectors at each call, and a fan-out calls this once for each client with the same ones. Errors are plain
// unix.Errno values. At most MaxIovecs vectors, none of them empty, are allowed.
func Writev(fd int, v []unix.Iovec) (int, error) {
	if len(v) == 0 {
		return 0, nil
	}
	for {
		// The vectors' bases are Go pointers in Go memory, which v keeps alive; the collector does not move them.
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
