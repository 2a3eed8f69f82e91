package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

const (
	// helloPatience is how long a client may take to say hello.
	helloPatience = 5 * time.Second
	// refusePatience is the same for a client that a quota keeps out.
	refusePatience = time.Second
	// maxRefusing is how many of those are listened to at a time. More are disconnected
	// without a word: they must not use up the descriptors of those within their quota.
	maxRefusing = 64
	// writePatience is how long a client may leave its replies unread before it is
	// disconnected. Only its own goroutine waits.
	writePatience = 10 * time.Second
	// farewellPatience is how long a client may take to be told that the broker stops.
	farewellPatience = time.Second
	// maxEvents is how many events may wait for a client that does not read. More are dropped.
	maxEvents = 256
	// exitPatience is how long the log waits to find out whether a client has died.
	exitPatience = 100 * time.Millisecond
)

// A session is one client's connection. But for events, and its fields that say so, it
// belongs to its own goroutine.
type session struct {
	broker *Broker
	conn   *control.Conn
	log    *slog.Logger
	who    control.Identity
	name   string
	holder *holder // what this client holds

	unsticking atomic.Int32 // requests of this client that are not answered yet

	mu       sync.Mutex
	greeted  bool              // the hello is over: events may be sent
	events   []control.Message // waiting for the drainer
	draining bool              // a goroutine sends events
}

// serveClient talks to one client until its connection ends.
func (b *Broker) serveClient(conn *control.Conn) {
	s := &session{broker: b, conn: conn}
	defer func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			b.log.Warn("close a connection", "error", err)
		}
	}()
	if !b.enter(s) {
		return
	}
	defer b.leave(s)
	var err error
	if s.who, err = conn.Peer(); err != nil {
		b.log.Error("cannot tell who connected", "error", err)
		return
	}
	s.log = b.log.With("pid", s.who.PID, "uid", s.who.UID)
	quota := b.ledger.takeClient(s.who.UID)
	if quota == nil {
		defer b.ledger.giveClient(s.who.UID)
	} else {
		defer b.refusing.Add(-1)
		if b.refusing.Add(1) > maxRefusing {
			s.log.Warn("client was disconnected: a quota keeps it out, and too many others are being told so", "error", quota)
			return
		}
	}
	if !s.greet(quota) {
		return
	}
	s.log.Debug("client connected", "name", s.name, "command", s.who.Command)
	s.end(s.serve())
}

// greet exchanges hellos. A client that is refused, by its version or by a quota, is
// told why.
func (s *session) greet(quota error) bool {
	mine := s.broker.hello
	wait := helloPatience
	if quota != nil {
		wait = refusePatience
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return false
	}
	theirs, id, err := s.conn.AwaitHello(mine)
	if err == nil && quota != nil {
		err = quota
	}
	var refused *control.Error
	switch {
	case errors.As(err, &refused):
		s.broker.figures.refuseHello(refused.Code)
		s.log.Warn("client was refused", "name", theirs.Name, "command", s.who.Command, "error", refused)
		s.drop("hello", s.conn.RefuseHello(id, mine, refused))
		return false
	case err != nil:
		s.drop("hello", err)
		return false
	}
	s.name = theirs.Name
	if s.holder, err = s.broker.newHolder(s); err == nil {
		mine.Secret = s.holder.secret
		err = s.conn.AcceptHello(id, mine)
	}
	if err != nil {
		s.drop("hello", err)
		s.leaveHolder()
		return false
	}
	s.mu.Lock()
	s.greeted = true
	s.mu.Unlock()
	return s.conn.SetReadDeadline(time.Time{}) == nil
}

// drop notes an error of the connection that nobody can be told.
func (s *session) drop(doing string, err error) {
	if err != nil && err != io.EOF {
		s.log.Debug("connection ended", "while", doing, "error", err)
	}
}

// serve answers requests, in order, until the connection ends.
func (s *session) serve() error {
	for {
		p, err := s.conn.Receive()
		var bad *control.Error
		if errors.As(err, &bad) {
			// The packet was bad, the connection is not.
			if err := s.complain(0, bad); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := s.answer(p); err != nil {
			return err
		}
	}
}

// complain answers a request with an error.
func (s *session) complain(id uint64, why *control.Error) error {
	if why.Code == control.CodeMalformed || why.Code == control.CodeTooLarge || why.Code == control.CodeDescriptors {
		s.broker.figures.malformed.Add(1)
		s.log.Debug("bad message", "code", why.Code, "error", why)
	}
	return s.send(control.Message{ID: id, Error: why})
}

func (s *session) send(m control.Message, files ...*os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), writePatience)
	defer cancel()
	return s.conn.SendContext(ctx, m, files...)
}

