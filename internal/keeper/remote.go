package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Failpoints of the broker's side of a keeper process.
const (
	// FailBeforeRequest: a request is about to be sent.
	FailBeforeRequest = "keeper-before-request"
	// FailAfterRequest: a request was sent, and nothing is known of its fate.
	FailAfterRequest = "keeper-after-request"
	// FailAfterReply: the reply was received.
	FailAfterReply = "keeper-after-reply"
)

// A remote is the Store of a keeper process.
type remote struct {
	link   *link
	socket string
	pid    int // the keeper's
	lost   chan struct{}
	ended  chan struct{} // closed when the reader has ended
	turn   chan struct{} // holds a token while one call of the Store is under way
	set    uint64        // of the last entry that was staged; for who has the turn

	mu     sync.Mutex
	child  *os.Process // the keeper, if this process has started it
	last   uint64
	calls  []*call // unanswered, oldest first: the keeper answers in order
	err    error   // why there will be no more replies
	closed bool
}

// A call is a request that waits for its reply.
type call struct {
	id    uint64
	reply chan answer // of capacity 1
	left  bool        // nobody waits any more
}

type answer struct {
	message control.Message
	files   []*os.File
	err     error
}

// connect opens a connection to a running keeper and takes the lease. ErrNotRunning: there is none.
func connect(ctx context.Context, o Options) (*remote, error) {
	r, err := dial(ctx, o.Socket)
	if err != nil {
		return nil, err
	}
	if err := r.hello(ctx, true); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	o.Log.Info("keeper has the lease for this broker", "pid", r.pid, "socket", o.Socket)
	return r, nil
}

func dial(ctx context.Context, path string) (*remote, error) {
	var d net.Dialer
	var socket net.Conn
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		var err error
		if socket, err = d.DialContext(ctx, "unixpacket", path); err == nil {
			break
		}
		if notThere(err) {
			return nil, fmt.Errorf("%w on %s: %w", ErrNotRunning, path, err)
		}
		if !errors.Is(err, syscall.EAGAIN) { // the queue of new connections is full
			return nil, fmt.Errorf("keeper: connect to %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
	r := &remote{
		link: newLink(socket.(*net.UnixConn)), socket: path,
		lost: make(chan struct{}), ended: make(chan struct{}), turn: make(chan struct{}, 1),
	}
	peer, err := r.link.Peer()
	if err == nil && !trusted(peer) {
		err = fmt.Errorf("keeper: %s belongs to a process of %v: a keeper of this user (uid %d) or root is expected; "+
			"use a directory that only they can write", path, peer, os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(err, r.link.Close())
	}
	go r.read()
	return r, nil
}

func (r *remote) hello(ctx context.Context, lease bool) error {
	m, files, err := r.request(ctx, opHello, helloRequest{Protocol: protocolVersion, Software: control.Software(), Lease: lease}, nil)
	closeFiles(files)
	if errors.Is(err, ErrLost) { // it was about to end
		return fmt.Errorf("%w on %s: it ended before it answered", ErrNotRunning, r.socket)
	}
	var theirs helloReply
	if len(m.Body) != 0 {
		if bad := m.Decode(&theirs); bad != nil {
			return bad
		}
	}
	if err != nil {
		return heldBy(theirs.Holder, err)
	}
	r.pid = theirs.PID
	return nil
}

// heldBy makes a HeldError of a refusal because of the lease.
func heldBy(pid int, err error) error {
	var bad *control.Error
	if errors.As(err, &bad) && bad.Code == control.CodeBusy {
		return &HeldError{PID: pid, Message: bad.Message}
	}
	return err
}

// request sends one message and waits for its reply. Files that come with the reply are the caller's, also with an error.
func (r *remote) request(ctx context.Context, op control.Op, body any, fds []int) (control.Message, []*os.File, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return control.Message{}, nil, err
	}
	c, err := r.enqueue()
	if err != nil {
		return control.Message{}, nil, err
	}
	failpoint.Hit(FailBeforeRequest)
	if err := r.link.send(ctx, control.Request{ID: c.id, Op: op, Body: raw}, fds); err != nil {
		return control.Message{}, nil, r.unsent(ctx, c, err)
	}
	failpoint.Hit(FailAfterRequest)
	select {
	case a := <-c.reply:
		failpoint.Hit(FailAfterReply)
		if a.err == nil && a.message.Error != nil {
			a.err = sentinel(a.message.Error)
		}
		return a.message, a.files, a.err
	case <-ctx.Done():
		r.leave(c)
		return control.Message{}, nil, ctx.Err()
	}
}

// enqueue makes the next call.
func (r *remote) enqueue() (*call, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, os.ErrClosed
	}
	if r.err != nil {
		return nil, r.err
	}
	r.last++
	c := &call{id: r.last, reply: make(chan answer, 1)}
	r.calls = append(r.calls, c)
	return c, nil
}

// unsent takes a call back that never reached the keeper. Calls are sent one at a time, so it is the last.
func (r *remote) unsent(ctx context.Context, c *call, err error) error {
	r.mu.Lock()
	if n := len(r.calls); n > 0 && r.calls[n-1] == c {
		r.calls = r.calls[:n-1]
	}
	closed := r.closed
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case closed:
		return os.ErrClosed
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		<-r.ended // so that Lost is closed when anybody hears of it
		return ErrLost
	}
	return fmt.Errorf("keeper: send: %w", err)
}

