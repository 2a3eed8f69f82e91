package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
	"golang.org/x/sys/unix"
)

const (
	minBackoff = 5 * time.Millisecond // after accept has failed once
	maxBackoff = time.Second          // after it has failed many times

	// backlogMax bounds how many connections are taken from the listen queue when the ingress stops: as many as Linux lets
	// wait there, or somebody who connects without pause would keep it from ever stopping.
	backlogMax = 4096
)

// listen listens on a TCP address.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenError(address, err)
	}
	return listener, nil
}

// listenError says what can be done about the usual mistakes.
func listenError(address string, err error) error {
	remedy := ""
	var syntax *net.AddrError
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		_, port, _ := net.SplitHostPort(address)
		remedy = fmt.Sprintf(`: see who has it by "ss -ltnp sport = :%s" and stop that, or take another port (0 takes a free one)`, port)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = `: no network interface of this host has that address ("ip addr" lists them; 0.0.0.0 or [::] means all)`
	case errors.Is(err, unix.EACCES):
		remedy = ": ports below net.ipv4.ip_unprivileged_port_start need root or CAP_NET_BIND_SERVICE: take a higher one"
	case errors.As(err, &syntax):
		remedy = ": give HOST:PORT, as in 127.0.0.1:7070"
	}
	return fmt.Errorf("listen on %s: %w%s", address, err, remedy)
}

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
			in.warnings.warn(acceptFailed, "accept failed, trying again", slog.Any("error", err),
				slog.Duration("pause", backoff), slog.String("remedy", acceptRemedy(err)))
			in.pause(backoff)
			backoff = min(2*backoff, maxBackoff)
		}
	}
	<-in.stopSignal // or wakeAccept would wake what follows
	in.emptyBacklog()
	in.closeListener()
}

// acceptRemedy says what an operator can do about an error of accept.
func acceptRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "raise the process's limit of open files (ulimit -n, LimitNOFILE=), or lower --max-conns below it"
	case errors.Is(err, unix.ENFILE):
		return "raise the host's limit of open files (sysctl fs.file-max)"
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return "the kernel is out of socket memory (sysctl net.ipv4.tcp_mem)"
	}
	return "none is needed if it passes"
}

// pause waits, but not beyond the stop of the ingress.
func (in *Ingress) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-in.stopSignal:
	}
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
		in.warnings.warn(acceptFailed, "the listen queue could not be emptied", slog.Any("error", err),
			slog.String("remedy", acceptRemedy(err)))
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
	c := newConn(in, src)
	if !in.add(c) {
		in.refuse(nc, refused, slog.Int("limit", in.cfg.MaxConns), slog.String("remedy", "raise --max-conns"))
		return
	}
	in.debug("connection accepted", slog.String("peer", src.name()))
	go func() {
		defer in.serving.Done()
		defer in.remove(c)
		c.serve()
	}()
}

func (in *Ingress) refuse(nc net.Conn, why reason, attrs ...slog.Attr) {
	in.ends[why].Add(1)
	peer := nc.RemoteAddr().String()
	in.warnings.warn(why, "connection refused", append(attrs, slog.String("peer", peer))...)
	if err := nc.Close(); err != nil {
		in.debug("closing a refused connection failed", slog.String("peer", peer), slog.Any("error", err))
	}
}

// add registers a connection, unless there are as many as may be.
func (in *Ingress) add(c *conn) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cfg.MaxConns > 0 && len(in.conns) >= in.cfg.MaxConns {
		return false
	}
	in.conns[c] = struct{}{}
	in.serving.Add(1)
	return true
}

func (in *Ingress) remove(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, c)
}
