package ring

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A member's steps one by one, as Member.claim, work and file do them, so that a test can
// let it die behind any of them.

func (m *Member) stepIntent(start, end Position) {
	m.slot.end.Store(uint64(end))
	m.slot.claim.Store(uint64(start) | claimIntent)
}

func (m *Member) stepHead(start, end Position) bool {
	head := m.group.head.Load()
	return Position(head&^claimState) == start && m.group.head.CompareAndSwap(head, uint64(end)|m.id)
}

func (m *Member) stepHeld(start Position) { m.slot.claim.Store(uint64(start) | claimHeld) }

// collect reads everything that is left of a group through one more member.
func collect(tb testing.TB, r *Ring, slot int) []got {
	tb.Helper()
	m := member(tb, r, 0, slot)
	frames := drain(tb, m)
	must(tb, second(r.ReapMember(0, m.ID())))
	must(tb, r.ReleaseSubscriber(slot))
	return frames
}

// TestReapAtEachState: whatever a member had done of claiming a range when it died, each
// frame is delivered, and twice only if marked.
func TestReapAtEachState(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		at := func(cell int) Position { return start + Position(cell)*64 }
		for _, c := range []struct {
			name   string
			do     func(r *Ring, dead, other *Member)
			reaped Reaped
			left   string // ids and marks of what is delivered after the death
		}{
			{"idle", func(*Ring, *Member, *Member) {}, Reaped{}, "0.0 1.0 2.0 3.0"},
			{"end written", func(_ *Ring, dead, _ *Member) { dead.slot.end.Store(uint64(at(2))) }, Reaped{}, "0.0 1.0 2.0 3.0"},
			{"intent", func(_ *Ring, dead, _ *Member) { dead.stepIntent(at(0), at(2)) }, Reaped{}, "0.0 1.0 2.0 3.0"},
			{"intent, and another one won the same range", func(_ *Ring, dead, other *Member) {
				dead.stepIntent(at(0), at(2))
				if got, err := poll(t, other, 2); len(got) != 2 {
					t.Fatal(err)
				}
			}, Reaped{}, "2.0 3.0"},
			{"head moved", func(_ *Ring, dead, _ *Member) {
				dead.stepIntent(at(0), at(2))
				if !dead.stepHead(at(0), at(2)) {
					t.Fatal("head")
				}
			}, Reaped{Orphaned: true, From: at(0), To: at(2)}, "0.1 1.1 2.0 3.0"},
			{"head moved, and another one helped and moved it on", func(_ *Ring, dead, other *Member) {
				dead.stepIntent(at(0), at(2))
				dead.stepHead(at(0), at(2))
				if got, err := poll(t, other, 1); len(got) != 1 || got[0].at != at(2) {
					t.Fatal(got, err)
				}
			}, Reaped{Orphaned: true, From: at(0), To: at(2)}, "0.1 1.1 3.0"},
			{"held", func(_ *Ring, dead, _ *Member) {
				dead.stepIntent(at(0), at(3))
				dead.stepHead(at(0), at(3))
				dead.stepHeld(at(0))
			}, Reaped{Orphaned: true, From: at(0), To: at(3)}, "0.1 1.1 2.1 3.0"},
			{"one acknowledged", func(_ *Ring, dead, _ *Member) {
				dead.stepIntent(at(0), at(3))
				dead.stepHead(at(0), at(3))
				dead.stepHeld(at(1))
			}, Reaped{Orphaned: true, From: at(1), To: at(3)}, "1.1 2.1 3.0"},
			{"all acknowledged", func(_ *Ring, dead, _ *Member) {
				dead.stepIntent(at(0), at(3))
				dead.stepHead(at(0), at(3))
				dead.stepHeld(at(3))
			}, Reaped{}, "3.0"},
			{"stale intent of long ago", func(_ *Ring, dead, other *Member) {
				dead.stepIntent(at(0), at(1))
				if got, err := poll(t, other, 3); len(got) != 3 {
					t.Fatal(err)
				}
			}, Reaped{}, "3.0"},
			{"held, of a range that cannot be", func(_ *Ring, dead, _ *Member) {
				dead.slot.end.Store(uint64(at(1000)))
				dead.stepHeld(at(0))
			}, Reaped{Corrupt: true}, "0.0 1.0 2.0 3.0"},
			{"held, end off the grid", func(_ *Ring, dead, _ *Member) {
				dead.slot.end.Store(uint64(at(2)) + 8)
				dead.stepHeld(at(0))
			}, Reaped{Corrupt: true}, "0.0 1.0 2.0 3.0"},
		} {
			t.Run(c.name, func(t *testing.T) {
				r, p, ms := groupOf(t, start, 3)
				for i := range 4 {
					must(t, p.TryPublish(message(uint64(i), 8)))
				}
				dead := ms[2]
				c.do(r, dead, ms[0])
				got, err := r.ReapMember(0, 2)
				must(t, err)
				if got != c.reaped {
					t.Errorf("%+v, want %+v", got, c.reaped)
				}
				must(t, r.ReleaseSubscriber(2))
				var left []string
				for _, f := range collect(t, r, 3) {
					left = append(left, fmt.Sprintf("%d.%d", f.payload[0], f.redelivered))
				}
				if strings.Join(left, " ") != c.left {
					t.Errorf("left %v, want %s", left, c.left)
				}
				if gs, _ := r.GroupState(0); gs.Orphans != 0 || gs.Lag != 0 {
					t.Errorf("%+v", gs)
				}
				drain(t, ms[0]) // a living member is none the worse
			})
		}
	})
}

