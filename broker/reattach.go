package broker

import (
	"context"
	"errors"
	"os"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/keeper"
)

// errMoved answers what is left of an old connection whose client has another one.
var errMoved = control.Errorf(control.CodeNotFound, "this client has moved to another connection")

// reattach gives a client back what it held on an earlier connection.
func (s *session) reattach(r control.ReattachRequest) (outcome, error) {
	if n := len(r.Attachments); n > control.MaxReattach {
		return outcome{}, control.Errorf(control.CodeInvalid, "%d attachments are above the limit of %d in one request: send several, with more", n, control.MaxReattach)
	}
	if s.holder.secret != r.Secret {
		if ok, err := s.takeOver(r.Secret); err != nil || !ok {
			return outcome{body: control.ReattachReply{Attachments: []uint64{}}}, err
		}
		failpoint.Hit(FailReattach)
	}
	return outcome{body: s.claim(r)}, nil
}

// takeOver makes the holder with this secret that of the session. It is false where there
// is none, or where it is another user's.
func (s *session) takeOver(secret string) (bool, error) {
	h, mine := s.broker.holderOf(secret), s.holder
	if h == nil || h.who.UID != s.who.UID {
		return false, nil
	}
	mine.mu.Lock()
	busy := len(mine.held)+len(mine.leaving) > 0
	mine.mu.Unlock()
	if busy {
		return false, control.Errorf(control.CodeInvalid, "reattach comes before the first attach of a connection")
	}
	h.mu.Lock()
	if h.gone {
		h.mu.Unlock()
		return false, nil
	}
	before := h.session.Swap(s)
	h.claimed = map[uint64]bool{}
	h.name = s.name
	h.changeProcess(s)
	h.mu.Unlock()
	h.wake()
	if before != nil {
		_ = before.conn.Close() // its goroutine finds that it holds nothing
	}
	mine.end(s)
	s.holder = h
	return true, nil
}

// changeProcess notes that a client has come back as another process, which has its
// connection and memory from the first. The caller holds mu.
func (h *holder) changeProcess(s *session) {
	if h.who.PID == s.who.PID {
		return
	}
	h.who, h.kept = s.who, false
	if h.process != nil {
		_ = h.process.Close() // nothing is written to a pidfd
		h.process = nil
	}
	if err := h.keep(); err != nil {
		h.broker.log.Error("the keeper does not take that a client is another process", "pid", s.who.PID, "error", err)
	}
}

// claim notes what the client still uses. After the last request the rest is given back:
// it was detached while no broker was there to be told, or attached by one that died
// before it could say so.
func (s *session) claim(r control.ReattachRequest) control.ReattachReply {
	h := s.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	reply := control.ReattachReply{Known: true, Attachments: []uint64{}}
	for _, id := range r.Attachments {
		if a := h.held[id]; a != nil && h.session.Load() == s {
			h.claimed[id] = true
			reply.Attachments = append(reply.Attachments, id)
			s.catchUp(a)
		}
	}
	if r.More || h.session.Load() != s {
		return reply
	}
	var rest []*attachment
	for id, a := range h.held {
		if !h.claimed[id] {
			rest = append(rest, a)
		}
	}
	s.log.Info("client has come back", "name", s.name, "attachments", len(h.held)-len(rest), "given_back", len(rest))
	h.claimed = map[uint64]bool{}
	if len(rest) > 0 {
		h.letGo(rest, false)
	}
	return reply
}

// catchUp tells a client that was away what has become of an attachment of its.
func (s *session) catchUp(a *attachment) {
	a.topic.mu.Lock()
	removed := a.topic.removed
	if a.away && a.expelled != "" {
		a.topic.accuse(a, 0)
	}
	a.away = false
	a.topic.mu.Unlock()
	if removed {
		s.notify(control.EventTopicRemoved, control.TopicRemoved{Topic: a.topic.name, TopicID: a.topic.id, Reason: "removed while this client was away"})
	}
}

// stop ends the broker, with everything that would outlive it.
func (s *session) stop(control.StopRequest) (outcome, error) {
	b := s.broker
	if mine := uint32(os.Geteuid()); s.who.UID != 0 && s.who.UID != mine {
		return outcome{}, control.Errorf(control.CodeRefused, "%v may not stop the broker: only its own user (uid %d) and root may", s.who, mine)
	}
	b.log.Warn("broker is told to end with everything that it has", "by", s.who.String())
	b.forget.Store(true)
	for _, t := range b.topics.all("") {
		// Another client may be faster, and then nothing is to be done.
		_ = b.remove(t.name, "the bus was shut down by "+s.who.String())
	}
	return outcome{body: control.Empty{}, done: func() { go b.stop() }}, nil
}

// endStore gives the lease up; after Stop, everything that is kept, too.
func (b *Broker) endStore() error {
	if !b.vault.keeps() {
		return nil
	}
	if !b.forget.Load() {
		return b.vault.close()
	}
	err := errors.Join(b.vault.empty(), b.vault.close())
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	if end := keeper.Shutdown(ctx, b.config.Socket+keeper.SocketSuffix); !errors.Is(end, keeper.ErrNotRunning) {
		err = errors.Join(err, end)
	}
	return err
}

// closeHolders closes what the holders have open. Nobody uses them any more.
func (b *Broker) closeHolders() {
	for _, h := range b.allHolders() {
		h.mu.Lock()
		if h.process != nil {
			_ = h.process.Close() // nothing is written to a pidfd
			h.process = nil
		}
		h.mu.Unlock()
	}
}

// announce tells systemd, if there is one, that clients are served.
func (b *Broker) announce() {
	if b.config.Keeper.Mode != KeepBySystem {
		return
	}
	if err := keeper.Ready("serves " + b.config.Socket); err != nil {
		b.log.Warn("systemd does not hear that the broker is up", "error", err)
	}
}

// announceEnd tells systemd, if there is one, that the broker stops.
func (b *Broker) announceEnd() {
	if b.config.Keeper.Mode != KeepBySystem {
		return
	}
	what := "stops; what is attached goes on, and topics are kept for the next broker"
	if b.forget.Load() {
		what = "stops, with all topics"
	}
	if err := keeper.Stopping(what); err != nil {
		b.log.Warn("systemd does not hear that the broker stops", "error", err)
	}
}
