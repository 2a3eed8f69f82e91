package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
)

// socket looks at the path of the control socket and at its rights.
func (h host) socket(path string) Check {
	const name = "socket"
	if err := control.CheckSocketPath(path); err != nil {
		return bad(name, err.Error(), "choose another with --socket")
	}
	dir := filepath.Dir(path)
	parent, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == control.DefaultSocket():
		return good(name, path+"; the broker will make its directory")
	case errors.Is(err, fs.ErrNotExist):
		return bad(name, fmt.Sprintf("%s: directory %s is not there", path, dir), "mkdir -p "+dir)
	case err != nil:
		return bad(name, err.Error(), "choose another with --socket")
	case !parent.IsDir():
		return bad(name, fmt.Sprintf("%s: %s is not a directory", path, dir), "choose another with --socket")
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return good(name, fmt.Sprintf("%s is not there yet; directory %s", path, rights(parent)))
	case err != nil:
		return bad(name, err.Error(), fmt.Sprintf("let this user search the directory: chmod a+x %s", dir))
	case info.Mode().Type() != fs.ModeSocket:
		return bad(name, fmt.Sprintf("%s is there, but not a socket (%s)", path, info.Mode()), "choose another with --socket, or remove it")
	}
	return good(name, fmt.Sprintf("%s %s; directory %s", path, rights(info), rights(parent)))
}

// rights writes mode and owner.
func rights(info fs.FileInfo) string {
	uid, ok := sys.Owner(info)
	if !ok {
		return info.Mode().String()
	}
	return fmt.Sprintf("%s of uid %d", info.Mode(), uid)
}

// broker looks whether a broker answers, and of which release it is.
func (h host) broker(ctx context.Context, path string) Check {
	const name = "broker"
	start := "hugebus broker"
	if path != control.DefaultSocket() {
		start += " --socket " + path
	}
	if err := control.CheckSocketPath(path); err != nil {
		return warn(name, "not asked: the socket's path cannot be", start+" with a path that can be")
	}
	conn, err := control.Dial(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return warn(name, err.Error(), start)
	case errors.Is(err, fs.ErrPermission):
		return bad(name, err.Error(), "run as the broker's user, or set socket_mode in its configuration")
	case err != nil:
		return bad(name, err.Error(), "choose another with --socket")
	}
	defer func() { _ = conn.Close() }() // nothing was to be kept
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	hello := control.NewHello(ring.LayoutVersion)
	hello.Name = "hugebus doctor"
	theirs, err := conn.SayHello(hello)
	var refused *control.Error
	switch {
	case errors.As(err, &refused) && refused.Code == control.CodeVersion:
		return bad(name, err.Error(), "install the same release for both")
	case errors.As(err, &refused) && refused.Code != control.CodeMalformed:
		return bad(name, err.Error(), "ask the broker's administrator")
	case err != nil:
		return bad(name, fmt.Sprintf("something listens at %s, but does not answer as a broker does: %v", path, err), "see who it is: ss -xlp | grep "+path)
	}
	return good(name, fmt.Sprintf("%s, pid %d, protocol %d, layout %d", theirs.Software, theirs.PID, theirs.Protocol, theirs.Layout))
}
