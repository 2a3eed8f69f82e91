package ring

import (
	"strings"
	"testing"
	"time"
)

// TestAuditFindsNothingWhereNothingIsWrong: at every stage of a subscription's life.
func TestAuditFindsNothingWhereNothingIsWrong(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		must(t, r.OpenGroup(0, Latest(), never))
		configs := []SubscriberConfig{{Policy: Reliable}, {Policy: Lossy}, {Policy: Evict, EvictLag: 256}, {Policy: Evict, EvictAfter: time.Second}}
		var subs []*Subscriber
		good := func(when string) {
			t.Helper()
			for i, c := range configs {
				if v, ok := r.AuditSubscriber(i, Audited{Config: c}); !ok {
					t.Errorf("%s: %s: %+v", when, c.Policy, v)
				}
			}
			if v, ok := r.AuditSubscriber(4, Audited{Config: SubscriberConfig{Policy: GroupMember}}); !ok {
				t.Errorf("%s: member: %+v", when, v)
			}
			if v, ok := r.AuditGroup(0, map[int]int{0: 4}); !ok {
				t.Errorf("%s: group: %+v", when, v)
			}
			if bad := r.AuditUnused(func(i int) bool { return i < 5 }, func(g int) bool { return g == 0 }, func(_, m int) bool { return m == 0 }); len(bad) != 0 {
				t.Errorf("%s: %+v", when, bad)
			}
			if !r.AuditHeader() {
				t.Errorf("%s: the header", when)
			}
		}
		m := member(t, r, 0, 4)
		for i, c := range configs {
			must(t, r.AdmitSubscriber(i, c))
		}
		good("admitted")
		for i := range configs {
			s, err := r.Subscriber(i, SubscriberOptions{})
			must(t, err)
			must(t, s.Join(Latest(), never))
			subs = append(subs, s)
		}
		good("joined")
		for i := range 200 {
			must(t, p.TryPublish(message(uint64(i), i)))
			drain(t, subs[0])
			_, _ = m.Poll(1, func(Frame) error { good("in a handler"); return nil })
			drain(t, m)
			_, _ = subs[1].Poll(2, func(Frame) error { return nil })
			_, _ = subs[3].Poll(9, func(Frame) error { return nil })
		}
		good("after some laps")
		_, err := subs[2].Poll(1, nil)
		wantErr(t, err, ErrEvicted)
		good("evicted")
		for _, s := range subs {
			must(t, s.Close())
		}
		good("closed") // and not yet released: the client may be stopped there
	})
}

func TestAuditFindsWhatNoSubscriberWrites(t *testing.T) {
	r := heap(t, small(starts[1]))
	p := publisher(t, r, 0)
	s := reliable(t, r, 0)
	evicting(t, r, 1, 0, time.Second)
	lossy(t, r, 2)
	for i := range 100 {
		must(t, p.TryPublish(message(uint64(i), i)))
		drain(t, s)
		r.subscribers[1].cursor.Store(uint64(r.Tail()))
	}
	wants := []Audited{{Config: SubscriberConfig{Policy: Reliable}}, {Config: SubscriberConfig{Policy: Evict, EvictAfter: time.Second}}, {Config: SubscriberConfig{Policy: Lossy}}}
	for name, x := range map[string]struct {
		slot int
		do   func(*subscriberSlot)
	}{
		"ahead of tail":                         {0, func(s *subscriberSlot) { s.cursor.Store(uint64(r.Tail() + 64)) }},
		"lapped although it gates":              {0, func(s *subscriberSlot) { s.cursor.Store(uint64(r.Tail() - 8192)) }},
		"not a multiple":                        {1, func(s *subscriberSlot) { s.cursor.Add(1) }},
		"does not gate although it is reliable": {0, func(*subscriberSlot) { r.gating.clear(0) }},
		"does not gate although it is evict":    {1, func(*subscriberSlot) { r.gating.clear(1) }},
		"gates although it is lossy":            {2, func(*subscriberSlot) { r.gating.set(2) }},
		"another policy":                        {0, func(s *subscriberSlot) { s.policy.Store(uint64(Lossy)) }},
		"another bound":                         {1, func(s *subscriberSlot) { s.evictAfter.Store(1) }},
		"impossible state":                      {0, func(s *subscriberSlot) { s.state.Store(s.state.Load()&^subState | subFree) }},
	} {
		slot := &r.subscribers[x.slot]
		before := [...]uint64{slot.cursor.Load(), slot.state.Load(), slot.policy.Load(), slot.evictAfter.Load(), r.gating.words[0].Load()}
		if v, ok := r.AuditSubscriber(x.slot, wants[x.slot]); !ok {
			t.Fatalf("before: %+v", v)
		}
		x.do(slot)
		v, ok := r.AuditSubscriber(x.slot, wants[x.slot])
		if ok || !strings.Contains(v.Why, name) || v.Slot != x.slot || v.Group != -1 {
			t.Errorf("%s: %+v, %v", name, v, ok)
		}
		slot.cursor.Store(before[0])
		slot.state.Store(before[1])
		slot.policy.Store(before[2])
		slot.evictAfter.Store(before[3])
		r.gating.words[0].Store(before[4])
	}
}

