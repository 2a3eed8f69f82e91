package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/sys"
)

const (
	minBackoff = 5 * time.Millisecond // after accept has failed once
	maxBackoff = time.Second          // after it has failed many times

	// backlogMax bounds how many connections are taken from the listen queue when the ingress stops: as many as Linux lets
	// wait there, or somebody who connects without pause would keep it from ever stopping.
	backlogMax = 4096
)

// accept takes connections until the ingress stops, then empties the listen queue and closes the listener: who is in
// that queue has been told by the kernel that it is connected, and may have sent frames.
func (in *Ingress) accept() {
	backoff := minBackoff
	for !in.stopping.Load() {
		nc, err := in.listener.Accept()
		switch {
		case err == nil:
			backoff = minBackoff
			in.admit(nc)
		case in.stopping.Load():
		case errors.Is(err, net.ErrClosed):
			in.fail(fmt.Errorf("the listener on %s was closed by somebody else: %w", in.Addr(), err))
			<-in.stopSignal
			return
		default:
			in.ends[acceptFailed].Add(1)
			in.warnings.Warn(acceptFailed.String(), "accept failed, trying again", slog.Any("error", err),
				slog.Duration("pause", backoff), slog.String("remedy", door.AcceptRemedy(err)))
			door.Pause(in.stopSignal, backoff)
			backoff = min(2*backoff, maxBackoff)
		}
	}
	<-in.stopSignal // or wakeAccept would wake what follows
	in.emptyBacklog()
	in.closeListener()
}

// deadliner is what listeners of package net are beyond net.Listener.
type deadliner interface{ SetDeadline(time.Time) error }

// wakeAccept makes a call of Accept return.
func (in *Ingress) wakeAccept() {
	if l, ok := in.listener.(deadliner); ok && l.SetDeadline(time.Unix(1, 0)) == nil {
		return
	}
	in.closeListener()
}

// closeListener closes the listener once; Close has no other use for an error than to tell somebody.
func (in *Ingress) closeListener() {
	in.closing.Do(func() {
		if err := in.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			in.cfg.Logger.Warn("closing the listener failed", "listen", in.Addr().String(), "error", err)
		}
	})
}

// emptyBacklog takes on the connections that wait in the listen queue. It never waits for one.
func (in *Ingress) emptyBacklog() {
	l, ok := in.listener.(interface {
		deadliner
		syscall.Conn
	})
	if !ok {
		return
	}
	raw, err := l.SyscallConn()
	if err == nil {
		err = l.SetDeadline(time.Time{}) // wakeAccept has set one that is over
	}
	queued := true
	for n := 0; err == nil && n < backlogMax; n++ {
		err = raw.Control(func(fd uintptr) { queued = sys.Readable(int(fd)) })
		if err != nil || !queued {
			break
		}
		var nc net.Conn
		if nc, err = in.listener.Accept(); err == nil {
			in.admit(nc)
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		in.ends[acceptFailed].Add(1)
		in.warnings.Warn(acceptFailed.String(), "the listen queue could not be emptied", slog.Any("error", err),
			slog.String("remedy", door.AcceptRemedy(err)))
	}
}

// admit starts to serve a connection, or closes it if there are too many.
func (in *Ingress) admit(nc net.Conn) {
	in.accepted.Add(1)
	src, err := newSocket(nc)
	if err != nil {
		in.refuse(nc, brokenConn, slog.Any("error", err))
		return
	}
	if err := in.limits.Enter(nc.RemoteAddr()); err != nil {
		in.refuse(nc, refused, slog.Any("error", err))
		return
	}
	if err := in.cfg.Socket.Dress(nc); err != nil {
		in.debug("socket settings", slog.Any("error", err))
	}
	c := newConn(in, src)
	in.add(c)
	in.debug("connection accepted", slog.String("peer", src.name()))
	go func() {
		defer in.serving.Done()
		defer in.limits.Leave(nc.RemoteAddr())
		defer in.remove(c)
		c.serve()
	}()
}

func (in *Ingress) refuse(nc net.Conn, why reason, attrs ...slog.Attr) {
	in.ends[why].Add(1)
	peer := nc.RemoteAddr().String()
	in.warnings.Warn(why.String(), "connection refused", append(attrs, slog.String("peer", peer))...)
	if err := nc.Close(); err != nil {
		in.debug("closing a refused connection failed", slog.String("peer", peer), slog.Any("error", err))
	}
}

// add registers a connection.
func (in *Ingress) add(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conns[c] = struct{}{}
	in.serving.Add(1)
}

func (in *Ingress) remove(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, c)
}
