package client

import (
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// hold has the client hold attachments 1 to n, which no broker has given it.
func hold(c *Client, n uint64) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	for id := range n {
		c.conn.attached[id+1] = struct{}{}
	}
}

// TestASilentBrokerIsWaitedForOnce detaches while a broker does not answer, and after it has.
func TestASilentBrokerIsWaitedForOnce(t *testing.T) {
	goOn, order := make(chan struct{}), make(chan uint64, 3)
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(conn *control.Conn) {
		for n := range 3 {
			r := next(t, conn, control.OpDetach)
			var d control.DetachRequest
			if err := control.DecodeBody(r, &d); err != nil {
				t.Error(err)
			}
			if n == 0 {
				<-goOn
			}
			order <- d.Attachment
			reply(t, conn, r, control.Empty{})
		}
		_, _ = conn.Receive() // until the client closes
	})
	c := connectTo(t, socket)
	hold(c, 3)
	c.conn.patience = 10 * time.Millisecond
	if err := c.askDetach(1); err == nil || !strings.Contains(err.Error(), "has not answered for 10ms") {
		t.Errorf("a detach that is not answered: %v", err)
	}
	c.conn.patience = time.Hour // who waits for the silent broker hangs
	if err := c.askDetach(2); err != nil {
		t.Errorf("the next one: %v", err)
	}
	if c.conn.holds(1) || c.conn.holds(2) || !c.conn.holds(3) {
		t.Error("what is detached is what the client does not hold")
	}
	close(goOn)
	if a, b := <-order, <-order; a != 1 || b != 2 {
		t.Errorf("the broker hears of %d, then of %d", a, b)
	}
	testutil.Eventually(t, "the broker is heard", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return !c.conn.silent
	})
	if err := c.askDetach(3); err != nil || len(order) != 1 {
		t.Errorf("once it answers it is waited for: %v, %d requests came", err, len(order))
	}
}

// TestASilentBrokerHoldsUpNobody detaches more than its socket takes, and closes.
func TestASilentBrokerHoldsUpNobody(t *testing.T) {
	closed := make(chan struct{})
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(*control.Conn) { <-closed })
	c := connectTo(t, socket)
	const many = 3000
	hold(c, many)
	c.conn.patience = time.Millisecond
	for id := range uint64(many) {
		if err := c.askDetach(id + 1); (err != nil) != (id == 0) {
			t.Fatalf("detach %d: %v", id+1, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	close(closed)
}
