package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// A connection asks the broker, and hears what it says unasked. It is safe for
// concurrent use.
//
// To the broker, the end of the socket is the death of all that is attached: it repairs
// behind publishers then. So the socket stays open as long as something is attached,
// even after close, and even when nothing more can be asked.
type connection struct {
	conn   *control.Conn
	broker control.Hello
	event  func(control.Message)
	reader chan struct{} // closed when the reader has ended

	mu       sync.Mutex
	lastID   uint64
	pending  map[uint64]*call
	attached map[uint64]struct{}
	down     error // why nothing can be asked any more; nil while connected
	closing  bool  // close was called: only what is attached may be detached
	closed   bool  // the socket is closed
}

// A call is a request that waits for its reply.
type call struct {
	op    control.Op
	reply chan answer // has room for one: the reader never waits
	left  bool        // the caller has gone: nobody takes the reply
}

// An answer is a reply with the descriptors that came with it.
type answer struct {
	message control.Message
	files   []*os.File
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written to it
	}
}

// dial connects to the broker's socket and says hello. event is called on the reader's
// goroutine, and must not wait for a reply.
func dial(ctx context.Context, socket string, hello control.Hello, event func(control.Message)) (*connection, error) {
	if err := errors.Join(control.CheckLabel(hello.Name), control.CheckSocketPath(socket)); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	conn, err := control.Dial(ctx, socket)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, unavailable(err)
	}
	theirs, err := greet(ctx, conn, hello)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &connection{
		conn: conn, broker: theirs, event: event, reader: make(chan struct{}),
		lastID: 1, pending: map[uint64]*call{}, attached: map[uint64]struct{}{},
	}
	go c.read()
	return c, nil
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

// read hands out replies and events until the connection ends.
func (c *connection) read() {
	defer close(c.reader)
	for {
		p, err := c.conn.Receive()
		if err != nil {
			c.fail(err)
			return
		}
		m, err := control.DecodeMessage(p.Data)
		if err != nil {
			p.Discard()
			c.fail(err)
			return
		}
		if m.Event != "" {
			p.Discard()
			c.event(m)
			continue
		}
		c.deliver(answer{message: m, files: p.Files})
	}
}

// deliver gives a reply to its call.
func (c *connection) deliver(a answer) {
	c.mu.Lock()
	waiting := c.pending[a.message.ID]
	delete(c.pending, a.message.ID)
	var given control.AttachReply
	attached := waiting != nil && waiting.op == control.OpAttach && a.message.Error == nil && a.message.Decode(&given) == nil
	if attached {
		c.attached[given.Attachment] = struct{}{}
	}
	taken := waiting != nil && !waiting.left
	if taken {
		waiting.reply <- a
	}
	c.mu.Unlock()
	if taken {
		return
	}
	closeFiles(a.files)
	if attached {
		go c.giveBack(given.Attachment)
	}
}

// giveBack detaches what an attach got whose caller had stopped waiting.
func (c *connection) giveBack(attachment uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// Without an answer there is nobody to tell: the broker frees it when the connection ends.
	_ = c.request(ctx, control.OpDetach, control.DetachRequest{Attachment: attachment}, &control.Empty{})
}

// fail ends the use of the connection for everybody who waits, and for later requests.
func (c *connection) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return
	}
	if cause == io.EOF {
		cause = errors.New("the broker closed the connection")
	}
	c.down = unavailable(cause)
	for id, waiting := range c.pending {
		delete(c.pending, id)
		close(waiting.reply)
	}
}

// request sends one request and decodes its reply. Errors: what the broker refused
// (*control.Error), ErrBrokerUnavailable, os.ErrClosed, ctx's.
func (c *connection) request(ctx context.Context, op control.Op, body, into any) error {
	files, err := c.requestFiles(ctx, op, body, into)
	closeFiles(files)
	return err
}

// requestFiles is request for replies that come with descriptors, which the caller owns.
// An attach whose caller does not wait for its end is undone when the reply comes.
func (c *connection) requestFiles(ctx context.Context, op control.Op, body, into any) ([]*os.File, error) {
	if d, ok := body.(control.DetachRequest); ok {
		defer c.detached(d.Attachment)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("client: encode %s: %w", op, err)
	}
	id, waiting, err := c.register(op)
	if err != nil {
		return nil, err
	}
	if err := c.conn.Send(control.Request{ID: id, Op: op, Body: raw}); err != nil {
		return nil, c.unsent(id, err)
	}
	a, err := c.await(ctx, id, waiting)
	if err != nil {
		return nil, err
	}
	if a.message.Error != nil {
		closeFiles(a.files)
		return nil, fmt.Errorf("client: %w", a.message.Error)
	}
	if err := a.message.Decode(into); err != nil {
		closeFiles(a.files)
		return nil, fmt.Errorf("client: reply to %s: %w", op, err)
	}
	return a.files, nil
}

// register makes a call, if something can be asked.
func (c *connection) register(op control.Op) (uint64, *call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.closing && op != control.OpDetach {
		return 0, nil, os.ErrClosed
	}
	if c.down != nil {
		return 0, nil, c.down
	}
	c.lastID++
	waiting := &call{op: op, reply: make(chan answer, 1)}
	c.pending[c.lastID] = waiting
	return c.lastID, waiting, nil
}

// unsent takes back a call whose request did not get out.
func (c *connection) unsent(id uint64, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
	var ours *control.Error
	switch {
	case errors.As(cause, &ours):
		return fmt.Errorf("client: %w", cause) // too large: nothing was sent
	case c.closed:
		return os.ErrClosed
	}
	return unavailable(cause)
}

// await waits for the reply, or until ctx ends.
func (c *connection) await(ctx context.Context, id uint64, waiting *call) (answer, error) {
	select {
	case a, ok := <-waiting.reply:
		return c.answered(a, ok)
	case <-ctx.Done():
	}
	c.mu.Lock()
	unanswered := c.pending[id] == waiting
	waiting.left = unanswered
	c.mu.Unlock()
	if unanswered {
		return answer{}, ctx.Err()
	}
	a, ok := <-waiting.reply // it came at the same moment
	return c.answered(a, ok)
}

func (c *connection) answered(a answer, ok bool) (answer, error) {
	if ok {
		return a, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return answer{}, os.ErrClosed
	}
	return answer{}, c.down
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
	c.closed = c.closed || idle
	c.mu.Unlock()
	if !idle {
		return nil
	}
	err := c.conn.Close()
	<-c.reader
	return err
}
