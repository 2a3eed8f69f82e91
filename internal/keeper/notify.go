package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/sys"
)

// Failpoints of what is said to systemd.
const (
	// FailBeforeNotify: a message to systemd is about to be sent.
	FailBeforeNotify = "keeper-before-notify"
	// FailAfterNotify: a message to systemd was sent.
	FailAfterNotify = "keeper-after-notify"
)

// notifyEnv names the socket on which systemd listens to a service.
const notifyEnv = "NOTIFY_SOCKET"

// Ready tells systemd that the service is up: all that was kept is adopted, and clients are served. status is a line for
// `systemctl status`. Without systemd it does nothing.
func Ready(status string) error {
	_, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+oneLine(status))
	return notifyError("READY=1", err)
}

// Stopping tells systemd that the service is about to end. Without systemd it does nothing.
func Stopping(status string) error {
	_, err := daemon.SdNotify(false, daemon.SdNotifyStopping+"\nSTATUS="+oneLine(status))
	return notifyError("STOPPING=1", err)
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

func notifyError(what string, err error) error {
	if err != nil {
		return fmt.Errorf("keeper: %s to systemd ($%s): %w", what, notifyEnv, err)
	}
	return nil
}

// A notifier sends messages to systemd, with descriptors (sd_pid_notify_with_fds(3)), which package daemon does not.
// Its methods belong to one goroutine at a time.
type notifier struct{ socket *net.UnixConn }

// dialNotify connects to systemd's socket: a path, or "@" and an abstract name.
func dialNotify(address string) (*notifier, error) {
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("keeper: systemd's socket ($%s): %w", notifyEnv, err)
	}
	return &notifier{socket: socket}, nil
}

func (n *notifier) close() error { return n.socket.Close() }

// send sends one message. systemd carries messages out in order, also after the sender's death, because it hears of that
// later (sd_notify(3)).
func (n *notifier) send(ctx context.Context, message string, fds ...int) error {
	failpoint.Hit(FailBeforeNotify)
	err := interruptible(ctx, n.socket.SetWriteDeadline, func() error { return n.write([]byte(message), sys.Rights(fds)) })
	failpoint.Hit(FailAfterNotify)
	if err != nil {
		first, _, _ := strings.Cut(message, "\n")
		return notifyError(first, err)
	}
	return nil
}

// write waits for room in systemd's queue, which others fill too. The socket is connected, because the kernel wakes only
// those that are.
func (n *notifier) write(message, oob []byte) error {
	raw, err := n.socket.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Write(func(fd uintptr) bool {
		inner = sys.SendMessage(int(fd), message, oob)
		return inner != syscall.EAGAIN
	}); err != nil {
		return err
	}
	return inner
}

// barrier waits until systemd has taken all messages that were sent before, as sd_notify_barrier(3) does: it hands over
// one end of a pipe, and systemd closes it when it comes to that message.
func (n *notifier) barrier(ctx context.Context) (err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	defer r.Close()
	fd, err := bare([]*os.File{w})
	if err == nil {
		err = n.send(ctx, "BARRIER=1", fd...)
		closeFDs(fd)
	}
	if err != nil {
		return err
	}
	err = interruptible(ctx, r.SetReadDeadline, func() error {
		_, err := r.Read(make([]byte, 1))
		return err
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return notifyError("wait for BARRIER=1", err)
}
