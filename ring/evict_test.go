package ring

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func evicting(tb testing.TB, r *Ring, slot int, lag uint64, after time.Duration) *Subscriber {
	tb.Helper()
	return subscriber(tb, r, slot, SubscriberConfig{Policy: Evict, EvictLag: lag, EvictAfter: after}, Latest())
}

func isEvicted(tb testing.TB, r *Ring, slot int) bool {
	tb.Helper()
	st, err := r.SubscriberState(slot)
	must(tb, err)
	if !st.Joined {
		tb.Fatalf("slot %d is not joined", slot)
	}
	return st.Evicted
}

// TestEvictionIsExact: the claim that would take the lag above the bound evicts, and no
// earlier one does, whoever publishes and whatever limits were cached.
func TestEvictionIsExact(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, c := range []struct {
			lag    uint64
			frames int // of one cell, that fit
		}{{64, 1}, {1, 1}, {127, 1}, {128, 2}, {1000, 15}, {1024, 16}, {4096, 64}, {5000, 64}, {1 << 40, 64}} {
			r := heap(t, small(start))
			ps := []*Publisher{publisher(t, r, 0), publisher(t, r, 3)}
			evicting(t, r, 5, c.lag, 0)
			for i := range c.frames {
				must(t, ps[i%2].TryPublish(nil))
			}
			if isEvicted(t, r, 5) {
				t.Errorf("lag %d: evicted within its bound", c.lag)
			}
			must(t, ps[0].TryPublish(nil))
			if !isEvicted(t, r, 5) {
				t.Errorf("lag %d: not evicted by frame %d", c.lag, c.frames+1)
			}
			for range 200 {
				must(t, ps[1].TryPublish(nil)) // it holds nobody any more
			}
		}
	})
}

// TestEvictionFollowsTheCursor: the bound is on what was not read.
func TestEvictionFollowsTheCursor(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := evicting(t, r, 0, 512, 0)
		for range 100 {
			for range 8 {
				must(t, p.TryPublish(nil))
			}
			if got := drain(t, s); len(got) != 8 {
				t.Fatal(len(got))
			}
		}
		if isEvicted(t, r, 0) || s.Policy() != Evict {
			t.Error("evicted although it kept up")
		}
	})
}

// TestEvictedIsToldOnceAndThenLossy: what is still held is read after that, then gaps.
func TestEvictedIsToldOnceAndThenLossy(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := evicting(t, r, 0, 1024, 0)
		for i := range 20 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		if !s.Ready() {
			t.Error("not ready although it was evicted")
		}
		if frames, err := poll(t, s, 100); err != ErrEvicted || len(frames) != 0 {
			t.Fatalf("%v, %v", frames, err)
		}
		if s.Policy() != Lossy || r.gating.has(0) {
			t.Errorf("policy %v, gates: %v", s.Policy(), r.gating.has(0))
		}
		if got := drain(t, s); len(got) != 20 {
			t.Errorf("%d frames after the eviction, want all 20", len(got))
		}
		from := s.Position()
		for range 100 {
			must(t, p.TryPublish(nil))
		}
		var gap *GapError
		if _, err := poll(t, s, 100); !errors.As(err, &gap) || gap.From != from {
			t.Errorf("lapped: %v", err)
		}
		for range 100 {
			if _, err := poll(t, s, 100); err == ErrEvicted {
				t.Fatal("told twice")
			}
		}
	})
}

// TestLappedBeforeItNoticed: the gap of an evicted subscriber is exact as well.
func TestLappedBeforeItNoticed(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := evicting(t, r, 0, 1024, 0)
		for range 300 {
			must(t, p.TryPublish(nil))
		}
		if _, err := poll(t, s, 100); err != ErrEvicted {
			t.Fatal(err)
		}
		var gap *GapError
		_, err := poll(t, s, 100)
		if !errors.As(err, &gap) || gap.From != start || gap.To != start+(300-32)*64 || s.Position() != gap.To {
			t.Fatalf("%v, position %d", err, s.Position())
		}
		if got := drain(t, s); len(got) != 32 || got[0].at != start+(300-32)*64 {
			t.Errorf("%d frames behind the gap", len(got))
		}
	})
}

// TestOneLargeClaimDoesNotEvictWhoKeptUp, and is not refused either: a bound below the
// size of a frame once left publishers without room for good.
func TestOneLargeClaimDoesNotEvictWhoKeptUp(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := evicting(t, r, 0, 64, 0)
		for i := range 50 {
			must(t, p.TryPublish(message(uint64(i), 600)))
			if isEvicted(t, r, 0) {
				t.Fatal("evicted although it had read everything")
			}
			if got := drain(t, s); len(got) != 1 {
				t.Fatal(len(got))
			}
		}
		must(t, p.TryPublish(make([]byte, 600)))
		must(t, p.TryPublish(nil))
		if !isEvicted(t, r, 0) {
			t.Error("not evicted by the claim that followed")
		}
	})
}

// TestEvictionIsNotForOthers: reliable subscribers, and one that has not joined yet, hold
// publishers back and are not evicted.
func TestEvictionIsNotForOthers(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	reliable(t, r, 0)
	fill(t, p, 0)
	for i := range r.subscribers {
		if s := &r.subscribers[i]; s.state.Load()&subState == subEvicted {
			t.Errorf("slot %d was evicted", i)
		}
	}
	must(t, r.ReleaseSubscriber(0))

	must(t, r.AdmitSubscriber(1, SubscriberConfig{Policy: Evict, EvictLag: 64}))
	r.gating.set(1) // as a joiner does before it is joined
	if n := fill(t, p, 0); n != 64 {
		t.Errorf("%d frames while a subscriber with a bound of one cell joins, want a capacity", n)
	}
	if r.subscribers[1].state.Load()&subState != subReserved {
		t.Error("a joiner was evicted")
	}
}