// leave gives a call up. Its reply is dropped when it comes.
func (r *remote) leave(c *call) {
	r.mu.Lock()
	c.left = true
	r.mu.Unlock()
	select {
	case a := <-c.reply:
		closeFiles(a.files)
	default:
	}
}

// read hands replies out until the connection ends.
func (r *remote) read() {
	defer close(r.ended)
	for {
		p, err := r.link.Receive()
		var bad *control.Error
		if err != nil && !errors.As(err, &bad) {
			r.finish(err)
			return
		}
		a := answer{files: p.Files}
		if bad != nil { // a reply whose descriptors did not fit this process
			a.err = fmt.Errorf("keeper: reply: %w", bad)
		} else if a.message, a.err = control.DecodeMessage(p.Data); a.err != nil {
			a.err = fmt.Errorf("keeper: %w", a.err)
		}
		if !r.deliver(a) {
			closeFiles(a.files)
			r.finish(errors.New("a reply without its request"))
			return
		}
	}
}

// deliver gives a reply to the oldest call, which is the one that it belongs to.
func (r *remote) deliver(a answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) == 0 {
		return false
	}
	c := r.calls[0]
	if a.message.ID != c.id && a.message.ID != 0 {
		return false
	}
	r.calls = r.calls[1:]
	if c.left {
		closeFiles(a.files)
		return true
	}
	c.reply <- a
	return true
}

// finish fails what waits for replies.
func (r *remote) finish(err error) {
	_ = r.link.Close() // it is of no use whatever comes of that
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = ErrLost
	if err != io.EOF && !r.closed {
		r.err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	if r.closed {
		r.err = os.ErrClosed
	} else {
		close(r.lost)
		r.reap()
	}
	for _, c := range r.calls {
		c.reply <- answer{err: r.err}
	}
	r.calls = nil
}

func (r *remote) Lost() <-chan struct{} { return r.lost }

func (r *remote) String() string { return fmt.Sprintf("keeper process %d at %s", r.pid, r.socket) }

// Close gives the lease up: it is free when Close returns.
func (r *remote) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return os.ErrClosed
	}
	r.closed = true
	if r.child != nil {
		// If it ends while this process lives, it stays in the table of processes until this one ends too.
		_ = r.child.Release()
		r.child = nil
	}
	r.mu.Unlock()
	_ = r.link.Close() // an error is one that the reader has closed
	<-r.ended
	return nil
}

// adopt takes over the process that was started for this connection.
func (r *remote) adopt(child *os.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.child = child
	if r.err != nil {
		r.reap()
	}
}

// reap makes the ended keeper process vanish from the table of processes, if it is a child of this one. The lock is held.
func (r *remote) reap() {
	if child := r.child; child != nil {
		r.child = nil
		go func() { _, _ = child.Wait() }() // how it ended is in its log
	}
}
