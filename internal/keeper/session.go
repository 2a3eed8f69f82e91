package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Failpoints of the keeper process.
const (
	// FailKeeperReceived: a request has arrived, nothing was done about it.
	FailKeeperReceived = "keeper-received"
	// FailKeeperApplied: a request was carried out, and not answered yet.
	FailKeeperApplied = "keeper-applied"
	// FailKeeperAnswered: the answer is on its way.
	FailKeeperAnswered = "keeper-answered"
)

// helloTime is how long a connection may take to say hello, so that silent ones do not use all sessions up.
const helloTime = 30 * time.Second

// A session is one connection to a keeper. Its methods belong to one goroutine.
type session struct {
	server *server
	link   *link
	peer   control.Identity
	greet  bool          // hello is done
	ended  chan struct{} // closed when the session has given back what it had
	set    uint64        // what staged belongs to
	staged []int
}

// errDone ends a connection that has nothing more to say.
var errDone = errors.New("done")

// A reply is what a request is answered with.
type reply struct {
	body any
	fds  []int  // the table's
	then func() // to be called when the reply is sent; the connection ends with it
}

// run serves the connection until it ends.
func (s *session) run(ctx context.Context) {
	defer close(s.ended)
	defer s.server.release(s)
	defer func() { closeFDs(s.staged) }()
	if err := s.link.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return
	}
	for {
		p, err := s.link.Receive()
		var bad *control.Error
		if err != nil && !errors.As(err, &bad) {
			return
		}
		failpoint.Hit(FailKeeperReceived)
		if bad != nil { // the packet is lost, and with it the request's id
			if s.link.send(ctx, control.Message{Error: bad}, nil) != nil {
				return
			}
			continue
		}
		if err := s.answer(ctx, p); err != nil {
			return
		}
	}
}

// refuse answers whatever comes first, and that is all. Every step may fail: the other side may be gone.
func (s *session) refuse(ctx context.Context, bad *control.Error) {
	if s.link.SetReadDeadline(time.Now().Add(helloTime)) != nil {
		return
	}
	if p, err := s.link.Receive(); err == nil {
		p.Discard()
		_ = s.link.send(ctx, control.Message{Error: bad}, nil)
	}
}

// answer carries a request out and replies to it. It returns an error when the connection is of no more use.
func (s *session) answer(ctx context.Context, p control.Packet) error {
	id, body, bad := parse(p.Data, len(p.Files))
	var r reply
	if bad != nil {
		p.Discard()
	} else {
		var err error
		if r, err = s.handle(ctx, body, p.Files); err != nil {
			bad = asError(err)
		}
	}
	failpoint.Hit(FailKeeperApplied)
	m, err := message(id, r.body, bad)
	if err != nil {
		return err
	}
	err = s.link.send(ctx, m, r.fds)
	failpoint.Hit(FailKeeperAnswered)
	if r.then != nil { // also if nobody hears of it
		r.then()
		return errDone
	}
	if err == nil && !s.greet {
		return errDone
	}
	return err
}

// handle carries a request out. It takes the files over.
func (s *session) handle(ctx context.Context, body any, files []*os.File) (reply, error) {
	if hello, ok := body.(*helloRequest); ok {
		return s.hello(ctx, hello)
	}
	if !s.greet {
		closeFiles(files)
		return reply{}, control.Errorf(control.CodeMalformed, "the first message must be hello")
	}
	if _, ok := body.(*control.Empty); ok {
		return s.shutdown()
	}
	if !s.server.holds(s) {
		closeFiles(files)
		return reply{}, control.Errorf(control.CodeRefused, "this connection has not asked for the lease")
	}
	switch b := body.(type) {
	case *stageRequest:
		return reply{}, s.stage(b, files)
	case *putRequest:
		return reply{}, s.put(b, files)
	case *updateRequest:
		return reply{}, s.update(b, files)
	case *deleteRequest:
		s.server.change(func(t *table) ([]int, error) { return t.remove(b.Key), nil })
		return reply{}, nil
	case *loadRequest:
		return s.load(b), nil
	case *filesRequest:
		return s.files(b)
	}
	closeFiles(files)
	return reply{}, control.Errorf(control.CodeInternal, "no handler for %T", body)
}