// TestDeathWhilePuttingBack: a member that dies while it files a range loses nothing; what
// is delivered twice is marked both times.
func TestDeathWhilePuttingBack(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		end := start + 2*64
		for _, c := range []struct {
			name  string
			do    func(e *orphanEntry, g *groupRecord, id uint64)
			times int // that each frame comes
		}{
			{"reserved an entry", func(e *orphanEntry, _ *groupRecord, id uint64) {
				e.word.Store(uint64(makeOrphan(orphanFilling, id, 1, 1)))
			}, 1},
			{"wrote the range", func(e *orphanEntry, _ *groupRecord, id uint64) {
				e.word.Store(uint64(makeOrphan(orphanFilling, id, 1, 1)))
				e.start.Store(uint64(start))
				e.end.Store(uint64(end))
			}, 1},
			{"set the bit", func(e *orphanEntry, g *groupRecord, id uint64) {
				e.word.Store(uint64(makeOrphan(orphanFilling, id, 1, 1)))
				e.start.Store(uint64(start))
				e.end.Store(uint64(end))
				g.orphans.Or(1)
			}, 1},
			{"offered it", func(e *orphanEntry, g *groupRecord, id uint64) {
				e.start.Store(uint64(start))
				e.end.Store(uint64(end))
				e.word.Store(uint64(makeOrphan(orphanOffered, id, 1, 2)))
				g.orphans.Or(1)
			}, 2},
		} {
			r, p, ms := groupOf(t, start, 2)
			for i := range 2 {
				must(t, p.TryPublish(message(uint64(i), 8)))
			}
			dead := ms[1]
			dead.stepIntent(start, end)
			dead.stepHead(start, end)
			dead.stepHeld(start)
			c.do(&r.groups[0].entries[0], &r.groups[0], dead.id)
			got, err := r.ReapMember(0, 1)
			must(t, err)
			if want := (Reaped{Orphaned: true, From: start, To: end}); got != want {
				t.Errorf("%s: %+v, want %+v", c.name, got, want)
			}
			frames := drain(t, ms[0])
			if len(frames) != 2*c.times {
				t.Errorf("%s: %d frames, want %d", c.name, len(frames), 2*c.times)
			}
			for _, f := range frames {
				if f.redelivered != 1 {
					t.Errorf("%s: %+v", c.name, f)
				}
			}
			if g := &r.groups[0]; g.orphans.Load() != 0 || orphanWord(g.entries[0].word.Load()).state() != orphanFree {
				t.Errorf("%s: entry not free", c.name)
			}
		}
	})
}

