package ring

import (
	"fmt"
	"math/bits"
)

// Auditing: the broker's look at memory that any subscriber can write. Publishers and the
// broker never believe it, but a value that is possible and wrong can hold publishers back in the name
// of nobody. What belongs to nobody is cleared; whose words are impossible is for the broker to
// expel. Like the rest of the broker's side, one goroutine of one process at a time may call these.

// An Audited is what the broker knows of a subscriber slot that is in use.
type Audited struct {
	Config SubscriberConfig
	// Group and Member are numbers for members, whose policy is GroupMember.
	Group, Member int
}

// AuditSubscriber looks for what no correct owner of subscriber slot i writes, and says what it is; ok
// means that there is nothing. Value is the word that is wrong. It changes nothing.
func (r *Ring) AuditSubscriber(i int, want Audited) (v Violation, ok bool) {
	if i < 0 || i >= len(r.subscribers) {
		return Violation{}, true
	}
	s := &r.subscribers[i]
	before := r.Tail()
	word, cursor, claim := s.state.Load(), Position(s.cursor.Load()), s.claim.Load()
	gates := r.gating.has(i)
	v = Violation{Slot: i, Group: -1}
	found := func(value uint64, why string) (Violation, bool) {
		v.Value, v.Why = Position(value), why
		return v, s.state.Load() != word // somebody has evicted it while we looked
	}
	switch state := word & subState; {
	case state == subFree || state > subLeft || state == subEvicted && want.Config.Policy != Evict:
		return found(word, "impossible state")
	case Policy(s.policy.Load()) != want.Config.Policy:
		return found(s.policy.Load(), "another policy than it was given")
	case s.evictAfter.Load() != uint64(want.Config.EvictAfter):
		return found(s.evictAfter.Load(), "another bound on stalls than it was given")
	case want.Config.Policy == GroupMember:
		if claim&claimState == claimHeld {
			if why := r.impossible(before, Position(claim&^claimState)); why != "" && s.claim.Load() == claim {
				return found(claim, "claim "+why)
			}
		}
	case want.Config.Policy == Lossy && gates:
		return found(uint64(cursor), "gates although it is lossy")
	case state == subJoined && want.Config.Policy != Lossy && !gates:
		return found(uint64(cursor), "does not gate although it is "+want.Config.Policy.String())
	case state == subJoined && gates:
		if why := r.impossible(before, cursor); why != "" {
			return found(uint64(cursor), why)
		}
	}
	return Violation{}, true
}

// Expel ends the gating of subscriber slot i, whose owner keeps it and is told by ErrUngated, or by
// a gap. Ring both doorbells afterwards.
func (r *Ring) Expel(i int) {
	if i >= 0 && i < len(r.subscribers) {
		r.gating.clear(i)
	}
}

// AuditUnused clears what holds publishers back in the name of nobody: subscriber slots, groups and
// members that are not in use by what the broker knows. It returns what it found.
func (r *Ring) AuditUnused(slot func(i int) bool, group func(g int) bool, member func(g, m int) bool) (bad []Violation) {
	for w := range r.gating.words {
		for set := r.gating.words[w].Load(); set != 0; set &= set - 1 {
			i := w*64 + bits.TrailingZeros64(set)
			if i < len(r.subscribers) && slot(i) {
				continue
			}
			r.gating.words[w].And(^(set & -set))
			bad = append(bad, Violation{Slot: i, Group: -1, Why: "gates although nobody has the slot"})
		}
	}
	for set := r.openGroups.Load(); set != 0; set &= set - 1 {
		g := bits.TrailingZeros64(set)
		if g >= len(r.groups) || !group(g) {
			r.openGroups.And(^(set & -set))
			bad = append(bad, Violation{Slot: -1, Group: g, Why: "is open although nobody has opened it"})
			continue
		}
		rec := &r.groups[g]
		for members := rec.members.Load(); members != 0; members &= members - 1 {
			if m := bits.TrailingZeros64(members); !member(g, m) {
				rec.members.And(^(members & -members))
				bad = append(bad, Violation{Slot: -1, Group: g, Why: fmt.Sprintf("has a member %d that nobody is", m)})
			}
		}
	}
	return bad
}

// AuditGroup looks for what no correct member of group g, which is in use, writes to its head; ok means
// that there is nothing. table says which slot each of its members has; what the broker wrote itself of that is
// put right.
func (r *Ring) AuditGroup(g int, table map[int]int) (v Violation, ok bool) {
	if g < 0 || g >= len(r.groups) {
		return Violation{}, true
	}
	rec := &r.groups[g]
	v = Violation{Slot: -1, Group: g}
	before := r.Tail()
	head := rec.head.Load()
	v.Value = Position(head &^ claimState)
	if r.openGroups.Load()&(1<<g) == 0 {
		v.Why = "is closed although it is in use"
		r.openGroups.Or(1 << g) // so that it can be closed, and its members reaped
	}
	for m, slot := range table {
		if rec.members.Load()&(1<<m) == 0 || rec.table[m].Load() != uint64(slot) {
			v.Why = fmt.Sprintf("does not have its member %d", m)
			rec.table[m].Store(uint64(slot))
			rec.members.Or(1 << m)
		}
	}
	if v.Why == "" {
		v.Why = r.impossible(before, v.Value)
	}
	return v, v.Why == ""
}

// AuditHeader restores the header of the cursors memory, without which nobody can attach. It is
// false if there was something to restore.
func (r *Ring) AuditHeader() bool {
	return restoreCursors(r.cursors.cursorsHeader(), r.cfg)
}

func restoreCursors(k *cursorsHeader, c Config) bool {
	if checkCursors(k, c) == nil {
		return true
	}
	id := idWords(c.TopicID)
	k.topicID[0].Store(id[0])
	k.topicID[1].Store(id[1])
	k.subscribers.Store(uint64(c.Subscribers))
	k.groups.Store(uint64(c.Groups))
	k.magic.Store(cursorsMagic)
	return false
}

// Adopt is Attach for a broker that takes over a ring which an earlier one made: what subscribers
// can write does not keep it out. restored says that the header of the cursors memory was written over.
func Adopt(m Memory) (r *Ring, restored bool, err error) {
	return attach(m, func(k *cursorsHeader, c Config) (bool, error) { return !restoreCursors(k, c), nil })
}