func (s *session) hello(ctx context.Context, b *helloRequest) (reply, error) {
	mine := helloReply{Protocol: protocolVersion, Software: control.Software(), PID: os.Getpid()}
	if s.greet {
		return reply{}, control.Errorf(control.CodeMalformed, "hello came twice")
	}
	if b.Protocol != protocolVersion {
		return reply{body: mine}, control.Errorf(control.CodeVersion, "versions differ: the broker (%.64s) speaks keeper protocol %d, "+
			"the running keeper (%.64s, pid %d) protocol %d: use that release, or end the keeper and all topics with `hugebus shutdown`",
			b.Software, b.Protocol, mine.Software, mine.PID, protocolVersion)
	}
	if b.Lease {
		if holder := s.server.acquire(ctx, s); holder != nil {
			mine.Holder = int(holder.PID)
			return reply{body: mine}, control.Errorf(control.CodeBusy, "the keeper (pid %d) serves another broker already (%v): "+
				"two brokers must not have the same topics; stop that one first", mine.PID, holder)
		}
	}
	s.greet = true
	if err := s.link.SetReadDeadline(time.Time{}); err != nil {
		return reply{}, err
	}
	return reply{body: mine}, nil
}

func (s *session) shutdown() (reply, error) {
	if holder := s.server.stop(s); holder != nil {
		return reply{body: helloReply{Protocol: protocolVersion, PID: os.Getpid(), Holder: int(holder.PID)}},
			control.Errorf(control.CodeBusy, "the keeper (pid %d) still serves a broker (%v): stop that one first", os.Getpid(), holder)
	}
	return reply{then: s.server.cancel}, nil
}

func (s *session) stage(b *stageRequest, files []*os.File) error {
	if b.Set != s.set {
		s.unstage()
		s.set = b.Set
	}
	if n := len(s.staged) + len(files); n > MaxFiles {
		closeFiles(files)
		s.unstage()
		return control.Errorf(control.CodeQuota, "%d descriptors are above the limit of %d an entry", n, MaxFiles)
	}
	fds, err := bare(files)
	if err != nil {
		s.unstage()
		return control.Errorf(control.CodeDescriptors, "%v: the keeper may be at its limit of open files (RLIMIT_NOFILE)", err)
	}
	s.staged = append(s.staged, fds...)
	return nil
}

func (s *session) unstage() {
	closeFDs(s.staged)
	s.staged, s.set = nil, 0
}

func (s *session) put(b *putRequest, files []*os.File) error {
	if b.Set != s.set {
		s.unstage()
	}
	it, err := contentItem(b.Key, b.content, files)
	if err != nil {
		s.unstage()
		return err
	}
	it.files = append(s.staged, it.files...)
	s.staged, s.set = nil, 0
	if len(it.files) != b.Files {
		closeFDs(it.fds())
		return control.Errorf(control.CodeDescriptors, "%s has %d descriptors, but %d came", b.Key, b.Files, len(it.files))
	}
	return s.store(it, func(t *table) ([]int, error) { return t.put(b.Key, it) })
}

func (s *session) update(b *updateRequest, files []*os.File) error {
	it, err := contentItem(b.Key, b.content, files)
	if err != nil {
		return err
	}
	return s.store(it, func(t *table) ([]int, error) { return t.update(b.Key, it) })
}

// store changes the table, and closes the item's descriptors if it is refused.
func (s *session) store(it *item, fn func(*table) ([]int, error)) error {
	err := s.server.change(fn)
	if err != nil {
		closeFDs(it.fds())
	}
	return err
}

func (s *session) load(b *loadRequest) reply {
	// Who holds the lease alone changes the table, and this is its own goroutine: the item stays until the reply is sent.
	key, it := s.server.after(b.After)
	if it == nil {
		return reply{body: loadReply{End: true}}
	}
	fds := it.fds()
	return reply{
		body: loadReply{Key: key, content: content{Data: it.data, Blob: it.blob >= 0}, Files: len(it.files)},
		fds:  fds[:min(len(fds), packetFiles)],
	}
}

func (s *session) files(b *filesRequest) (reply, error) {
	it := s.server.item(b.Key)
	if it == nil {
		return reply{}, control.Errorf(control.CodeNotFound, "no entry %s", b.Key)
	}
	fds := it.fds()
	if b.From >= len(fds) {
		return reply{}, control.Errorf(control.CodeInvalid, "%s has %d descriptors, none from %d on", b.Key, len(fds), b.From)
	}
	fds = fds[b.From:]
	return reply{body: control.Empty{}, fds: fds[:min(len(fds), packetFiles)]}, nil
}

// message makes a reply's packet.
func message(id uint64, body any, bad *control.Error) (control.Message, error) {
	m := control.Message{ID: id, Error: bad}
	if body == nil {
		return m, nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return m, fmt.Errorf("encode reply: %w", err)
	}
	m.Body = raw
	return m, nil
}