// TestAdopterDies: a range that was taken over is offered once more, and counted, as often
// as it takes.
func TestAdopterDies(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, ms := groupOf(t, start, 2)
		for i := range 3 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		_, err := ms[0].Poll(3, func(Frame) error { return errors.New("refused") })
		if err == nil {
			t.Fatal("no error")
		}
		for round := range uint16(4) {
			dead := member(t, r, 0, 2)
			if !dead.adopt() {
				t.Fatal("nothing to adopt")
			}
			if ms[1].offered() {
				t.Error("offers a range that another one has taken")
			}
			if n := fill(t, p, 0); round == 0 && n != 61 || round > 0 && n != 0 {
				t.Errorf("round %d: room for %d: the range must gate", round, n)
			}
			if round == 3 { // this one gets somewhere
				r.groups[0].entries[0].start.Store(uint64(start + 64))
			}
			got, err := r.ReapMember(0, dead.ID())
			must(t, err)
			if want := (Reaped{Offered: 1}); got != want {
				t.Errorf("%+v", got)
			}
			must(t, r.ReleaseSubscriber(2))
		}
		frames := drain(t, ms[1])
		if len(frames) != 2+61 || frames[0].redelivered != 5 || frames[1].redelivered != 1 || frames[0].at != start+64 || frames[2].redelivered != 0 {
			t.Errorf("%+v", frames[:3])
		}
	})
}

// TestAdopterDiesFinished: one that died between the two steps of freeing an entry had
// finished it.
func TestAdopterDiesFinished(t *testing.T) {
	r, p, ms := groupOf(t, 0, 2)
	must(t, p.TryPublish(nil))
	_, _ = ms[0].Poll(1, func(Frame) error { return errors.New("refused") })
	if !ms[1].adopt() {
		t.Fatal("nothing to adopt")
	}
	r.groups[0].orphans.And(^uint64(1))
	got, err := r.ReapMember(0, 1)
	must(t, err)
	if got != (Reaped{}) || len(drain(t, ms[0])) != 0 || orphanWord(r.groups[0].entries[0].word.Load()).state() != orphanFree {
		t.Errorf("%+v", got)
	}
}

// TestReapWithoutAFreeEntry fails and can be repeated; the range gates meanwhile.
func TestReapWithoutAFreeEntry(t *testing.T) {
	r, p, ms := groupOf(t, 0, 2)
	for i := range 4 {
		must(t, p.TryPublish(message(uint64(i), 8)))
	}
	ms[0].stepIntent(0, 128)
	ms[0].stepHead(0, 128)
	ms[0].stepHeld(0)
	for i := range r.groups[0].entries {
		// Some living member's, that is about to finish.
		r.groups[0].entries[i].word.Store(uint64(makeOrphan(orphanTaken, 1, 1, 0)))
	}
	r.groups[0].orphans.Store(1<<64 - 1)
	for range 2 {
		_, err := r.ReapMember(0, 0)
		if !errors.Is(err, ErrFull) || !strings.HasSuffix(err.Error(), "group 0 has 64 orphaned ranges") {
			t.Fatal(err)
		}
		if gs, _ := r.GroupState(0); gs.Lag != 256 || len(gs.Members) != 2 {
			t.Errorf("%+v", gs)
		}
	}
	r.groups[0].release(17)
	got, err := r.ReapMember(0, 0)
	must(t, err)
	if want := (Reaped{Orphaned: true, To: 128}); got != want {
		t.Errorf("%+v", got)
	}
}

