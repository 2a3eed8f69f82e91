package broker

import (
	"slices"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// An alarm bounds what the log says of a hostile client, which can do wrong more often than
// anybody can read.
type alarm struct {
	said  int
	muted uint64
	again time.Time // when the log speaks again
}

const (
	alarmBurst = 20               // violations of a topic that are logged one by one
	alarmPause = 10 * time.Second // between two after that
)

// violated counts a value that no correct client writes, and logs it, unless the log is full of them. The caller
// holds mu.
func (t *topic) violated(what string, attributes ...any) {
	t.counts.violations++
	now := time.Now()
	if t.alarm.said++; t.alarm.said > alarmBurst {
		if now.Before(t.alarm.again) {
			t.alarm.muted++
			return
		}
		t.alarm.again = now.Add(alarmPause)
		attributes = append(attributes, "not_logged", t.alarm.muted)
		t.alarm.muted = 0
	}
	t.log.Warn(what, attributes...)
}

// audit looks for what no correct subscriber writes into the memory that all of the topic's subscribers
// share. A slot whose words are impossible is expelled: it holds nobody back any more, and its
// owner is told. That one need not be who wrote there, but it is the only one that is known. What
// belongs to nobody is cleared. The caller holds mu.
func (t *topic) audit() {
	violations := t.counts.violations
	if !t.ring.AuditHeader() {
		t.violated("header of shared memory was written over: it is restored")
	}
	for _, a := range t.subscribers {
		if a == nil || a.expelled != "" || slices.Contains(t.pending, a) {
			continue
		}
		if v, ok := t.ring.AuditSubscriber(a.slot, a.audited()); !ok {
			t.expel(a, v.Why, v)
		}
	}
	for _, g := range t.groups {
		t.auditGroup(g)
	}
	for _, v := range t.ring.AuditUnused(
		func(i int) bool { return t.subscribers[i] != nil },
		func(g int) bool { return t.groups[g] != nil },
		func(g, m int) bool { return t.groups[g].opening != nil || t.groups[g].members[m] != nil },
	) {
		t.violated("shared memory held publishers back in the name of nobody: it is cleared", "slot", v.Slot, "group", v.Group, "why", v.Why)
	}
	if t.counts.violations != violations {
		t.wake() // publishers that were held back
	}
}

// audited is what the broker gave to a.
func (a *attachment) audited() ring.Audited {
	w := ring.Audited{Config: ring.SubscriberConfig{Policy: a.policy, EvictAfter: a.evictAfter}}
	if a.group != nil {
		w.Config.Policy, w.Group, w.Member = ring.GroupMember, a.group.index, a.member
	}
	return w
}

// auditGroup expels all members of a group whose head is impossible: what they would claim next is
// lost. The group ends with its last member.
func (t *topic) auditGroup(g *group) {
	if g == nil || g.opening != nil || g.broken {
		return
	}
	table := map[int]int{}
	for n, a := range g.members {
		if !slices.Contains(t.pending, a) {
			table[n] = a.slot
		}
	}
	v, ok := t.ring.AuditGroup(g.index, table)
	if ok {
		return
	}
	g.broken = true
	t.violated("group's words in shared memory are impossible: it is given up", "group", g.name, "value", uint64(v.Value), "why", v.Why)
	for _, a := range g.members {
		t.expel(a, "its group "+v.Why, v)
	}
	if len(g.members) == 0 {
		t.closeGroup(g)
	}
}

// expel ends what a's slot does to others, and tells its owner. Where that one has not come back to this broker, it
// waits to tell until it has: an earlier broker may have freed the slot, and given it to somebody else, and died before it could
// record either. Then nobody has done wrong, and the owner of the record is gone, or does not ask for the slot.
func (t *topic) expel(a *attachment, why string, v ring.Violation) {
	if a.expelled != "" {
		return
	}
	a.expelled = why
	t.ring.Expel(a.slot)
	if a.away {
		t.log.Info("a slot does not look as it was recorded: it does nothing until its client comes back, or is dead", append(a.logged(), "why", why)...)
		return
	}
	t.accuse(a, uint64(v.Value))
}

// accuse tells of an expulsion. The caller holds mu.
func (t *topic) accuse(a *attachment, value uint64) {
	t.counts.expulsions++
	t.violated("subscriber's words in shared memory are impossible: it is expelled", append(a.logged(), "value", value, "why", a.expelled,
		"note", "it wrote them itself, or another subscriber of the topic did")...)
	if client := a.client(); client != nil {
		client.notify(control.EventExpelled, control.Expelled{Attachment: a.id, Topic: t.name, Reason: a.expelled})
	}
}
