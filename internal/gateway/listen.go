package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/sys"
)

// backlogMax bounds how many connections are taken from the listen queue when the ingress stops: as many as Linux lets
// wait there, or somebody who connects without pause would keep it from ever stopping.
const backlogMax = 4096

// An entrance is where frames come in: a listening socket, or one for datagrams.
type entrance interface {
	addr() net.Addr
	run()         // takes what comes until the ingress stops, then what has come by then, and closes
	wake()        // makes run see that the ingress stops
	close() error // for an entrance that never ran
}

// enter opens the entrances that the configuration asks for.
func (in *Ingress) enter(ctx context.Context) error {
	c := in.cfg
	if c.Listener != nil {
		in.entrances = append(in.entrances, &acceptor{in: in, listener: c.Listener})
		return nil
	}
	count := c.Acceptors
	if c.packets() {
		count = c.Lanes
	}
	if count > 1 {
		c.Socket.ReusePort = true
	}
	address := c.Listen
	for i := range count {
		if err := in.enterOne(ctx, i, address, c.Socket); err != nil {
			return err
		}
		if i == 0 && count > 1 { // with port 0 the others take the port that the first has got
			network, _ := door.Split(address)
			address = network + "://" + in.Addr().String()
		}
	}
	return nil
}

func (in *Ingress) enterOne(ctx context.Context, i int, address string, socket door.Settings) error {
	if in.cfg.packets() {
		d, err := newDatagrams(ctx, in, in.lanes[i], address, socket)
		if err == nil {
			in.entrances = append(in.entrances, d)
		}
		return err
	}
	l, err := door.Listen(ctx, address, socket)
	if err == nil {
		in.entrances = append(in.entrances, &acceptor{in: in, listener: l})
	}
	return err
}

// acceptor is the entrance of connections.
type acceptor struct {
	in       *Ingress
	listener net.Listener
	closing  sync.Once // of the listener
}

func (a *acceptor) addr() net.Addr { return a.listener.Addr() }

func (a *acceptor) close() error { return a.listener.Close() }

// run takes connections until the ingress stops, then empties the listen queue and closes the listener: who is in
// that queue has been told by the kernel that it is connected, and may have sent frames.
func (a *acceptor) run() {
	in := a.in
	if err := door.Accept(a.listener, in.retry(acceptFailed), in.stopping.Load, in.admit); err != nil {
		in.fail(err)
		<-in.stopSignal
		return
	}
	<-in.stopSignal // or wake would wake what follows
	a.emptyBacklog()
	a.shut()
}

// retry is for what fails for that reason and may pass.
func (in *Ingress) retry(why reason) *door.Retry {
	return &door.Retry{Log: in.warnings, Fail: func() { in.ends[why].Add(1) }, Stop: in.stopSignal}
}

// deadliner is what listeners of package net are beyond net.Listener.
type deadliner interface{ SetDeadline(time.Time) error }

// wake makes a call of Accept return.
func (a *acceptor) wake() {
	if l, ok := a.listener.(deadliner); ok && l.SetDeadline(time.Unix(1, 0)) == nil {
		return
	}
	a.shut()
}

// shut closes the listener once; Close has no other use for an error than to tell somebody.
func (a *acceptor) shut() {
	a.closing.Do(func() {
		if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			a.in.cfg.Logger.Warn("closing the listener failed", "listen", a.addr().String(), "error", err)
		}
	})
}

// emptyBacklog takes on the connections that wait in the listen queue. It never waits for one.
func (a *acceptor) emptyBacklog() {
	l, ok := a.listener.(interface {
		deadliner
		syscall.Conn
	})
	if !ok {
		return
	}
	raw, err := l.SyscallConn()
	if err == nil {
		err = l.SetDeadline(time.Time{}) // wake has set one that is over
	}
	queued := true
	for n := 0; err == nil && n < backlogMax; n++ {
		err = raw.Control(func(fd uintptr) { queued = sys.Readable(int(fd)) })
		if err != nil || !queued {
			break
		}
		var nc net.Conn
		if nc, err = a.listener.Accept(); err == nil {
			a.in.admit(nc)
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		a.in.ends[acceptFailed].Add(1)
		a.in.warnings.Warn(acceptFailed.String(), "the listen queue could not be emptied", slog.Any("error", err),
			slog.String("remedy", door.AcceptRemedy(err)))
	}
}

// admit starts to serve a connection, or closes it if there are too many.
func (in *Ingress) admit(nc net.Conn) {
	in.accepted.Add(1)
	plain, err := newSocket(nc)
	if err != nil {
		in.refuse(nc, brokenConn, slog.Any("error", err))
		return
	}
	src := source(plain)
	if in.cfg.Secure != nil {
		src = newSecureSocket(in, plain)
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
