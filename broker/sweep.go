package broker

import (
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// sweep frees what the memory says is in use and nobody is recorded to hold: the earlier
// broker died between giving a slot and recording it, or in the middle of taking it back.
func (t *topic) sweep() {
	t.mu.Lock()
	var strays []*attachment
	for i, a := range t.publishers {
		if a == nil && t.ring.CondemnPublisher(i) == nil {
			strays = append(strays, t.stray(control.KindPublisher, i))
		}
	}
	strays = append(strays, t.sweepGroups()...)
	for i, a := range t.subscribers {
		if a == nil {
			t.reclaim(i)
		}
	}
	t.mu.Unlock()
	if len(strays) > 0 {
		t.log.Warn("slots that nobody is known to hold are repaired", "slots", len(strays))
		t.depart(strays, true)
	}
}

// stray makes an attachment of a slot that nobody is known to hold. The caller holds mu.
func (t *topic) stray(kind control.Kind, slot int) *attachment {
	a := &attachment{topic: t, kind: kind, name: "unknown", slot: slot, since: time.Now()}
	if kind == control.KindPublisher {
		t.publishers[slot] = a
	} else {
		t.subscribers[slot] = a
	}
	t.users++
	return a
}

// sweepGroups closes groups that are in no record, and finds members that are in none.
func (t *topic) sweepGroups() (strays []*attachment) {
	for i, g := range t.groups {
		state, err := t.ring.GroupState(i)
		if err != nil || !state.Open {
			continue
		}
		for _, m := range state.Members {
			switch {
			case g != nil && g.members[m.Member] != nil:
			case g != nil && t.subscribers[m.Slot] == nil:
				a := t.stray(control.KindMember, m.Slot)
				a.group, a.member = g, m.Member
				g.members[m.Member] = a
				strays = append(strays, a)
			default:
				t.dropMember(i, m.Member)
			}
		}
		if g != nil {
			continue
		}
		if err := t.ring.CloseGroup(i); err != nil {
			t.log.Error("a group that nobody has joined cannot be closed", "group", i, "error", err)
		}
	}
	return strays
}

// dropMember reaps a member of a group that nobody knows, or whose slot is another's.
func (t *topic) dropMember(g, member int) {
	if _, err := t.ring.ReapMember(g, member); err != nil {
		t.log.Error("a member that nobody knows cannot be reaped", "group", g, "member", member, "error", err)
	}
}
