package ring

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// groupOf is a ring with an open group of n members, in subscriber slots 0 to n-1.
func groupOf(tb testing.TB, start Position, n int) (*Ring, *Publisher, []*Member) {
	tb.Helper()
	c := small(start)
	c.Subscribers = max(n, 4)
	r := heap(tb, c)
	p := publisher(tb, r, 0)
	must(tb, r.OpenGroup(0, Latest(), never))
	ms := make([]*Member, n)
	for i := range ms {
		ms[i] = member(tb, r, 0, i)
		if ms[i].ID() != i {
			tb.Fatalf("member %d is number %d", i, ms[i].ID())
		}
	}
	return r, p, ms
}

func TestGroupEachFrameToOneMember(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, ms := groupOf(t, start, 3)
		other := reliable(t, r, 3)
		must(t, r.OpenGroup(1, Latest(), never))
		sent := 0
		owner := map[string]int{}
		last := []Position{start, start, start}
		for round := range 400 {
			for p.TryPublish(message(uint64(sent), 8+sent%90)) == nil {
				sent++
			}
			drain(t, other)
			m := (round*7 + round/3) % 3
			got, err := poll(t, ms[m], 1+round%5)
			must(t, err)
			for _, f := range got {
				if before, twice := owner[f.payload]; twice {
					t.Fatalf("frame at %d to members %d and %d", f.at, before, m)
				}
				owner[f.payload] = m
				if f.redelivered != 0 {
					t.Fatalf("frame at %d is marked %d", f.at, f.redelivered)
				}
				if f.at.Before(last[m]) {
					t.Fatalf("member %d got %d after %d", m, f.at, last[m])
				}
				last[m] = f.at
			}
			if round == 200 {
				must(t, r.CloseGroup(1)) // it gated, without a member, until now
			}
		}
		for _, m := range ms {
			for _, f := range drain(t, m) {
				owner[f.payload] = m.ID()
			}
		}
		if len(owner) != sent || sent < 500 {
			t.Errorf("%d frames delivered of %d", len(owner), sent)
		}
	})
}

// TestGroupGatingIsExact: the group holds publishers at the lowest of its head and of what its
// members work on, with and without members.
func TestGroupGatingIsExact(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, ms := groupOf(t, start, 2)
		if n := fill(t, p, 0); n != 64 {
			t.Fatalf("%d frames fit", n)
		}
		inside := 0
		_, err := ms[0].Poll(3, func(Frame) error { // cells 0, 1, 2
			// What is acknowledged makes room, what is not does not; others go on.
			if n := fill(t, p, 0); inside == 0 && n != 0 || inside > 0 && n != 1 {
				t.Errorf("in frame %d: room for %d", inside, n)
			}
			if got, err := poll(t, ms[1], 2); len(got) != 2 || err != nil {
				t.Errorf("the other member: %d, %v", len(got), err)
			}
			if n := fill(t, p, 0); n != 0 {
				t.Errorf("in frame %d: room for %d more", inside, n)
			}
			inside++
			return nil
		})
		must(t, err)
		// The claims ended at cells 3, 5, 7, 9: all of that is finished now, and two
		// cells were filled again meanwhile.
		if n := fill(t, p, 0); n != 7 {
			t.Errorf("room for %d after the poll, want 7", n)
		}
		if len(drain(t, ms[1])) != 64 {
			t.Error("not all there")
		}
		if n := fill(t, p, 0); n != 64 {
			t.Errorf("room for %d when all is finished", n)
		}
		// A group without members gates as well, until it is closed.
		for _, m := range ms {
			must(t, m.Close())
			must(t, second(r.ReapMember(0, m.ID())))
		}
		wantErr(t, p.TryPublish(nil), ErrBackpressure)
		must(t, r.CloseGroup(0))
		for range 200 {
			must(t, p.TryPublish(nil))
		}
	})
}

func TestGroupStarts(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, c := range []struct {
			from   Start
			frames int
		}{{Latest(), 0}, {Earliest(), 6}, {At(start), 6}, {At(start + 64), 5}, {At(start + 5*64), 1}, {At(start + 6*64), 0}} {
			r := heap(t, small(start))
			p := publisher(t, r, 0)
			reliable(t, r, 7)
			must(t, p.TryPublish(nil))
			if n, err := p.TryPublishBatch(batchOf(5, 0)); n != 5 {
				t.Fatal(err)
			}
			must(t, r.OpenGroup(1, c.from, never))
			m := member(t, r, 1, 0)
			if got := drain(t, m); len(got) != c.frames {
				t.Errorf("from %v: %d frames, want %d", c.from, len(got), c.frames)
			}
			must(t, p.TryPublish([]byte("next")))
			if got := drain(t, m); len(got) != 1 || got[0].payload != "next" {
				t.Errorf("from %v: then %v", c.from, got)
			}
		}
	})
}

