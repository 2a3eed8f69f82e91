package broker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/sys"
)

// A holder is a client as one that holds attachments. It outlives the connection where the
// broker dies: the next one finds it in the store, and its client comes back to it with the
// secret.
type holder struct {
	broker *Broker
	secret string
	key    string // in the store

	// session is the client's connection; nil while it is away.
	session atomic.Pointer[session]

	// mu guards what follows. It is taken before that of a topic.
	mu      sync.Mutex
	who     control.Identity
	name    string
	process *os.File // pidfd; nil: this kernel cannot tell whether the client lives
	held    map[uint64]*attachment
	leaving map[uint64]*attachment // given up, but their slots are not free yet
	claimed map[uint64]bool        // of a reattach that is under way
	kept    bool                   // the store has an entry
	gone    bool                   // the client has ended, or has moved to another holder
}

// newHolder makes the holder of a new client.
func (b *Broker) newHolder(s *session) (*holder, error) {
	var random [24]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("random numbers: %w", err)
	}
	h := &holder{
		broker: b, secret: hex.EncodeToString(random[:16]), key: clientKeyPrefix + hex.EncodeToString(random[16:]),
		who: s.who, name: s.name, held: map[uint64]*attachment{}, leaving: map[uint64]*attachment{}, claimed: map[uint64]bool{},
	}
	h.session.Store(s)
	b.addHolder(h)
	return h, nil
}

func (b *Broker) addHolder(h *holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders[h.secret] = h
}

func (b *Broker) dropHolder(h *holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holders, h.secret)
}

func (b *Broker) holderOf(secret string) *holder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.holders[secret]
}

func (b *Broker) allHolders() []*holder {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*holder, 0, len(b.holders))
	for _, h := range b.holders {
		all = append(all, h)
	}
	return all
}

// record is h as it is kept. The caller holds mu.
func (h *holder) record() clientRecord {
	r := clientRecord{
		Secret: h.secret, Name: h.name, PID: h.who.PID, UID: h.who.UID, GID: h.who.GID, Groups: h.who.Groups, Command: h.who.Command,
		Attachments: []attachmentRecord{},
	}
	for _, a := range h.held {
		r.Attachments = append(r.Attachments, a.record(false))
	}
	for _, a := range h.leaving {
		r.Attachments = append(r.Attachments, a.record(true))
	}
	return r
}

// keep brings the store up to date. The caller holds mu.
func (h *holder) keep() error {
	v := &h.broker.vault
	if !v.keeps() {
		return nil
	}
	if len(h.held)+len(h.leaving) == 0 {
		h.forgetProcess()
		if h.kept {
			h.kept = false
			v.drop(h.key)
		}
		return nil
	}
	if h.kept {
		err := v.update(h.key, h.record())
		if !errors.Is(err, keeper.ErrNotFound) {
			return err
		}
		// A new store, and refill has not come to us. It must know now: the topic may be there already.
	}
	if err := h.identify(); err != nil {
		return err
	}
	var files []*os.File
	if h.process != nil {
		files = append(files, h.process)
	}
	err := v.put(h.key, h.record(), files...)
	h.kept = err == nil
	return err
}

// keepAgain puts h into a new store.
func (h *holder) keepAgain() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = false
	return h.keep()
}

// identify gets a pidfd of the client's process, if it can be had. The caller holds mu.
func (h *holder) identify() error {
	s := h.session.Load()
	if h.process != nil || s == nil {
		return nil
	}
	process, err := s.conn.PeerProcess()
	if err != nil {
		// An old kernel, or a client that is dead already, which its connection will tell.
		h.broker.log.Debug("no pidfd of a client", "pid", h.who.PID, "error", err)
		return nil
	}
	h.process = process
	return nil
}

