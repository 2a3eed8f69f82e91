package ring

import (
	"testing"
	"time"
)

func TestClaimWatchNamesWhoHoldsAClaim(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 2)
		s := lossy(t, r, 0)
		w := NewClaimWatch(r)
		now := time.Now()
		look := func(after time.Duration, want ...HeldClaim) {
			t.Helper()
			now = now.Add(after)
			got := w.Check(now, time.Second)
			if len(got) != len(want) {
				t.Fatalf("%+v, want %+v", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%+v, want %+v", got, want)
				}
			}
		}
		look(0)
		must(t, p.TryPublish(nil))
		c, err := q.Claim(100)
		must(t, err)
		at := c.Intent()
		look(time.Hour) // the first look that sees it
		look(999 * time.Millisecond)
		look(time.Millisecond, HeldClaim{Slot: 2, Position: at, Bytes: 128, Stage: StageClaim, For: time.Second})
		must(t, p.TryPublish(nil)) // others go on, and are not named
		look(time.Minute, HeldClaim{Slot: 2, Position: at, Bytes: 128, Stage: StageClaim, For: 61 * time.Second})
		must(t, c.Commit())
		look(time.Minute)
		c, err = q.Claim(100) // another one, which is young
		must(t, err)
		look(time.Minute)
		must(t, c.Abort())
		drain(t, s)
	})
}

func TestClaimWatchTellsHowFarItHasCome(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 1)
		w := NewClaimWatch(r)
		now := time.Now()
		stage := func(want Stage) {
			t.Helper()
			for range 2 {
				now = now.Add(time.Second)
				if held := w.Check(now, time.Second); len(held) == 1 && held[0].Stage != want {
					t.Fatalf("%+v, want %v", held, want)
				} else if len(held) == 1 {
					return
				}
			}
			t.Fatal("not named")
		}
		tail := uint64(r.Tail())
		p.slot.intent.Store(tail | intentFlag)
		stage(StageIntent)
		r.tail.Store(tail + 64)
		stage(StageClaim)
		p.stampPadding(tail, 64, 0)
		stage(StageCommitted)
		// The dead are for repair.
		must(t, r.CondemnPublisher(1))
		now = now.Add(time.Minute)
		if held := w.Check(now, time.Second); len(held) != 0 {
			t.Errorf("%+v", held)
		}
		for s, want := range map[Stage]string{StageIntent: "intent", StageClaim: "claim", StageCommitted: "committed"} {
			if s.String() != want {
				t.Errorf("%v, want %s", s, want)
			}
		}
	})
}

func TestClaimWatchForgets(t *testing.T) {
	r := heap(t, small(0))
	c, err := publisher(t, r, 1).Claim(1)
	must(t, err)
	w := NewClaimWatch(r)
	now := time.Now()
	w.Check(now, time.Second)
	for _, i := range []int{1, -1, 4} {
		w.Forget(i)
	}
	if held := w.Check(now.Add(time.Hour), time.Second); len(held) != 0 {
		t.Errorf("%+v", held)
	}
	must(t, c.Commit())
}

// TestWindow: claims are written by another mapping of the same memory.
func TestWindow(t *testing.T) {
	c := small(starts[1])
	m := heapMemory(t, c)
	r, err := Format(m, c)
	must(t, err)
	p, s := publisher(t, r, 0), reliable(t, r, 0)
	wantErr(t, p.Window(m.Data[64:]), ErrGeometry)
	other := heapBytes(len(m.Data))
	must(t, p.Window(other))
	for n := range 500 { // past the wrap
		claim, err := p.Claim(n)
		must(t, err)
		wantErr(t, p.Window(m.Data), ErrClaimed)
		if claim.Intent() > r.Tail() || !claim.Open() {
			t.Fatalf("%d, tail %d", claim.Intent(), r.Tail())
		}
		copy(claim.Payload, message(uint64(n), n))
		// Somebody who writes there by a mapping of different pages writes elsewhere; a frame
		// is what the ring's own memory has.
		copy(m.Data[claim.Offset():], other[claim.Offset():claim.Offset()+uint64(n)])
		must(t, claim.Commit())
		if claim.Open() {
			t.Fatal("open after the commit")
		}
		if got := drain(t, s); len(got) != 1 || got[0].payload != string(message(uint64(n), n)) {
			t.Fatalf("%d: %v", n, got)
		}
	}
}
