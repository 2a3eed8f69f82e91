package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

const (
	// helloPatience is how long Dial waits for a hello when its context sets no bound. A
	// keeper may hold a socket that no broker serves at the moment.
	helloPatience = 10 * time.Second
	// peerPause is the time between two looks whether there is a broker at all, for who does not
	// want to wait for one.
	peerPause = 50 * time.Millisecond
)

func (c *connection) boundDial(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.wait < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(c.wait, helloPatience))
}

// open makes a connection and says hello. now: not to a broker that comes later.
func (c *connection) open(ctx context.Context, now bool) (*control.Conn, control.Hello, error) {
	conn, err := control.Dial(ctx, c.socket)
	if err != nil {
		if ctx.Err() != nil {
			return nil, control.Hello{}, ctx.Err()
		}
		return nil, control.Hello{}, unavailable(err)
	}
	gone := func() bool { return false }
	if now {
		gone = endWithPeer(conn)
	}
	theirs, err := greet(ctx, conn, c.hello)
	if gone() && err != nil {
		err = unavailable(fmt.Errorf("the broker on %s has died, and no other one has taken its place yet", c.socket))
	}
	if err != nil {
		return nil, theirs, errors.Join(err, conn.Close())
	}
	return conn, theirs, nil
}

// endWithPeer ends the wait for an answer of a process that has died: its socket may live on in a
// keeper. On a kernel that cannot tell it does nothing. stop ends the watch, and reports whether
// the process has died.
func endWithPeer(conn *control.Conn) (stop func() bool) {
	over, died := make(chan struct{}), make(chan bool, 1)
	go func() {
		for {
			gone, known := conn.PeerDied()
			if gone {
				_ = conn.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
			}
			if gone || !known {
				died <- gone
				return
			}
			select {
			case <-over:
				died <- false
				return
			case <-time.After(peerPause):
			}
		}
	}()
	return func() bool {
		close(over)
		return <-died
	}
}

// unavailable wraps a cause as ErrBrokerUnavailable.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrBrokerUnavailable, cause) }

// greet says hello, within ctx.
func greet(ctx context.Context, conn *control.Conn, mine control.Hello) (control.Hello, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	theirs, err := conn.SayHello(mine)
	stop()
	var refused *control.Error
	switch {
	case errors.As(err, &refused):
		return theirs, fmt.Errorf("client: %w", err)
	case ctx.Err() != nil:
		return theirs, ctx.Err()
	case err != nil:
		return theirs, unavailable(err)
	}
	return theirs, nil
}