// TestReapWithBadTable: the member goes, and what it had taken over is offered.
func TestReapWithBadTable(t *testing.T) {
	r, p, ms := groupOf(t, 0, 2)
	must(t, p.TryPublish(nil))
	_, _ = ms[0].Poll(1, func(Frame) error { return errors.New("refused") })
	if !ms[1].adopt() {
		t.Fatal("nothing to adopt")
	}
	r.groups[0].table[1].Store(1 << 63)
	got, err := r.ReapMember(0, 1)
	must(t, err)
	if want := (Reaped{Offered: 1, Corrupt: true}); got != want {
		t.Errorf("%+v", got)
	}
	if got := drain(t, ms[0]); len(got) != 1 || got[0].redelivered != 2 {
		t.Errorf("%+v", got)
	}
}

// TestHelpSparesStrangers: the member that moved the head last may be gone, and its slot
// in another group, with a claim that ends where our head stands.
func TestHelpSparesStrangers(t *testing.T) {
	r, p, ms := groupOf(t, 0, 2)
	must(t, r.OpenGroup(1, Latest(), never))
	for i := range 4 {
		must(t, p.TryPublish(message(uint64(i), 8)))
	}
	if got, err := poll(t, ms[0], 2); len(got) != 2 { // the head is at cell 2, by member 0
		t.Fatal(err)
	}
	must(t, second(r.ReapMember(0, 0)))
	must(t, r.ReleaseSubscriber(0))
	stranger := member(t, r, 1, 0)
	stranger.stepIntent(64, 128)
	if got := drain(t, ms[1]); len(got) != 2 {
		t.Errorf("%d frames", len(got))
	}
	if word := stranger.slot.claim.Load(); word != 64|claimIntent {
		t.Errorf("a member of another group was made to hold a range: %#x", word)
	}
}

func TestDeadLetters(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, ms := groupOf(t, start, 2)
		for i := range 5 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		refuse := errors.New("refused")
		deliver := func(want string) {
			t.Helper()
			n, err := ms[0].Poll(5, func(f Frame) error {
				if got := fmt.Sprintf("%d.%d", f.Payload[0], f.Redelivered); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				return refuse
			})
			if n != 0 || err != refuse {
				t.Fatal(n, err)
			}
		}
		bury := func(most int, result error, want ...string) {
			t.Helper()
			var letters []string
			n, err := r.DeadLetters(0, most, func(f Frame) error {
				letters = append(letters, fmt.Sprintf("%d.%d", f.Payload[0], f.Redelivered))
				return result
			})
			finished := len(want)
			if refused(result) {
				finished = 0
				wantErr(t, err, result)
			} else {
				must(t, err)
			}
			if n != finished || strings.Join(letters, " ") != strings.Join(want, " ") {
				t.Errorf("%d letters: %v, want %v", n, letters, want)
			}
		}
		deliver("0.0")
		bury(1, nil)
		deliver("0.1")
		bury(2, nil)
		bury(1, refuse, "0.2") // it stays
		bury(1, nil, "0.2")
		bury(1, nil) // what stood behind it has been handed out once at most
		deliver("1.1")
		bury(1, ErrStop, "1.2")
		if n := fill(t, p, 0); n != 61 {
			t.Errorf("room for %d: letters make room, the others do not", n)
		}
		// It is found behind padding too, and the last one frees the entry.
		for _, id := range []string{"2", "3", "4"} {
			deliver(id + ".1")
			bury(1, nil, id+".2")
		}
		if gs, _ := r.GroupState(0); gs.Orphans != 0 {
			t.Errorf("%+v", gs)
		}
		if got := append(drain(t, ms[0]), drain(t, ms[1])...); len(got) != 61 {
			t.Errorf("%d frames left", len(got))
		}
	})
}

