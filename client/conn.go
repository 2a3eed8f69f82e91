package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// A connection asks the broker, and hears what it says unasked. When it breaks it is made
// again, also to the next broker, which gives back what is attached. It is safe for concurrent use.
//
// To a living broker, the end of the socket is the death of all that is attached: it repairs
// behind publishers then. So the socket stays open as long as something is attached,
// even after close, and even when it breaks on this side: until there is another one.
type connection struct {
	socket string
	hello  control.Hello
	log    *slog.Logger
	wait   time.Duration // Options.WaitForBroker
	// patience is how long a detach waits for its reply.
	patience time.Duration
	event    func(control.Message)
	lost     func(attachments []uint64) // the broker does not know them any more
	reader   chan struct{}              // closed when the reader has ended
	ctx      context.Context            // ends when nothing is to be connected to any more
	cancel   context.CancelFunc
	hurry    chan struct{} // makes reconnect try at once

	mu       sync.Mutex
	conn     *control.Conn
	secret   string // by which a broker knows what is attached
	lastID   uint64
	pending  map[uint64]*call
	attached map[uint64]struct{}
	silent   bool          // the broker let a detach wait for longer than patience, and has said nothing since
	down     error         // why nothing can be asked now; nil while connected
	back     chan struct{} // closed when that is over
	owes     bool          // the next broker is to be told what is still attached
	closing  bool          // close was called: only what is attached may be detached
	closed   bool          // the socket is closed
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
	cut     error // why its descriptors could not be received
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written to it
	}
}

// dial connects to the broker's socket and says hello. c has what does not change.
func (c *connection) dial(ctx context.Context) error {
	if err := errors.Join(control.CheckLabel(c.hello.Name), control.CheckSocketPath(c.socket)); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	bounded, stop := c.boundDial(ctx)
	defer stop()
	conn, theirs, err := c.open(bounded, !c.mayWait(ctx))
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			err = unavailable(fmt.Errorf("nobody answers on %s: is a broker started there?", c.socket))
		}
		return err
	}
	c.conn, c.secret = conn, theirs.Secret
	c.lastID, c.pending, c.attached = 1, map[uint64]*call{}, map[uint64]struct{}{}
	c.reader, c.hurry = make(chan struct{}), make(chan struct{}, 1)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return nil
}

// run reads, and connects again when the connection ends, until close.
func (c *connection) run() {
	defer close(c.reader)
	defer c.cancel()
	for conn := c.conn; conn != nil; conn = c.reconnect() {
		c.fail(conn, c.read(conn))
	}
}

// read hands out replies and events until the connection ends.
func (c *connection) read(conn *control.Conn) error {
	for {
		p, cut := conn.Receive()
		if cut != nil && !errors.Is(cut, &control.Error{Code: control.CodeDescriptors}) {
			return cut
		}
		m, err := control.DecodeMessage(p.Data)
		c.heard()
		if err != nil {
			p.Discard()
			return err
		}
		if m.Event != "" {
			p.Discard()
			c.event(m)
			continue
		}
		c.deliver(answer{message: m, files: p.Files, cut: cut})
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
		failpoint.Hit(FailAttachReceived)
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

// fail ends the use of a connection for everybody who waits. Later requests wait for the
// next one, or fail.
func (c *connection) fail(conn *control.Conn, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil || c.conn != conn {
		return
	}
	if cause == io.EOF {
		cause = errors.New("the broker closed the connection")
	}
	c.down, c.back = unavailable(cause), make(chan struct{})
	c.owes = len(c.attached) > 0
	for id, waiting := range c.pending {
		c.owes = c.owes || waiting.op == control.OpAttach || waiting.op == control.OpDetach
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
// An attach whose caller does not wait for its end is undone when the reply comes, and one
// whose broker died before the reply is undone by the next: so it can be asked for again.
func (c *connection) requestFiles(ctx context.Context, op control.Op, body, into any) ([]*os.File, error) {
	if d, ok := body.(control.DetachRequest); ok {
		defer c.detached(d.Attachment)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("client: encode %s: %w", op, err)
	}
	for {
		files, err := c.ask(ctx, op, raw, into)
		if !errors.Is(err, ErrBrokerUnavailable) || !repeatable(op) || !c.mayWait(ctx) || ctx.Err() != nil {
			return files, err
		}
		if waitErr := c.awaitBroker(ctx); waitErr != nil {
			return nil, waitErr
		}
	}
}

// ask sends one request on the connection that there is, and waits for its reply.
func (c *connection) ask(ctx context.Context, op control.Op, raw []byte, into any) ([]*os.File, error) {
	conn, id, waiting, err := c.register(ctx, op)
	if err != nil {
		return nil, err
	}
	if err := conn.SendContext(ctx, control.Request{ID: id, Op: op, Body: raw}); err != nil {
		return nil, c.unsent(ctx, conn, id, err)
	}
	switch op {
	case control.OpAttach:
		failpoint.Hit(FailAttachSent)
	case control.OpDetach:
		failpoint.Hit(FailDetachSent)
	}
	a, err := c.await(ctx, id, waiting)
	if err != nil {
		return nil, err
	}
	if a.message.Error != nil {
		closeFiles(a.files)
		if a.message.Error.Code == control.CodeShutdown {
			c.fail(conn, a.message.Error) // the next one is to be asked
			return nil, unavailable(a.message.Error)
		}
		return nil, fmt.Errorf("client: %w", a.message.Error)
	}
	if a.cut != nil {
		var given control.AttachReply
		if op == control.OpAttach && a.message.Decode(&given) == nil {
			c.giveBack(given.Attachment)
		}
		return nil, fmt.Errorf("client: reply to %s: %w", op, a.cut)
	}
	if err := a.message.Decode(into); err != nil {
		closeFiles(a.files)
		return nil, fmt.Errorf("client: reply to %s: %w", op, err)
	}
	return a.files, nil
}

// register makes a call, if something can be asked, or when it can be asked again.
func (c *connection) register(ctx context.Context, op control.Op) (*control.Conn, uint64, *call, error) {
	for {
		c.mu.Lock()
		if c.closed || c.closing && op != control.OpDetach {
			c.mu.Unlock()
			return nil, 0, nil, os.ErrClosed
		}
		if c.down == nil {
			c.lastID++
			waiting := &call{op: op, reply: make(chan answer, 1)}
			c.pending[c.lastID] = waiting
			defer c.mu.Unlock()
			return c.conn, c.lastID, waiting, nil
		}
		down := c.down
		c.mu.Unlock()
		if !waits(op) || !c.mayWait(ctx) {
			return nil, 0, nil, down
		}
		if err := c.awaitBroker(ctx); err != nil {
			return nil, 0, nil, err
		}
	}
}

// unsent takes back a call whose request did not get out.
func (c *connection) unsent(ctx context.Context, conn *control.Conn, id uint64, cause error) error {
	c.mu.Lock()
	delete(c.pending, id)
	closed := c.closed
	c.mu.Unlock()
	var ours *control.Error
	switch {
	case errors.As(cause, &ours):
		return fmt.Errorf("client: %w", cause) // too large: nothing was sent
	case closed:
		return os.ErrClosed
	case cause == ctx.Err():
		return cause // nobody reads, and the socket is full
	}
	c.fail(conn, cause) // the reader will find the same
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
	if c.down == nil { // it was, and the next broker is there already
		return answer{}, unavailable(errors.New("the connection ended before the reply"))
	}
	return answer{}, c.down
}