// answer handles one packet, and sends its reply.
func (s *session) answer(p control.Packet) error {
	r, err := control.DecodeRequest(p.Data)
	if n := len(p.Files); n != 0 {
		p.Discard()
		err = control.Errorf(control.CodeDescriptors, "%d descriptors came with a request: none belong there", n)
	}
	if err != nil {
		return s.complain(r.ID, asError(err, s.log))
	}
	out, err := s.do(r)
	if err == nil && out.later != nil {
		s.broker.background.Go(func() {
			late, err := out.later()
			s.drop("late reply", s.reply(r, late, err))
		})
		return nil
	}
	return s.reply(r, out, err)
}

// reply sends what a request has led to.
func (s *session) reply(r control.Request, out outcome, err error) error {
	if out.done != nil {
		defer out.done()
	}
	if err != nil {
		why := asError(err, s.log)
		if why.Code == control.CodeRefused || why.Code == control.CodeQuota {
			s.log.Warn("request was refused", "op", r.Op, "code", why.Code, "error", why)
		}
		return s.complain(r.ID, why)
	}
	body, err := control.EncodeBody(out.body)
	if err != nil {
		return s.complain(r.ID, asError(err, s.log))
	}
	return s.send(control.Message{ID: r.ID, Body: body}, out.files...)
}

// asError is err as it is told to a client. What no client can mend is in the log.
func asError(err error, log *slog.Logger) *control.Error {
	var e *control.Error
	if errors.As(err, &e) {
		if e.Error() != err.Error() {
			e = control.Errorf(e.Code, "%v", err)
		}
		return e
	}
	if full := sys.Explain(err); full != err {
		log.Error("request failed for want of descriptors", "error", full)
		return control.Errorf(control.CodeBusy, "the broker cannot do it now: %v", full)
	}
	log.Error("request failed", "error", err)
	return control.Errorf(control.CodeInternal, "the broker failed: %v", err)
}

// end takes back what a client that is gone has left.
func (s *session) end(why error) {
	s.drop("serving", why)
	if s.broker.isStopping() {
		return // what is attached goes on without us
	}
	if n := s.holder.end(s); n > 0 {
		s.broker.figures.deaths.Add(1)
		exited, known := s.conn.PeerExited(exitPatience)
		switch {
		case known && !exited:
			s.log.Warn("client closed its connection with attachments, and still runs: it is treated as dead", "name", s.name, "attachments", n)
		default:
			s.log.Info("client died", "name", s.name, "command", s.who.Command, "attachments", n)
		}
	}
}

// leaveHolder forgets the holder of a client that never was one.
func (s *session) leaveHolder() {
	if s.holder != nil {
		s.holder.end(s)
	}
}

// notify queues an event for the client. It never waits: whoever calls it must not be
// held up by a client that does not read.
func (s *session) notify(kind control.EventKind, body any) {
	raw, err := control.EncodeBody(body)
	if err != nil {
		s.broker.log.Error("cannot encode an event", "event", kind, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.greeted {
		return
	}
	if len(s.events) >= maxEvents {
		s.log.Warn("client does not read: event is dropped", "name", s.name, "event", kind)
		return
	}
	s.events = append(s.events, control.Message{Event: kind, Body: raw})
	if !s.draining {
		s.draining = true
		s.broker.background.Go(s.drain)
	}
}

// drain sends the events that wait, and ends. So an idle client costs one goroutine.
func (s *session) drain() {
	for {
		s.mu.Lock()
		if len(s.events) == 0 || s.broker.isStopping() {
			s.draining = false
			s.mu.Unlock()
			return
		}
		next := s.events[0]
		s.events = s.events[1:]
		s.mu.Unlock()
		if err := s.send(next); err != nil {
			s.drop("event", err)
		}
	}
}

// farewell tells the client that the broker stops, and ends the session.
func (s *session) farewell() {
	s.mu.Lock()
	greeted := s.greeted
	s.mu.Unlock()
	if greeted {
		body, err := control.EncodeBody(control.Shutdown{Message: "the broker was stopped"})
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), farewellPatience)
			defer cancel()
			err = s.conn.SendContext(ctx, control.Message{Event: control.EventShutdown, Body: body})
		}
		s.drop("farewell", err)
	}
	// Its own goroutine closes it again, and knows.
	_ = s.conn.Close()
}
