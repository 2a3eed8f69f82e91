package broker

import (
	"cmp"
	"errors"
	"runtime"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/ring"
)

// A group exists from its first member on. It is guarded by its topic's mu.
type group struct {
	name    string
	index   int
	opening chan struct{} // closed when it is open, or could not be opened; then nil
	members map[int]*attachment
	linger  *time.Timer // runs while it has no members
	closes  time.Time   // when linger ends
	clean   bool        // nobody died since it had its first member
	broken  bool        // its words in shared memory were written over: it ends with its last member
}

func (g *group) stopLinger() {
	if g.linger != nil {
		g.linger.Stop()
	}
	g.linger, g.closes = nil, time.Time{}
}

// group finds a group by name.
func (t *topic) group(name string) *group {
	for _, g := range t.groups {
		if g != nil && g.name == name {
			return g
		}
	}
	return nil
}

// attachMember makes a a member of a group, which it opens if need be.
func (t *topic) attachMember(a *attachment, r control.AttachRequest) error {
	start, err := startOf(r.Start)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.removed || t.closed {
			return notFound(t.name)
		}
		g := t.group(r.Group)
		switch {
		case g != nil && g.broken:
			return control.Errorf(control.CodeBusy, "topic %q: what group %q had in shared memory was written over; it ends when its %d members have left, and then begins anew",
				t.name, g.name, len(g.members))
		case g == nil:
			if g, err = t.openGroup(r.Group, start); err != nil {
				return err
			}
			fallthrough
		case g.opening == nil:
			return t.admitMember(a, g)
		}
		opening := g.opening
		t.mu.Unlock()
		<-opening // not for long: opening has a bound
		t.mu.Lock()
	}
}

// startOf reads where a new group begins.
func startOf(s *control.StartPoint) (ring.Start, error) {
	if s == nil {
		return ring.Latest(), nil
	}
	switch s.From {
	case "", control.FromLatest:
		return ring.Latest(), nil
	case control.FromEarliest:
		return ring.Earliest(), nil
	case control.FromPosition:
		return ring.At(ring.Position(s.Position)), nil
	}
	return ring.Start{}, control.Errorf(control.CodeInvalid, "start from %.32q is not one of latest, earliest, position", s.From)
}

// openGroup opens a new group. The caller holds mu, which is given up meanwhile: joining
// waits for publishers that compute their limits, and one of those may have died and
// need mu for its repair.
func (t *topic) openGroup(name string, start ring.Start) (*group, error) {
	index, err := freeSlot(t.groups, "group")
	if err != nil {
		return nil, t.noSlot(err)
	}
	g := &group{name: name, index: index, opening: make(chan struct{}), members: map[int]*attachment{}, clean: true}
	t.groups[index] = g
	t.users++
	t.mu.Unlock()
	err = t.ring.OpenGroup(index, start, t.broker.patience())
	t.mu.Lock()
	close(g.opening)
	g.opening = nil
	if err == nil {
		failpoint.Hit(FailGroupOpened)
		if err = t.keepChange(); err != nil {
			err = errors.Join(err, t.ring.CloseGroup(index))
		}
	}
	if err != nil {
		t.groups[index] = nil
		err = openError(t.name, name, err)
	}
	t.users-- // not unuse: a member is to come, and attachMember looks at removed
	if err == nil && t.removed {
		err = notFound(t.name)
	}
	if t.removed {
		t.closeIfUnused()
	}
	return g, err
}

func openError(topic, name string, err error) error {
	switch {
	case errors.Is(err, errImpatient):
		return control.Errorf(control.CodeBusy, "topic %q: group %q cannot start: %v", topic, name, err)
	case errors.Is(err, ring.ErrConfig):
		return control.Errorf(control.CodeInvalid, "topic %q: group %q: %v", topic, name, err)
	}
	return err
}

var errImpatient = errors.New("a publisher does not finish what takes nanoseconds: is it stopped? Let it go on (SIGCONT) or end it")

// joinPatience bounds how long a group's opening waits for publishers that compute their limits, or that say so.
const joinPatience = 5 * time.Second

