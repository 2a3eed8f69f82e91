package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// A Conn is one end of a control connection. Send is safe for concurrent use; Receive
// and the hello methods belong to one goroutine at a time.
type Conn struct {
	socket *net.UnixConn
	write  chan struct{} // has room for who may send: one packet and its deadline at a time
	limit  int           // bytes of a message that comes in
	data   []byte        // receive buffer; one byte more than the limit
	oob    []byte
}

// A Packet is one message as it came, with its descriptors. Data is valid until the
// next Receive; Files belong to whoever received them.
type Packet struct {
	Data  []byte
	Files []*os.File
}

// NewConn makes a Conn of a connected SOCK_SEQPACKET socket, which it owns from here on.
// Messages that come in have up to limit bytes: MaxRequest at the broker, MaxMessage at
// a client.
func NewConn(socket *net.UnixConn, limit int) *Conn {
	return &Conn{
		socket: socket,
		write:  make(chan struct{}, 1),
		limit:  limit,
		data:   make([]byte, limit+1),
		// Twice the descriptors that a message may have: a surplus is then seen and closed
		// here instead of being cut off.
		oob: make([]byte, sys.RightsSpace(2*MaxDescriptors)),
	}
}

// Close closes the socket. A blocked Send or Receive returns an error.
func (c *Conn) Close() error { return c.socket.Close() }

// SetReadDeadline bounds Receive; the zero time takes the bound away.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.socket.SetReadDeadline(t) }

// Send sends v as one packet, with descriptors, which stay the caller's. It waits until
// the other side has room for it.
func (c *Conn) Send(v any, files ...*os.File) error {
	return c.SendContext(context.Background(), v, files...)
}

// SendContext is Send that waits until ctx ends at most: then it returns ctx's error, and nothing was sent.
func (c *Conn) SendContext(ctx context.Context, v any, files ...*os.File) error {
	packet, err := marshal(v)
	if err != nil {
		return err
	}
	if len(files) > MaxDescriptors {
		return Errorf(CodeDescriptors, "%d descriptors are above the limit of %d a message", len(files), MaxDescriptors)
	}
	select {
	case c.write <- struct{}{}:
		defer func() { <-c.write }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.socket.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.socket.SetWriteDeadline(time.Unix(1, 0)) // an error: it is closed, and so is the way for the packet
		close(cut)
	})
	err = withFDs(files, nil, func(fds []int) error {
		_, _, err := c.socket.WriteMsgUnix(packet, sys.Rights(fds), nil)
		return err
	})
	if !stop() {
		<-cut // before the next packet's deadline is set
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ctx.Err()
		}
	}
	return err
}

// withFDs calls fn with the descriptors of files, none of which can be closed, and
// its number given to another file, meanwhile.
func withFDs(files []*os.File, fds []int, fn func([]int) error) error {
	if len(files) == 0 {
		return fn(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		inner = withFDs(files[1:], append(fds, int(fd)), fn)
	}); err != nil {
		return err
	}
	return inner
}

// EncodeBody makes the body of a message.
func EncodeBody(v any) (json.RawMessage, error) { return marshal(v) }

// marshal is the one place that makes packets, and keeps them below MaxMessage.
func marshal(v any) ([]byte, error) {
	packet, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode control message: %w", err)
	}
	if len(packet) > MaxMessage {
		return nil, Errorf(CodeTooLarge, "control message of %d bytes is above the limit of %d", len(packet), MaxMessage)
	}
	return packet, nil
}

// Receive waits for the next packet. The error is an *Error if the packet was bad but
// the connection is still good: too large, or with descriptors cut off; descriptors of a
// bad packet are closed. If only descriptors were wrong (CodeDescriptors), Data is there all the same,
// so that whoever waits for it can be told. It is io.EOF when the other side has closed.
func (c *Conn) Receive() (Packet, error) {
	n, oobn, flags, _, err := c.socket.ReadMsgUnix(c.data, c.oob)
	fds, rightsErr := sys.ParseRights(c.oob[:max(oobn, 0)], flags)
	if bad := packetError(n, c.limit, flags, len(fds), rightsErr); err == nil && bad != nil {
		err = bad
	}
	if err != nil {
		for _, fd := range fds {
			// Nothing to report: a peer's descriptor that is not wanted.
			_ = sys.CloseFD(fd)
		}
		if errors.Is(err, &Error{Code: CodeDescriptors}) && n <= c.limit {
			return Packet{Data: c.data[:n]}, err
		}
		return Packet{}, plainEOF(err)
	}
	p := Packet{Data: c.data[:n]}
	for i, fd := range fds {
		p.Files = append(p.Files, os.NewFile(uintptr(fd), fmt.Sprintf("hugebus-received-%d", i)))
	}
	return p, nil
}

func packetError(n, limit, flags, descriptors int, rightsErr error) error {
	switch {
	case rightsErr != nil:
		return Errorf(CodeDescriptors, "%v: %s", rightsErr, sys.FileRemedy())
	case descriptors > MaxDescriptors:
		return Errorf(CodeDescriptors, "%d descriptors with one message are above the limit of %d", descriptors, MaxDescriptors)
	case n > limit || sys.MessageCut(flags):
		return Errorf(CodeTooLarge, "message is above the limit of %d bytes", limit)
	}
	return nil
}

// plainEOF strips what package net wraps around the end of a connection, and takes a
// reset for an end: on these sockets it means that the peer closed with packets unread.
func plainEOF(err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return io.EOF
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err == io.EOF {
		return io.EOF
	}
	return err
}

// closeAll closes descriptors that came with a message and are not wanted.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Discard closes the descriptors of a packet that is refused.
func (p Packet) Discard() { closeAll(p.Files) }
