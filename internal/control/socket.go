package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// MaxSocketPath is the most bytes that the path of a Unix socket may have: sun_path
// has 108, and the last is 0.
const MaxSocketPath = 107

// DefaultSocket is where broker and clients meet when nobody says otherwise:
// /run/hugebus/control.sock for root; $XDG_RUNTIME_DIR/hugebus/control.sock for others, or
// else a directory of the user's own below os.TempDir.
func DefaultSocket() string {
	return defaultSocket(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
}

func defaultSocket(uid int, runtimeDir, temp string) string {
	dir := filepath.Join(temp, "hugebus-"+strconv.Itoa(uid))
	switch {
	case uid == 0:
		dir = "/run/hugebus"
	case filepath.IsAbs(runtimeDir):
		dir = filepath.Join(runtimeDir, "hugebus")
	}
	return filepath.Join(dir, "control.sock")
}

// CheckSocketPath tells what is wrong with a socket's path before the kernel says no
// more than "invalid argument".
func CheckSocketPath(path string) error {
	switch {
	case path == "":
		return errors.New("socket path is empty")
	case len(path) > MaxSocketPath:
		return fmt.Errorf("socket path has %d bytes, above the kernel's limit of %d: use a shorter one (%s)", len(path), MaxSocketPath, path)
	case path[0] == '@' || path[0] == 0:
		return fmt.Errorf("socket path %q is an abstract socket, which every user of the host may take: use a path in a directory", path)
	}
	return nil
}

// PrepareSocketDir makes the directory of a default socket, mode 0700 (0755 for root's),
// and checks that it belongs to this user: below /tmp a stranger may have made it. The
// directory of any other path must be there.
func PrepareSocketDir(path string) error {
	dir := filepath.Dir(path)
	if path == DefaultSocket() {
		return prepareOwnDir(dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("socket directory %s is not there: make it with `mkdir -p %s`", dir, dir)
	case err != nil:
		return fmt.Errorf("socket directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("socket directory %s is not a directory", dir)
	}
	return nil
}

func prepareOwnDir(dir string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("socket directory: %w", err)
	}
	return checkOwnDir(dir)
}

// checkOwnDir refuses a directory in which somebody else could put a socket of theirs.
func checkOwnDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	uid, ok := sys.Owner(info)
	switch {
	case !info.IsDir():
		return fmt.Errorf("socket directory %s is not a directory: remove it, or choose another with --socket", dir)
	case !ok || uid != os.Geteuid():
		return fmt.Errorf("socket directory %s does not belong to uid %d: remove it, or choose another with --socket", dir, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("socket directory %s may be written by others (mode %#o): `chmod go-w %s`", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// Dial connects to a broker's socket. Hello is up to the caller.
func Dial(ctx context.Context, path string) (*Conn, error) {
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	if path == DefaultSocket() && os.Geteuid() != 0 {
		if err := checkOwnDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	var d net.Dialer
	socket, err := dialPatiently(ctx, func() (net.Conn, error) { return d.DialContext(ctx, "unixpacket", path) })
	if err != nil {
		return nil, dialError(path, err)
	}
	return NewConn(socket.(*net.UnixConn), MaxMessage), nil
}

// dialPatiently tries again while the broker's queue of new connections is full: where
// a blocking connect(2) would wait, a non-blocking one says EAGAIN.
func dialPatiently(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		socket, err := dial()
		if err == nil || !errors.Is(err, syscall.EAGAIN) {
			return socket, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// dialError says which of the usual mistakes it was.
func dialError(path string, err error) error {
	dir := filepath.Dir(path)
	_, statErr := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(statErr, fs.ErrNotExist):
		return fmt.Errorf("no broker at %s: directory %s is not there: %w", path, dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no broker at %s: no such socket: %w", path, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no broker at %s: the socket is there, but nobody listens: %w", path, err)
	case errors.Is(err, syscall.EPROTOTYPE):
		return fmt.Errorf("%s is a socket of another kind, not a broker's: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("may not connect to %s: check the rights of the socket and its directory (socket_mode in the broker's configuration): %w", path, err)
	}
	return fmt.Errorf("connect to broker at %s: %w", path, err)
}