// TestOpenGroupFails: a group that could not be opened gates nobody.
func TestOpenGroupFails(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	r.publishers[0].counter.Begin()
	stop := errors.New("enough")
	wantErr(t, r.OpenGroup(0, Earliest(), func() error { return stop }), stop)
	r.publishers[0].counter.End()
	wantErr(t, r.OpenGroup(0, At(64), never), ErrConfig)
	for range 200 {
		must(t, p.TryPublish(nil))
	}
	if gs, _ := r.GroupState(0); gs.Open {
		t.Error("it is open")
	}
	must(t, r.OpenGroup(0, Latest(), never))
}

func TestGroupRefusals(t *testing.T) {
	c := small(0)
	c.Subscribers = 70
	r := heap(t, c)
	for _, g := range []int{-1, 2, 1 << 40} {
		wantErr(t, r.OpenGroup(g, Latest(), never), ErrSlot)
	}
	for _, g := range []int{-1, 0, 2} {
		wantErr(t, r.CloseGroup(g), ErrSlot)
		wantErr(t, second(r.AdmitMember(g, 0)), ErrSlot)
		wantErr(t, second(r.Member(g, 0, SubscriberOptions{})), ErrSlot)
		wantErr(t, second(r.ReapMember(g, 0)), ErrSlot)
		wantErr(t, second(r.DeadLetters(g, 0, nil)), ErrSlot)
	}
	must(t, r.OpenGroup(0, Latest(), never))
	wantErr(t, r.OpenGroup(0, Latest(), never), ErrSlot)
	wantErr(t, second(r.AdmitMember(0, -1)), ErrSlot)
	wantErr(t, second(r.AdmitMember(0, 70)), ErrSlot)
	for i := range 64 {
		if id, err := r.AdmitMember(0, i); id != i || err != nil {
			t.Fatal(id, err)
		}
	}
	_, err := r.AdmitMember(0, 64)
	if !errors.Is(err, ErrFull) || !strings.HasSuffix(err.Error(), "group 0 has 64 members") {
		t.Error(err)
	}
	wantErr(t, second(r.AdmitMember(0, 5)), ErrFull)
	if err := r.CloseGroup(0); !errors.Is(err, ErrSlot) || !strings.HasSuffix(err.Error(), "group 0 still has 64 members") {
		t.Error(err)
	}
	must(t, second(r.ReapMember(0, 7)))
	wantErr(t, second(r.ReapMember(0, 7)), ErrSlot)
	wantErr(t, second(r.AdmitMember(0, 5)), ErrSlot) // the subscriber slot is in use
	if id, err := r.AdmitMember(0, 64); id != 7 || err != nil {
		t.Error(id, err)
	}
	for _, m := range []int{-1, 64, 1 << 40} {
		wantErr(t, second(r.Member(0, m, SubscriberOptions{})), ErrSlot)
		wantErr(t, second(r.ReapMember(0, m)), ErrSlot)
	}
	r.groups[0].table[3].Store(70)
	if _, err := r.Member(0, 3, SubscriberOptions{}); !errors.Is(err, ErrCorrupt) || !strings.HasSuffix(err.Error(), "member 3 of group 0 has subscriber slot 70 of 70") {
		t.Error(err)
	}
}

// TestSixtyFourMembers: the highest member number is as good as the lowest.
func TestSixtyFourMembers(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		_, p, ms := groupOf(t, start, 64)
		seen := 0
		for round := range 3 {
			fill(t, p, 0)
			for i := range ms {
				got, err := poll(t, ms[(i*31+round)%64], 1)
				must(t, err)
				seen += len(got)
			}
		}
		if seen != 3*64 {
			t.Errorf("%d frames", seen)
		}
	})
}

func TestMemberClose(t *testing.T) {
	_, p, ms := groupOf(t, 0, 1)
	must(t, p.TryPublish(nil))
	must(t, ms[0].Close())
	wantErr(t, ms[0].Close(), ErrClosed)
	if _, err := ms[0].Poll(1, nil); err != ErrClosed || !ms[0].Ready() {
		t.Errorf("%v, ready %v", err, ms[0].Ready())
	}
}

