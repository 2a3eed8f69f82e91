package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// openPipe opens two named pipes, one each way.
func openPipe(s Spec, side Side) (Link, error) {
	there, back := filepath.Join(s.Dir, "there"), filepath.Join(s.Dir, "back")
	if side == Front {
		// The one that the other side waits for comes last.
		if err := errors.Join(sys.Mkfifo(back), sys.Mkfifo(there)); err != nil {
			return nil, err
		}
	} else if err := appears(there); err != nil {
		return nil, err
	}
	// Opened for both directions, neither open waits for the other side, and none
	// ends while the other still opens.
	r, w := back, there
	if side == Back {
		r, w = there, back
	}
	in, err := os.OpenFile(r, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(w, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return newStream(in, out, s.Size, func() error { return errors.Join(in.Close(), out.Close()) }), nil
}

// appears waits until a file is there.
func appears(path string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s did not appear within %v", path, patience)
}

// connect makes the connection of a link: Front listens, on a name in the link's folder
// or a port that it writes there; Back dials.
func connect(s Spec, side Side, network string) (net.Conn, error) {
	socket := filepath.Join(s.Dir, "socket")
	if side == Back {
		return dial(socket, network)
	}
	address := socket
	if network == "tcp" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		// By a rename, so that the other side reads all of it or nothing.
		draft := socket + ".new"
		if err := errors.Join(os.WriteFile(draft, []byte(listener.Addr().String()), 0o600), os.Rename(draft, socket)); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	type deadline interface{ SetDeadline(time.Time) error }
	if d, ok := listener.(deadline); ok {
		if err := d.SetDeadline(time.Now().Add(patience)); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	conn, err := listener.Accept()
	return conn, errors.Join(err, listener.Close())
}

func dial(socket, network string) (net.Conn, error) {
	if err := appears(socket); err != nil {
		return nil, err
	}
	address := socket
	if network == "tcp" {
		text, err := os.ReadFile(socket)
		if err != nil {
			return nil, err
		}
		address = string(text)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for {
		// A Unix socket's file is there a moment before somebody listens.
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err == nil || ctx.Err() != nil || network == "tcp" {
			return conn, err
		}
		time.Sleep(time.Millisecond)
	}
}

func openUnix(s Spec, side Side) (Link, error) { return openConn(s, side, "unix") }

// openTCP is TCP over loopback, without Nagle's delay, as package net opens it.
func openTCP(s Spec, side Side) (Link, error) { return openConn(s, side, "tcp") }

func openConn(s Spec, side Side, network string) (Link, error) {
	conn, err := connect(s, side, network)
	if err != nil {
		return nil, err
	}
	return newStream(conn, conn, s.Size, conn.Close), nil
}

// A packets link sends each payload as one message of a SOCK_SEQPACKET socket.
type packets struct {
	conn net.Conn
	in   []byte
}

func openSeqPacket(s Spec, side Side) (Link, error) {
	conn, err := connect(s, side, "unixpacket")
	if err != nil {
		return nil, err
	}
	return &packets{conn, make([]byte, s.Size+1)}, nil
}

func (p *packets) Send(payload []byte) error {
	_, err := p.conn.Write(payload)
	return err
}

func (p *packets) Flush() error { return nil }

func (p *packets) Receive(handle func([]byte) error) error {
	n, err := p.conn.Read(p.in)
	if err != nil {
		return err
	}
	if n == 0 {
		return errClosed
	}
	return handle(p.in[:n])
}

func (p *packets) Close() error { return p.conn.Close() }
