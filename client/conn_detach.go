package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// detach tells the broker that an attachment is not used any more. Without a broker
// there is nobody to tell, and nothing is wrong: the next one is told. A broker that does not answer is waited for
// once; it hears of this and of all that is detached after it when it goes on, or finds that the connection has ended.
func (c *connection) detach(attachment uint64) error {
	c.mu.Lock()
	silent := c.silent
	c.mu.Unlock()
	told := make(chan error, 1)
	go func() {
		told <- c.request(c.ctx, control.OpDetach, control.DetachRequest{Attachment: attachment}, &control.Empty{})
	}()
	if !silent {
		enough := time.NewTimer(c.patience)
		defer enough.Stop()
		select {
		case err := <-told:
			if errors.Is(err, ErrBrokerUnavailable) || errors.Is(err, os.ErrClosed) || errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		case <-enough.C:
		}
		c.mu.Lock()
		c.silent = true
		c.mu.Unlock()
	}
	c.detached(attachment)
	if silent {
		return nil
	}
	return fmt.Errorf("the broker has not answered for %v (is it stopped?): what is detached until it does is not waited for", c.patience)
}

// giveBack detaches what an attach got whose caller had stopped waiting.
func (c *connection) giveBack(attachment uint64) {
	// Without an answer there is nobody to tell: the broker frees it when the connection ends.
	_ = c.detach(attachment)
}

// heard notes that the broker answers.
func (c *connection) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = false
}

// detached forgets an attachment; the last one after close closes the socket.
func (c *connection) detached(attachment uint64) {
	c.mu.Lock()
	delete(c.attached, attachment)
	c.mu.Unlock()
	// Nobody is there to hear of an error, and a socket has none to give.
	_ = c.closeIfIdle()
}

// close ends the connection, now or when the last attachment is detached. It does not
// wait for that.
func (c *connection) close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	return c.closeIfIdle()
}

func (c *connection) closeIfIdle() error {
	c.mu.Lock()
	idle := c.closing && !c.closed && len(c.attached) == 0
	if idle && c.down != nil && c.owes {
		// The next broker must hear that nothing is attached any more, if it comes soon.
		c.mu.Unlock()
		c.tellLater()
		return nil
	}
	c.closed = c.closed || idle
	conn := c.conn
	c.mu.Unlock()
	if !idle {
		return nil
	}
	c.cancel()
	err := conn.Close()
	<-c.reader
	return err
}