// TestRefusedFrameGoesToAnotherMember, marked; what stood behind it as well, marked once
// at most; and what was acknowledged before it does not.
func TestRefusedFrameGoesToAnotherMember(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		_, p, ms := groupOf(t, start, 2)
		for i := range 6 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		refuse := errors.New("refused")
		n, err := ms[0].Poll(4, func(f Frame) error { // 0 to 3
			if string(f.Payload) == string(message(1, 8)) {
				return refuse
			}
			return nil
		})
		if n != 1 || err != refuse {
			t.Fatal(n, err)
		}
		for round := range uint16(3) {
			m := ms[1-int(round)%2]
			if !m.Ready() {
				t.Error("not ready although a range is offered")
			}
			_, err = m.Poll(4, func(f Frame) error {
				if string(f.Payload) != string(message(1, 8)) || f.Redelivered != round+1 {
					t.Errorf("frame at %d marked %d in round %d", f.Position, f.Redelivered, round)
				}
				return refuse
			})
			wantErr(t, err, refuse)
		}
		got, err := poll(t, ms[1], 2)
		must(t, err)
		want := []uint16{4, 1}
		for i, f := range got {
			if f.payload != string(message(uint64(1+i), 8)) || f.redelivered != want[i] {
				t.Errorf("%+v", f)
			}
		}
		got = append(drain(t, ms[0]), drain(t, ms[1])...)
		if len(got) != 3 || got[0].redelivered != 1 || got[1].redelivered != 0 || got[2].redelivered != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestStoppedPollPutsBackUnmarked: frames that were never handed out are not redelivered.
func TestStoppedPollPutsBackUnmarked(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		_, p, ms := groupOf(t, start, 2)
		for i := range 5 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		n, err := ms[0].Poll(5, func(Frame) error { return ErrStop })
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		n, err = ms[1].Poll(5, func(Frame) error { return ErrStop }) // of the orphaned range
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		got := drain(t, ms[0])
		for i, f := range got {
			if f.payload != string(message(uint64(2+i), 8)) || f.redelivered != 0 {
				t.Errorf("%+v", f)
			}
		}
		if len(got) != 3 {
			t.Errorf("%d frames", len(got))
		}
	})
}

// TestOrphanByTheLimit: a range larger than a Poll's limit is worked on in pieces, by whoever comes.
func TestOrphanByTheLimit(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, ms := groupOf(t, start, 3)
		for i := range 10 {
			must(t, p.TryPublish(message(uint64(i), 8)))
			c, err := p.Claim(60)
			must(t, err)
			must(t, c.Abort())
		}
		refuse := errors.New("refused")
		if _, err := ms[0].Poll(10, func(Frame) error { return refuse }); err != refuse {
			t.Fatal(err)
		}
		next := uint64(0)
		for round := 0; next < 10; round++ {
			got, err := poll(t, ms[1+round%2], 3)
			must(t, err)
			if len(got) == 0 || len(got) > 3 {
				t.Fatalf("%d frames", len(got))
			}
			for _, f := range got {
				if f.payload != string(message(next, 8)) || f.redelivered != 1 {
					t.Fatalf("%+v, want frame %d", f, next)
				}
				next++
			}
		}
		gs, err := r.GroupState(0)
		must(t, err)
		if gs.Orphans != 0 || gs.Lag != 128 || gs.Redelivered != 4 {
			t.Errorf("%+v", gs) // the lag is the last padding, behind the last frame that was claimed
		}
	})
}

// TestEveryEntryTaken: who cannot put its rest back keeps it, at the front of its next
// Poll, whatever that Poll's limit, and counts how often.
func TestEveryEntryTaken(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, ms := groupOf(t, start, 2)
		g := &r.groups[0]
		for i := range g.entries {
			g.entries[i].word.Store(uint64(makeOrphan(orphanFilling, MaxMembers, 0, 0)))
		}
		for i := range 5 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		refuse := errors.New("refused")
		for round := range uint16(3) {
			n, err := ms[0].Poll(4, func(f Frame) error {
				if f.Redelivered != round {
					t.Errorf("round %d: marked %d", round, f.Redelivered)
				}
				return refuse
			})
			if n != 0 || err != refuse {
				t.Fatal(n, err)
			}
		}
		if !ms[0].Ready() {
			t.Error("not ready with a claim of its own")
		}
		if got := drain(t, ms[1]); len(got) != 1 || got[0].payload != string(message(4, 8)) {
			t.Errorf("the other member got %v", got)
		}
		if n := fill(t, p, 0); n != 59 {
			t.Errorf("room for %d, want 59: the claim gates", n)
		}
		drain(t, ms[1])
		for i := range uint64(4) {
			got, err := poll(t, ms[0], 1)
			must(t, err)
			want := uint16(1)
			if i == 0 {
				want = 3
			}
			if len(got) != 1 || got[0].payload != string(message(i, 8)) || got[0].redelivered != want {
				t.Fatalf("frame %d: %+v", i, got)
			}
		}
		if n := fill(t, p, 0); n != 64 {
			t.Errorf("room for %d when all is finished", n)
		}
	})
}

