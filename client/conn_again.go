package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
)

const (
	// firstPause and longestPause bound the time between two attempts to connect to a
	// broker that is away; each is varied by half, so that a thousand clients do not come at once.
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
	// farewellPatience is how long a client that was closed while no broker ran tries to
	// tell the next one.
	farewellPatience = time.Minute
)

// waits reports whether a request waits for a broker that is away. Some have another way out.
func waits(op control.Op) bool {
	return op != control.OpDetach && op != control.OpDeadLetter && op != control.OpNote
}

// repeatable reports whether a request may be sent again when its broker died before the reply.
func repeatable(op control.Op) bool {
	switch op {
	case control.OpAttach, control.OpList, control.OpShow, control.OpPing:
		return true
	}
	return false
}

// mayWait reports whether who asks with ctx wants to wait for a broker.
func (c *connection) mayWait(ctx context.Context) bool {
	_, bounded := ctx.Deadline()
	return bounded || c.wait != 0
}

// awaitBroker waits until there is a connection, or for as long as ctx or the options say.
func (c *connection) awaitBroker(ctx context.Context) error {
	c.mu.Lock()
	down, back := c.down, c.back
	c.mu.Unlock()
	if down == nil {
		return nil
	}
	if _, ok := ctx.Deadline(); !ok && c.wait > 0 {
		bounded, stop := context.WithTimeout(ctx, c.wait)
		defer stop()
		ctx = bounded
	}
	select {
	case <-back:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (waited for another: %w)", down, ctx.Err())
	}
}

// reconnect connects again until it succeeds. nil: nothing is to be connected to any more.
func (c *connection) reconnect() *control.Conn {
	for pause, said := firstPause, false; ; pause = min(2*pause, longestPause) {
		if c.ctx.Err() != nil || c.isClosed() {
			break
		}
		conn, err := c.resume()
		if err == nil {
			return conn
		}
		if c.givesUp(err) {
			break
		}
		if refused := (*control.Error)(nil); errors.As(err, &refused) && !said {
			said = true
			c.log.Warn("hugebus: a broker refuses this client; what is attached goes on without it", "error", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-c.hurry:
		case <-c.ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		_ = c.conn.Close() // nobody asked for its end
	}
	if c.down != nil {
		close(c.back) // who waits finds that it is closed
		c.back = nil
	}
	return nil
}

func (c *connection) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// givesUp reports whether a client that was closed has nobody to tell: where no keeper holds
// the socket, the next broker knows nothing of us.
func (c *connection) givesUp(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := c.closing && len(c.attached) == 0
	return idle && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}

// tellLater lets a closed client tell the next broker that it holds nothing.
func (c *connection) tellLater() {
	time.AfterFunc(farewellPatience, c.cancel)
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// resume makes a connection and takes what is attached there.
func (c *connection) resume() (*control.Conn, error) {
	conn, theirs, err := c.open(c.ctx, false)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(FailReattachGreeted)
	c.mu.Lock()
	asked := make([]uint64, 0, len(c.attached))
	for id := range c.attached {
		asked = append(asked, id)
	}
	secret := c.secret
	c.mu.Unlock()
	stop := context.AfterFunc(c.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	kept, known, err := c.reattach(conn, secret, asked)
	if !stop() && err == nil {
		err = c.ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	failpoint.Hit(FailReattachAnswered)
	if !known {
		secret = theirs.Secret
	}
	if !c.install(conn, secret, asked, kept) {
		return nil, errors.Join(os.ErrClosed, conn.Close())
	}
	return conn, nil
}

// reattach tells the broker what we still use, and returns what of it is still ours.
func (c *connection) reattach(conn *control.Conn, secret string, asked []uint64) (kept map[uint64]bool, known bool, err error) {
	kept = map[uint64]bool{}
	for page := uint64(0); ; page++ {
		n := min(len(asked), control.MaxReattach)
		body, err := control.EncodeBody(control.ReattachRequest{Secret: secret, Attachments: asked[:n], More: n < len(asked)})
		if err != nil {
			return nil, false, err
		}
		if err := conn.Send(control.Request{ID: 2 + page, Op: control.OpReattach, Body: body}); err != nil {
			return nil, false, err
		}
		failpoint.Hit(FailReattachSent)
		var reply control.ReattachReply
		refused, err := c.replyTo(conn, 2+page, &reply)
		if err != nil {
			return nil, false, err
		}
		if refused != nil {
			c.log.Warn("hugebus: the broker does not give back what was attached", "error", refused)
			return map[uint64]bool{}, false, nil
		}
		for _, id := range reply.Attachments {
			kept[id] = true
		}
		if asked = asked[n:]; len(asked) == 0 || !reply.Known {
			return kept, reply.Known, nil
		}
	}
}

// replyTo waits for one reply, and handles events before it.
func (c *connection) replyTo(conn *control.Conn, id uint64, into any) (refused *control.Error, err error) {
	for {
		p, err := conn.Receive()
		if err != nil {
			return nil, err
		}
		p.Discard()
		m, err := control.DecodeMessage(p.Data)
		switch {
		case err != nil:
			return nil, err
		case m.Event != "":
			c.event(m)
		case m.ID != id:
			return nil, control.Errorf(control.CodeMalformed, "a reply to request %d came for %d", m.ID, id)
		case m.Error != nil:
			return m.Error, nil
		default:
			return nil, m.Decode(into)
		}
	}
}

// install makes conn the connection. What the broker does not know any more is over; what was
// detached since we asked is given back. It is false if the client was closed meanwhile.
func (c *connection) install(conn *control.Conn, secret string, asked []uint64, kept map[uint64]bool) bool {
	c.mu.Lock()
	var lost, untold []uint64
	for _, id := range asked {
		_, held := c.attached[id]
		switch {
		case !kept[id]:
			delete(c.attached, id)
			lost = append(lost, id)
		case !held:
			untold = append(untold, id)
		}
	}
	c.mu.Unlock()
	// Before anybody can attach anew, and get the same slot.
	if len(lost) > 0 {
		c.lost(lost)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	before := c.conn
	c.conn, c.secret = conn, secret
	// Ids of the hello and of reattach are not used again.
	c.lastID += uint64(len(asked)/control.MaxReattach) + 2
	c.down, c.owes, c.silent = nil, false, false
	close(c.back)
	c.back = nil
	c.mu.Unlock()
	_ = before.Close() // broken
	c.log.Info("hugebus: connected to the broker again", "attachments", len(kept), "lost", len(lost))
	for _, id := range untold {
		go c.giveBack(id)
	}
	go func() { _ = c.closeIfIdle() }() // it may have been told to; a socket has no error to give
	return true
}

// holds reports whether an attachment is still ours.
func (c *connection) holds(attachment uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.attached[attachment]
	return ok
}
