package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

// syscallConn is what files and sockets have in common.
type syscallConn interface {
	SyscallConn() (syscall.RawConn, error)
}

// A link is a connection between broker and keeper. It receives as control.Conn does; it sends bare descriptors, and
// heeds contexts.
type link struct {
	*control.Conn
	socket *net.UnixConn
	write  sync.Mutex
}

func newLink(socket *net.UnixConn) *link {
	return &link{Conn: control.NewConn(socket, control.MaxMessage), socket: socket}
}

// send sends v as one packet with descriptors, which stay the caller's. It waits for room until the context ends.
func (l *link) send(ctx context.Context, v any, fds []int) error {
	packet, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode keeper message: %w", err)
	}
	if len(packet) > control.MaxMessage || len(fds) > packetFiles {
		return fmt.Errorf("keeper message of %d bytes with %d descriptors is above the limit of %d and %d",
			len(packet), len(fds), control.MaxMessage, packetFiles)
	}
	l.write.Lock()
	defer l.write.Unlock()
	return interruptible(ctx, l.socket.SetWriteDeadline, func() error {
		_, _, err := l.socket.WriteMsgUnix(packet, sys.Rights(fds), nil)
		return err
	})
}

// hungUp reports whether the other side has closed.
func (l *link) hungUp() bool {
	var up bool
	err := withFD(l.socket, func(fd int) (err error) {
		up, err = sys.HungUp(fd)
		return err
	})
	return up || err != nil // an error is a socket that this side has closed
}

// interruptible runs fn, which may wait, so that it ends with the context: with the help of the deadline of what fn
// waits for. The error is then the context's.
func interruptible(ctx context.Context, setDeadline func(time.Time) error, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := setDeadline(time.Time{}); err != nil {
		return err
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = setDeadline(time.Unix(1, 0)) // an error is a closed file, on which fn does not wait either
	})
	err := fn()
	if !stop() {
		<-done // or it would cut the next one short
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