// TestMemberPanics: what the handler panicked on comes again, marked, with the rest.
func TestMemberPanics(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, orphaned := range []bool{false, true} {
			r, p, ms := groupOf(t, start, 2)
			for i := range 5 {
				must(t, p.TryPublish(message(uint64(i), 8)))
			}
			mark := uint16(0)
			if orphaned {
				_, err := ms[1].Poll(5, func(Frame) error { return errors.New("refused") })
				if err == nil {
					t.Fatal("no error")
				}
				mark = 1
			}
			panicOn := func(id uint64, mark uint16) {
				t.Helper()
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				_, _ = ms[0].Poll(5, func(f Frame) error {
					if string(f.Payload) == string(message(id, 8)) {
						if f.Redelivered != mark {
							t.Errorf("frame %d marked %d, want %d", id, f.Redelivered, mark)
						}
						panic("handler")
					}
					return nil
				})
			}
			panicOn(0, mark)
			if !ms[0].Ready() {
				t.Error("not ready after the panic")
			}
			if n := fill(t, p, 0); n != 59 {
				t.Errorf("room for %d: what the handler did not finish must gate", n)
			}
			panicOn(0, mark+1)
			panicOn(2, 1)
			panicOn(2, 2)
			got, err := poll(t, ms[0], 2)
			must(t, err)
			if len(got) != 2 || got[0].payload != string(message(2, 8)) || got[0].redelivered != 3 || got[1].redelivered != 1 {
				t.Errorf("%+v", got)
			}
			rest := append(drain(t, ms[0]), drain(t, ms[1])...)
			if len(rest) != 60 || rest[0].payload != string(message(4, 8)) || rest[0].redelivered != 1 {
				t.Errorf("%d frames, first %+v", len(rest), rest[0])
			}
			if gs, _ := r.GroupState(0); gs.Orphans != 0 || gs.Lag != 0 {
				t.Errorf("%+v", gs)
			}
		}
	})
}

// TestPeersAreWoken: members that sleep learn of what is put back, and publishers of the
// room that there is.
func TestPeersAreWoken(t *testing.T) {
	for _, c := range []struct {
		name        string
		handler     func(Frame) error
		limit       int
		peers, room int
	}{
		{"all done", func(Frame) error { return nil }, 3, 0, 1},
		{"refused", func(Frame) error { return fmt.Errorf("no") }, 3, 1, 1},
		{"stopped", func(Frame) error { return ErrStop }, 3, 1, 1},
		{"stopped at the end", func(Frame) error { return ErrStop }, 1, 0, 1},
	} {
		for _, orphaned := range []bool{false, true} {
			r := heap(t, small(0))
			p := publisher(t, r, 0)
			must(t, r.OpenGroup(0, Latest(), never))
			for i := range 2 {
				if _, err := r.AdmitMember(0, i); err != nil {
					t.Fatal(err)
				}
			}
			peers, room := &counter{}, &counter{}
			m, err := r.Member(0, 0, SubscriberOptions{Doorbell: room, Peers: peers})
			must(t, err)
			limit := c.limit
			if orphaned {
				other, err := r.Member(0, 1, SubscriberOptions{})
				must(t, err)
				for range c.limit {
					must(t, p.TryPublish(nil))
				}
				_, _ = other.Poll(c.limit, func(Frame) error { return errors.New("no") })
			} else {
				for range c.limit {
					must(t, p.TryPublish(nil))
				}
			}
			r.sleepers.Store(2)
			r.roomSleepers.Store(2)
			_, _ = m.Poll(limit, c.handler)
			if peers.n != c.peers || room.n != c.room {
				t.Errorf("%s, orphaned %v: %d and %d rings, want %d and %d", c.name, orphaned, peers.n, room.n, c.peers, c.room)
			}
		}
	}
}

// TestPatientPublishersAndGroups: of all members' claims the one that is furthest behind decides.
func TestPatientPublishersAndGroups(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	must(t, r.OpenGroup(0, Latest(), never))
	bell := &counter{}
	var members [2]*Member
	for i := range members {
		if _, err := r.AdmitMember(0, i); err != nil {
			t.Fatal(err)
		}
		m, err := r.Member(0, i, SubscriberOptions{Doorbell: bell})
		must(t, err)
		members[i] = m
	}
	fill(t, p, 0)
	half := MinCapacity / CellSize / 2
	_, err := members[0].Poll(1, func(Frame) error { // and while this one works, the other reads all
		r.roomPatient.Store(1)
		for range 2 * half {
			_, err := members[1].Poll(1, func(Frame) error { return nil })
			must(t, err)
		}
		if bell.n != 0 {
			t.Errorf("%d rings though the first frame is not finished", bell.n)
		}
		return nil
	})
	must(t, err)
	if bell.n != 1 || r.roomPatient.Load() != 0 {
		t.Errorf("%d rings, want 1 when it is", bell.n)
	}
}