// patience is the wait between looks at a publisher that computes its limit. It ends by
// an error after some seconds, or when the broker stops.
func (b *Broker) patience() func() error {
	looks, deadline := 0, time.Now().Add(cmp.Or(b.config.joinPatience, joinPatience))
	return func() error {
		if looks++; looks < 100 {
			runtime.Gosched()
			return nil
		}
		if time.Now().After(deadline) {
			return errImpatient
		}
		select {
		case <-b.stopping:
			return control.Errorf(control.CodeShutdown, "the broker stops")
		case <-time.After(time.Millisecond):
			return nil
		}
	}
}

func (t *topic) admitMember(a *attachment, g *group) error {
	slot, err := freeSlot(t.subscribers, "subscriber")
	if err == nil {
		t.reclaim(slot)
		a.member, err = t.ring.AdmitMember(g.index, slot)
	}
	if err != nil {
		t.afterLeaving(g)
		if errors.Is(err, ring.ErrFull) {
			return control.Errorf(control.CodeNoSlot, "topic %q: group %q has %d members already, which is the most", t.name, g.name, ring.MaxMembers)
		}
		return t.noSlot(err)
	}
	g.stopLinger()
	a.slot, a.group = slot, g
	t.subscribers[slot], g.members[a.member] = a, a
	t.attached(a)
	return nil
}

// reap frees a member. What it had not finished goes to the others.
func (t *topic) reap(a *attachment) bool {
	done, err := t.ring.ReapMember(a.group.index, a.member)
	if errors.Is(err, ring.ErrFull) {
		return false // there is no entry for what it left; it gates meanwhile
	}
	if err != nil {
		t.log.Error("cannot reap a group member", append(a.logged(), "error", err)...)
	}
	t.freeSubscriber(a)
	delete(a.group.members, a.member)
	a.group.clean = a.group.clean && !a.died
	t.settled(a)
	if a.died || done.Orphaned || done.Corrupt {
		t.log.Info("group member is gone: what it had not finished goes to others", append(a.logged(), "died", a.died,
			"unfinished_bytes", uint64(done.To-done.From), "offered_again", done.Offered, "corrupt", done.Corrupt)...)
	}
	if done.Corrupt {
		t.counts.violations++
	}
	return true
}

// afterLeaving looks for frames that were redelivered too often, and closes a group that
// has lost its last member, now or after a while.
func (t *topic) afterLeaving(g *group) {
	if t.groups[g.index] != g {
		return
	}
	t.broker.buryLater(t, g)
	if len(g.members) > 0 {
		return
	}
	linger := t.broker.config.GroupLinger
	state, err := t.ring.GroupState(g.index)
	if err == nil && g.clean && state.Orphans == 0 || linger < 0 || g.broken {
		t.closeGroup(g)
		return
	}
	t.lingerFor(g, linger)
}

// lingerFor closes g after d, unless somebody becomes a member before.
func (t *topic) lingerFor(g *group, d time.Duration) {
	g.stopLinger()
	g.closes = time.Now().Add(d)
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.closed && g.linger == timer {
			t.closeGroup(g)
		}
	})
	g.linger = timer
	t.log.Info("group has no members; it is kept for a while", "group", g.name, "linger", d)
}

// closeGroup ends a group without members, and says what that drops.
func (t *topic) closeGroup(g *group) {
	g.stopLinger()
	state, err := t.ring.GroupState(g.index)
	if err == nil {
		err = t.ring.CloseGroup(g.index)
	}
	if err != nil {
		// A member that could not be reaped yet: look again later.
		t.log.Error("cannot close a group", "group", g.name, "error", err)
		t.lingerFor(g, max(t.broker.config.GroupLinger, time.Second))
		return
	}
	t.counts.redelivered += state.Redelivered
	t.groups[g.index] = nil
	failpoint.Hit(FailGroupClosed)
	if err := t.keepChange(); err != nil {
		t.log.Error("the keeper does not take that a group is closed; the next broker will find out by itself", "group", g.name, "error", err)
	}
	t.publishState()
	t.wake()
	t.log.Info("group is closed", "group", g.name, "dropped_bytes", state.Lag, "unfinished_ranges", state.Orphans)
}
