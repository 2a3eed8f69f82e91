package broker

import (
	"fmt"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// DefaultStuckClaim is used where Config.StuckClaim is 0.
const DefaultStuckClaim = time.Second

// rarestReminder bounds how long the log is silent about a claim that is still held.
const rarestReminder = 10 * time.Minute

// stuckClaims are the claims of living publishers that a topic's readers wait for.
type stuckClaims struct {
	watch *ring.ClaimWatch
	held  map[*attachment]*stuckClaim
}

// A stuckClaim is held for longer than Config.StuckClaim.
type stuckClaim struct {
	ring.HeldClaim
	owner  *attachment
	remind time.Duration // the age at which the log names it again
}

// watch looks at all topics now and then: at claims that are held for long, and at cursors that no
// correct subscriber has. It sleeps for good while nothing is attached.
func (b *Broker) watch() {
	often := min(max(b.config.StuckClaim/4, soonest), time.Second)
	timer := time.NewTimer(often)
	defer timer.Stop()
	for {
		busy := false
		for _, t := range b.topics.all("") {
			busy = t.look(time.Now()) || busy
		}
		var next <-chan time.Time
		if busy {
			timer.Reset(often)
			next = timer.C
		}
		select {
		case <-next:
		case <-b.somethingAttached:
		case <-b.stopping:
			return
		}
	}
}

// look is watch for one topic. It is false where nothing is attached.
func (t *topic) look(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.watchClaims(now)
	t.audit()
	return count(t.publishers)+count(t.subscribers) > 0
}

// watchClaims names claims in the log that are held for too long: at once, and then less and
// less often. The caller holds mu.
func (t *topic) watchClaims(now time.Time) {
	s := &t.stuck
	if s.watch == nil {
		s.watch, s.held = ring.NewClaimWatch(t.ring), map[*attachment]*stuckClaim{}
	}
	still := map[*attachment]*stuckClaim{}
	for _, h := range s.watch.Check(now, t.broker.config.StuckClaim) {
		a := t.publishers[h.Slot]
		if a == nil {
			continue
		}
		c := s.held[a]
		if c == nil || c.Position != h.Position {
			c = &stuckClaim{owner: a}
			t.counts.stuck++
		}
		c.HeldClaim = h
		still[a] = c
		if h.For < c.remind {
			continue
		}
		c.remind = h.For + min(h.For, rarestReminder)
		t.log.Warn("publisher holds a claim for too long: nothing is done about it unless an operator says so", append(a.logged(), c.logged()...)...)
	}
	for a, c := range s.held {
		if still[a] == nil && t.publishers[a.slot] == a {
			t.log.Info("publisher that held a claim for too long has gone on", append(a.logged(), c.logged()...)...)
		}
	}
	s.held = still
}

// logged are the attributes that describe the claim in the log.
func (c *stuckClaim) logged() []any {
	return []any{"position", uint64(c.Position), "bytes", c.Bytes, "stage", c.Stage, "age", c.For.Round(time.Millisecond),
		"remedy", fmt.Sprintf("let it go on (SIGCONT), end it, or `hugebus topic unstick %s --publisher %d`", c.owner.topic.name, c.Slot)}
}

// unstickPatience is how long the answer to unstick waits for the clients'.
const unstickPatience = 2 * time.Second

const (
	maxUnsticking = 16 // requests of one client at a time
	maxUnstuck    = 64 // claims of one request, so that the reply fits a message
)

// unstick asks clients to give up claims that they hold for too long. The one that asks may be
// among them.
func (s *session) unstick(r control.UnstickRequest) (outcome, error) {
	t, err := s.find(r.Name)
	if err != nil {
		return outcome{}, err
	}
	if err := s.broker.access.check(s.who, Admin, r.Name); err != nil {
		return outcome{}, err
	}
	chosen, err := t.chooseStuck(r, time.Now())
	if err != nil {
		return outcome{}, err
	}
	if s.unsticking.Add(1) > maxUnsticking {
		s.unsticking.Add(-1)
		return outcome{}, control.Errorf(control.CodeBusy, "%d other unsticks of this client wait for their answers, for %v at most: try again", maxUnsticking, unstickPatience)
	}
	for _, c := range chosen {
		t.log.Warn("operator takes a claim away from a living publisher", append(c.owner.logged(), append(c.logged(), "operator", s.who.String())...)...)
		if client := c.owner.client(); client != nil {
			client.notify(control.EventRevoke, control.Revoke{Attachment: c.owner.id, Topic: t.name, Position: uint64(c.Position)})
		}
	}
	return outcome{later: func() (outcome, error) {
		defer s.unsticking.Add(-1)
		return t.awaitUnstuck(chosen)
	}}, nil
}

// awaitUnstuck waits for a while until nobody is waited for any more, and says what has become
// of each claim.
func (t *topic) awaitUnstuck(chosen []stuckClaim) (outcome, error) {
	deadline := time.Now().Add(unstickPatience)
	for {
		reply := control.UnstickReply{Claims: []control.UnstuckClaim{}}
		waiting := false
		for _, c := range chosen {
			u := t.unstuck(c)
			waiting = waiting || u.Outcome == control.UnstickWaiting
			reply.Claims = append(reply.Claims, u)
		}
		if !waiting || !time.Now().Before(deadline) {
			return outcome{body: reply}, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.broker.stopping:
			return outcome{}, control.Errorf(control.CodeShutdown, "the broker stops")
		}
	}
}

// client is the connection of who holds a, or nil.
func (a *attachment) client() *session {
	if a.holder == nil {
		return nil
	}
	return a.holder.session.Load()
}

// chooseStuck finds the claims that a request means.
func (t *topic) chooseStuck(r control.UnstickRequest, now time.Time) (chosen []stuckClaim, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, notFound(t.name)
	}
	t.watchClaims(now)
	for _, a := range t.publishers {
		c := t.stuck.held[a]
		if a == nil || c == nil || r.Publisher != nil && a.slot != *r.Publisher || r.PID != 0 && a.who.PID != r.PID {
			continue
		}
		if chosen = append(chosen, *c); len(chosen) == maxUnstuck {
			break
		}
	}
	if len(chosen) > 0 {
		return chosen, nil
	}
	which := "no publisher"
	switch {
	case r.Publisher != nil:
		which = fmt.Sprintf("no publisher in slot %d", *r.Publisher)
	case r.PID != 0:
		which = fmt.Sprintf("no publisher of process %d", r.PID)
	}
	return nil, control.Errorf(control.CodeNotFound, "topic %q: %s has held a claim for longer than %v (stuck_claim); %d others have (`hugebus topic show %s`)",
		t.name, which, t.broker.config.StuckClaim, len(t.stuck.held), t.name)
}