func TestAuditClearsWhatIsNobodys(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	s := reliable(t, r, 3)
	must(t, r.OpenGroup(0, Latest(), never))
	m := member(t, r, 0, 4)
	nobody := func() []Violation {
		return r.AuditUnused(func(i int) bool { return i == 3 || i == 4 }, func(g int) bool { return g == 0 }, func(_, m int) bool { return m == 0 })
	}
	// Each holds publishers back as long as it stands.
	r.gating.set(5)
	r.openGroups.Or(1 << 1)
	r.groups[0].table[9].Store(6)
	r.groups[0].members.Or(1 << 9)
	r.subscribers[6].claim.Store(uint64(claimHeld))
	for p.TryPublish(nil) == nil {
		drain(t, s)
		drain(t, m)
	}
	if bad := nobody(); len(bad) != 3 {
		t.Errorf("%+v", bad)
	}
	for range 200 {
		must(t, p.TryPublish(nil))
		drain(t, s)
		drain(t, m)
	}
	r.gating.words[bitmapWords-1].Store(1 << 63) // beyond the slots that there are
	r.openGroups.Or(1 << 63)
	if bad := nobody(); len(bad) != 2 {
		t.Errorf("%+v", bad)
	}
	if bad := nobody(); len(bad) != 0 {
		t.Errorf("once more: %+v", bad)
	}
}

func TestAuditGroup(t *testing.T) {
	r := heap(t, small(starts[2]))
	p := publisher(t, r, 0)
	must(t, r.OpenGroup(1, Latest(), never))
	m := member(t, r, 1, 4)
	for range 70 {
		must(t, p.TryPublish(nil))
		drain(t, m)
	}
	table := map[int]int{0: 4}
	rec := &r.groups[1]
	head := rec.head.Load()
	for name, do := range map[string]func(){
		"ahead of tail":          func() { rec.head.Store(head + 64) },
		"lapped":                 func() { rec.head.Store(head - 8192) },
		"is closed":              func() { r.openGroups.And(^uint64(2)) },
		"not have its member 0":  func() { rec.members.Store(0) },
		"not have its member 0,": func() { rec.table[0].Store(5) },
	} {
		do()
		if v, ok := r.AuditGroup(1, table); ok || !strings.Contains(v.Why, strings.TrimSuffix(name, ",")) || v.Group != 1 || v.Slot != -1 {
			t.Errorf("%s: %+v, %v", name, v, ok)
		}
		rec.head.Store(head)
		if v, ok := r.AuditGroup(1, table); !ok {
			t.Errorf("after %s: %+v", name, v)
		}
	}
	// It can be taken apart, whatever was done to it.
	_, err := r.ReapMember(1, 0)
	must(t, err)
	must(t, r.CloseGroup(1))
}

func TestHeaderIsRestored(t *testing.T) {
	c := small(0)
	m := heapMemory(t, c)
	r, err := Format(m, c)
	must(t, err)
	for off := 0; off < 40; off += 8 {
		for _, by := range []func(Memory) (bool, error){
			func(Memory) (bool, error) { return !r.AuditHeader(), nil },
			func(m Memory) (bool, error) { _, restored, err := Adopt(m); return restored, err },
		} {
			r.cursors.word(uint64(off)).Add(1)
			if _, err := Attach(m); err == nil {
				t.Fatal("attached to a header that was written over")
			}
			if restored, err := by(m); err != nil || !restored {
				t.Errorf("word at %d: %v, %v", off, restored, err)
			}
			_, err := Attach(m)
			must(t, err)
		}
	}
}

// TestReliableSubscriberIsTold: when it does not gate any more, and when it was lapped although it does.
func TestReliableSubscriberIsTold(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := reliable(t, r, 1)
		poll := func() error { _, err := s.Poll(100, func(Frame) error { return nil }); return err }
		must(t, p.TryPublish(nil))
		must(t, poll())
		r.Expel(1)
		if !s.Ready() {
			t.Error("not ready to tell")
		}
		wantErr(t, poll(), ErrUngated)
		must(t, p.TryPublish(nil))
		n, err := s.Poll(100, func(Frame) error { return nil })
		if n != 1 || err != ErrUngated { // the handler has had it: it may have been overwritten meanwhile
			t.Errorf("%d frames, %v", n, err)
		}

		u := reliable(t, r, 2)
		for range 100 { // its cursor is written over
			r.subscribers[2].cursor.Store(uint64(r.Tail()))
			must(t, p.TryPublish(nil))
		}
		told := false
		for range 2 * lappedLooks {
			_, err := u.Poll(100, func(Frame) error { return nil })
			told = told || err == ErrUngated
		}
		if !told {
			t.Error("one that was lapped waits for ever")
		}
	})
}