// TestDeadLettersSpareWhatIsNotThere: an entry without its bit is one that a member still
// writes; one that a member has taken is that member's.
func TestDeadLettersSpareWhatIsNotThere(t *testing.T) {
	r, p, ms := groupOf(t, 0, 2)
	must(t, p.TryPublish(nil))
	_, _ = ms[0].Poll(1, func(Frame) error { return errors.New("refused") })
	fn := func(Frame) error { t.Error("handed out"); return nil }
	r.groups[0].orphans.Store(0)
	if n, err := r.DeadLetters(0, 0, fn); n != 0 || err != nil {
		t.Error(n, err)
	}
	r.groups[0].orphans.Store(1)
	if !ms[1].adopt() {
		t.Fatal("nothing to adopt")
	}
	if n, err := r.DeadLetters(0, 0, fn); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestBrokerDiesBurying: its successor offers what it had taken, and frees what it had reserved.
func TestBrokerDiesBurying(t *testing.T) {
	for _, by := range []string{"DeadLetters", "ReapMember"} {
		r, p, ms := groupOf(t, 0, 2)
		must(t, p.TryPublish(nil))
		_, _ = ms[0].Poll(1, func(Frame) error { return errors.New("refused") })
		func() {
			defer func() { _ = recover() }()
			_, _ = r.DeadLetters(0, 0, func(Frame) error { panic("killed") })
		}()
		r.groups[0].entries[5].word.Store(uint64(makeOrphan(orphanFilling, MaxMembers, 1, 0)))
		if ms[0].Ready() {
			t.Fatal("offered although the broker had taken it")
		}
		if by == "DeadLetters" {
			must(t, second(r.DeadLetters(0, 100, nil)))
		} else {
			must(t, second(r.ReapMember(0, 1)))
		}
		if got := drain(t, ms[0]); len(got) != 1 || got[0].redelivered != 2 {
			t.Errorf("%s: %+v", by, got)
		}
		for i := range r.groups[0].entries {
			if w := orphanWord(r.groups[0].entries[i].word.Load()); w.state() != orphanFree {
				t.Errorf("%s: entry %d is in state %d", by, i, w.state())
			}
		}
	}
}

// TestCorruptOrphans: a range that cannot be is reported once, and dropped.
func TestCorruptOrphans(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for name, rng := range map[string][2]Position{
			"ahead of tail": {start, start + 64000}, "empty": {start, start}, "backwards": {start + 64, start},
			"off the grid": {start + 1, start + 64}, "too old": {start - 64000, start + 64}, "far": {start - 1<<62, start + 64},
		} {
			for _, by := range []string{"member", "broker"} {
				r, p, ms := groupOf(t, start, 1)
				must(t, p.TryPublish(nil))
				if !r.groups[0].file(uint64(rng[0]), uint64(rng[1]), 9, MaxMembers) {
					t.Fatal("no entry")
				}
				var err error
				if by == "member" {
					_, err = poll(t, ms[0], 5)
				} else {
					_, err = r.DeadLetters(0, 0, func(Frame) error { t.Error("handed out"); return nil })
				}
				wantErr(t, err, ErrCorrupt)
				if got := drain(t, ms[0]); len(got) != 1 || r.groups[0].orphans.Load() != 0 {
					t.Errorf("%s, met by the %s: then %d frames", name, by, len(got))
				}
			}
		}
	})
}

// TestOrphanWord packs without loss, and its count stops where it is full.
func TestOrphanWord(t *testing.T) {
	w := makeOrphan(orphanTaken, 64, 0xabcd, 0xffffffff)
	if w != 0xffffffff_abcd_40_02 || w.state() != orphanTaken || w.owner() != 64 || w.count() != 0xabcd || w.generation() != 0xffffffff {
		t.Errorf("%#x", uint64(w))
	}
	if n := w.next(orphanFree, 0, 0); n != 0 {
		t.Errorf("%#x after the last generation", uint64(n))
	}
	if oneMore(0) != 1 || oneMore(65534) != 65535 || oneMore(65535) != 65535 {
		t.Error("oneMore")
	}
}