// unstuck says what has become of a claim by now.
func (t *topic) unstuck(c stuckClaim) control.UnstuckClaim {
	a := c.owner
	u := control.UnstuckClaim{
		Slot: a.slot, Name: a.name, UID: a.who.UID, PID: a.who.PID, Command: a.who.Command, Position: uint64(c.Position), Age: c.For,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed || a.settled.Load() && a.repaired == 0:
		u.Outcome = control.UnstickEnded
	case a.settled.Load():
		u.Outcome, u.SkippedBytes = control.UnstickRevoked, int64(a.repaired)
	case a.revoked.Load():
		u.Outcome, u.Remedy = control.UnstickWaiting, "its process has given the claim up, but another publisher's intent names the same position: that one must go on, or end"
	case a.client() == nil:
		u.Outcome, u.Remedy = control.UnstickWaiting, fmt.Sprintf("its process has no connection to this broker: let it go on, or end it (kill -9 %d)", a.who.PID)
	default:
		u.Outcome = control.UnstickWaiting
		u.Remedy = fmt.Sprintf("its process has not answered: it is stopped (kill -CONT %d), in the middle of a publish call, or of a release that cannot "+
			"give claims up; or end it (kill -9 %d)", a.who.PID, a.who.PID)
		if s, err := t.ring.PublisherState(a.slot); err == nil && (!s.Claimed || s.Claim != c.Position) {
			u.Outcome, u.Remedy = control.UnstickEnded, ""
		}
	}
	return u
}