// TestEvictorDiesHalfway: nothing is left to do after the compare-and-swap of the state,
// so a publisher that dies there leaves nobody waiting.
func TestEvictorDiesHalfway(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	evicting(t, r, 0, 1024, 0)
	for range 16 {
		must(t, p.TryPublish(nil))
	}
	s := &r.subscribers[0]
	if !s.evict(s.state.Load()) || !r.gating.has(0) {
		t.Fatal("the bit is the subscriber's own to clear")
	}
	for range 200 {
		must(t, p.TryPublish(nil))
	}
	if bad := r.CheckCursors(); len(bad) != 0 {
		t.Errorf("%+v", bad)
	}
}

// TestLateEvictorSparesTheNextTenant: a publisher that looked at a slot, slept, and evicts
// does not hit the subscriber that has the slot by now.
func TestLateEvictorSparesTheNextTenant(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	old := evicting(t, r, 0, 1024, 0)
	looked := r.subscribers[0].state.Load()
	must(t, old.Close())
	must(t, r.ReleaseSubscriber(0))
	s := evicting(t, r, 0, 1024, 0)
	if r.subscribers[0].evict(looked) {
		t.Error("evicted by a word of the slot's last tenant")
	}
	must(t, p.TryPublish([]byte("x")))
	if got := drain(t, s); len(got) != 1 {
		t.Errorf("%d frames", len(got))
	}
}

func TestStallWatch(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 1)
		s := evicting(t, r, 2, 0, 10*time.Second)
		evicting(t, r, 3, 1024, 0) // no bound on stall
		reliable(t, r, 4)
		w := NewStallWatch(r)
		t0 := time.Unix(1000, 0)
		at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
		check := func(now int, wantNext int, wantEvicted ...int) {
			t.Helper()
			evicted, next := w.Check(at(now))
			if wantNext < 0 && !next.IsZero() || wantNext >= 0 && !next.Equal(at(wantNext)) || !slices.Equal(evicted, wantEvicted) {
				t.Fatalf("at %d: evicted %v, next %v; want %v, %d", now, evicted, next.Sub(t0), wantEvicted, wantNext)
			}
		}
		check(0, 10)
		check(100, 110) // nothing to read: no stall
		must(t, p.TryPublish(nil))
		check(170, 180) // it had nothing to read when we last looked, and perhaps until just now
		check(175, 180)
		if got := drain(t, s); len(got) != 1 {
			t.Fatal(len(got))
		}
		check(179, 189) // it has moved
		open, err := q.Claim(0)
		must(t, err)
		must(t, p.TryPublish(nil))
		check(200, 210) // what it would read is not committed: that is not its fault
		check(231, 241)
		must(t, open.Commit())
		check(232, 242)
		check(241, 242)
		check(242, -1, 2)
		check(1000, -1)
		if !isEvicted(t, r, 2) || isEvicted(t, r, 3) || isEvicted(t, r, 4) {
			t.Error("the wrong ones were evicted")
		}
		if _, err := poll(t, s, 1); err != ErrEvicted {
			t.Error(err)
		}

		// The next tenant of the slot begins afresh, at whatever cursor.
		must(t, r.ReleaseSubscriber(2))
		s = evicting(t, r, 2, 0, 10*time.Second)
		must(t, p.TryPublish(nil))
		check(2000, 2010)
		must(t, s.Close())
		must(t, r.ReleaseSubscriber(2))
		subscriber(t, r, 2, SubscriberConfig{Policy: Evict, EvictAfter: 10 * time.Second}, At(r.Tail()-64))
		check(2011, 2021)
		check(2021, -1, 2)
	})
}

// TestStallWatchFreesRoom: with only a bound on stall the subscriber gates like a
// reliable one until it is evicted.
func TestStallWatchFreesRoom(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	evicting(t, r, 0, 0, time.Second)
	if n := fill(t, p, 0); n != 64 {
		t.Errorf("%d frames fit, want 64", n)
	}
	w := NewStallWatch(r)
	w.Check(time.Unix(1, 0))
	if evicted, _ := w.Check(time.Unix(2, 0)); len(evicted) != 1 {
		t.Fatal(evicted)
	}
	must(t, p.TryPublish(nil))
}

func TestSubscriberConfigCheck(t *testing.T) {
	for want, c := range map[string]SubscriberConfig{
		"policy 0 is not one of reliable, lossy, evict":          {},
		"policy 9 is not one of reliable, lossy, evict":          {Policy: 9},
		"evict after -1s is negative":                            {Policy: Evict, EvictAfter: -time.Second},
		"bounds on lag or stall need policy evict, not reliable": {Policy: Reliable, EvictLag: 1},
		"bounds on lag or stall need policy evict, not lossy":    {Policy: Lossy, EvictAfter: 1},
		"policy evict needs a bound on lag or on stall":          {Policy: Evict},
		"members of groups are admitted by AdmitMember":          {Policy: GroupMember},
	} {
		r := heap(t, small(0))
		err := r.AdmitSubscriber(0, c)
		if !errors.Is(err, ErrConfig) || err.Error() != "ring: bad configuration: "+want {
			t.Errorf("%v, want %s", err, want)
		}
		if r.subscribers[0].state.Load() != subFree {
			t.Error("the slot was taken")
		}
	}
	for p, want := range map[Policy]string{Reliable: "reliable", Lossy: "lossy", Evict: "evict", GroupMember: "member", 7: "policy(7)"} {
		if p.String() != want {
			t.Errorf("%v, want %s", p, want)
		}
	}
}