// letGo gives attachments of h back: they were detached, or their client has died. The
// caller holds mu.
func (h *holder) letGo(gone []*attachment, died bool) {
	byTopic := map[*topic][]*attachment{}
	for _, a := range gone {
		delete(h.held, a.id)
		h.leaving[a.id] = a
		byTopic[a.topic] = append(byTopic[a.topic], a)
	}
	for t, list := range byTopic {
		t.depart(list, died)
	}
	failpoint.Hit(FailDepartFreed)
	h.forgetSettled()
}

// forgetSettled brings the store up to date with what is settled. The caller holds mu.
func (h *holder) forgetSettled() {
	for id, a := range h.leaving {
		if a.settled.Load() {
			delete(h.leaving, id)
		}
	}
	if err := h.keep(); err != nil {
		h.broker.log.Error("the keeper does not take a change; the next broker will find out by itself", "client", h.name, "error", err)
	}
	if h.gone && len(h.leaving) == 0 {
		h.forgetProcess()
	}
}

// forgetProcess closes the pidfd of a client that holds nothing. The caller holds mu.
func (h *holder) forgetProcess() {
	if h.process != nil {
		_ = h.process.Close() // nothing is written to a pidfd
		h.process = nil
	}
}

// settledLater is forgetSettled for who does not hold mu.
func (h *holder) settledLater() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetSettled()
}

// all are the attachments of h. The caller holds mu.
func (h *holder) all() []*attachment {
	list := make([]*attachment, 0, len(h.held))
	for _, a := range h.held {
		list = append(list, a)
	}
	return list
}

// end takes everything back: the client has died. It returns how many attachments that
// were. by is the session that has ended, or nil for a client that was away; the call does
// nothing if the client has another one by now.
func (h *holder) end(by *session) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.session.Load() != by {
		return 0
	}
	h.gone = true
	h.session.Store(nil)
	h.broker.dropHolder(h)
	list := h.all()
	h.letGo(list, true)
	return len(list)
}

// awaitReturn watches a client that is away until it comes back, or ends, or the broker
// stops. A client that lives is never taken for dead: it may be in the middle of a claim,
// and would write over what somebody else has published. Only where no pidfd says whether it
// lives does the grace decide.
func (h *holder) awaitReturn(grace time.Duration) {
	h.mu.Lock()
	process := h.process
	h.mu.Unlock()
	if process == nil {
		select {
		case <-time.After(grace):
			h.died("it has not come back, and this kernel cannot tell whether it lives")
		case <-h.broker.stopping:
		}
		return
	}
	away := func() bool { return !h.broker.isStopping() && h.session.Load() == nil }
	exited := awaitExit(process, time.Now().Add(grace), away)
	if !exited && away() {
		h.mu.Lock()
		h.broker.log.Warn("client lives and has not come back: its slots stay its own until it ends", "name", h.name, "pid", h.who.PID,
			"command", h.who.Command, "attachments", len(h.held))
		h.mu.Unlock()
		exited = awaitExit(process, time.Time{}, away)
	}
	if exited {
		h.died("")
	}
}

// died takes everything back from a client that was away.
func (h *holder) died(why string) {
	n := h.end(nil)
	if n == 0 {
		return
	}
	h.broker.figures.deaths.Add(1)
	h.broker.log.Info("client died while no broker ran", "name", h.name, "pid", h.who.PID, "command", h.who.Command, "attachments", n, "why", why)
}

// wake makes awaitReturn look again.
func (h *holder) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		_ = h.process.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// awaitExit waits until a process has ended. It is false at the deadline (zero: none), or
// when still is not true any more and wake was called.
func awaitExit(process *os.File, deadline time.Time, still func() bool) (exited bool) {
	raw, err := process.SyscallConn()
	if err != nil {
		return false // closed: nobody waits any more
	}
	// The deadline comes before the look: wake changes what still looks at, and then the deadline.
	if err := process.SetReadDeadline(deadline); err != nil || !still() {
		return false
	}
	_ = raw.Read(func(fd uintptr) bool { // its error is the deadline
		exited, err = sys.Exited(int(fd), 0)
		return exited || err != nil
	})
	return exited
}
