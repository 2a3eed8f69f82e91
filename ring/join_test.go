package ring

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// joined is where a subscription with this start begins, and what it reads at once.
func joined(tb testing.TB, r *Ring, start Start) (Position, []got, *GapError) {
	tb.Helper()
	const slot = 7
	s := subscriber(tb, r, slot, SubscriberConfig{Policy: Reliable}, start)
	at := s.Position()
	var gap *GapError
	frames, err := poll(tb, s, 1000)
	if errors.As(err, &gap) {
		kept := *gap // the next Poll may overwrite it
		gap = &kept
		frames, err = poll(tb, s, 1000)
	}
	must(tb, err)
	must(tb, s.Close())
	must(tb, r.ReleaseSubscriber(slot))
	return at, frames, gap
}

func TestJoinLatestSeesOnlyWhatIsClaimedLater(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 1)
		must(t, p.TryPublish([]byte("before")))
		open, err := q.Claim(4)
		must(t, err)
		s := reliable(t, r, 0)
		if s.Position() != start+128 {
			t.Fatalf("starts at %d, want %d", s.Position(), start+128)
		}
		must(t, open.Commit())
		must(t, p.TryPublish([]byte("after")))
		if got := payloads(drain(t, s)); len(got) != 1 || got[0] != "after" {
			t.Errorf("got %q", got)
		}
	})
}

func TestJoinEarliest(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		if at, frames, gap := joined(t, r, Earliest()); at != start || len(frames) != 0 || gap != nil {
			t.Errorf("of an empty ring: %d, %v, %v", at, frames, gap)
		}
		for i := range 40 {
			must(t, p.TryPublish(message(uint64(i), 48)))
		}
		if at, frames, gap := joined(t, r, Earliest()); at != start || len(frames) != 40 || gap != nil {
			t.Errorf("of a ring that holds all: %d, %d frames, %v", at, len(frames), gap)
		}
		for i := range 40 {
			must(t, p.TryPublish(message(uint64(40+i), 48)))
		}
		// The publisher's limit, computed last after the 64th frame, reaches to the
		// 128th: it may overwrite up to there without looking again.
		if at, frames, gap := joined(t, r, Earliest()); at != start+64*64 || len(frames) != 16 || gap != nil {
			t.Errorf("of a ring that was lapped: %d frames from %d, %v", len(frames), (at-start)/64, gap)
		}
	})
}

// TestJoinBeforeAnOpenClaim: a claim that is open when a reader joins in front of it is
// waited for, not skipped, although frames behind it are committed already.
func TestJoinBeforeAnOpenClaim(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, prefix := range []int{0, 1} {
			r := heap(t, small(start))
			p, q := publisher(t, r, 0), publisher(t, r, 1)
			reliable(t, r, 6) // keeps limits from reaching beyond what the ring holds now
			for range prefix {
				must(t, p.TryPublish([]byte("first")))
			}
			claimed := r.Tail()
			open, err := q.Claim(4)
			must(t, err)
			must(t, p.TryPublish([]byte("behind")))
			froms := []Start{Earliest(), At(start), At(claimed)}
			subs := make([]*Subscriber, len(froms))
			for i, from := range froms {
				subs[i] = subscriber(t, r, i, SubscriberConfig{Policy: Reliable}, from)
				want := prefix
				if i == 2 {
					want = 0
				}
				if got := drain(t, subs[i]); len(got) != want {
					t.Errorf("from %v: %v before the commit", from, payloads(got))
				}
			}
			copy(open.Payload, "open")
			must(t, open.Commit())
			for i, s := range subs {
				if got := payloads(drain(t, s)); strings.Join(got, " ") != "open behind" {
					t.Errorf("from %v: %q after the commit", froms[i], got)
				}
			}
		}
	})
}

// TestJoinAtAnyFrame: who saved a position of a frame, or of the end of one, resumes
// exactly there, also inside a batch and behind the padding at the wrap.
func TestJoinAtAnyFrame(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		c := small(start)
		c.Capacity = 1 << 14
		r := heap(t, c)
		p := publisher(t, r, 0)
		s := reliable(t, r, 0)
		hold := reliable(t, r, 1) // what it has not read is held, whatever limits publishers have
		var all []got
		for i := 0; ; i++ {
			batch := make([][]byte, 1+i%7)
			for j := range batch {
				batch[j] = message(uint64(i*10+j), (i*53+j*97)%600)
			}
			n, err := p.TryPublishBatch(batch)
			all = append(all, drain(t, s)...)
			if err == ErrBackpressure {
				break
			}
			if must(t, err); n < len(batch) {
				t.Fatal(n)
			}
			if i < 40 {
				drain(t, hold)
			}
		}
		seen := 0
		for i, f := range all {
			if f.at.Before(hold.Position()) {
				continue
			}
			seen++
			at, frames, gap := joined(t, r, At(f.at))
			if gap != nil || at != f.at || len(frames) != len(all)-i || frames[0] != f {
				t.Errorf("frame %d at %d: starts at %d with %d frames of %d, gap %v", i, f.at, at, len(frames), len(all)-i, gap)
			}
		}
		if seen < 30 {
			t.Errorf("only %d frames looked at", seen)
		}
		if at, frames, gap := joined(t, r, At(r.Tail())); at != r.Tail() || len(frames) != 0 || gap != nil {
			t.Errorf("at tail: %d, %v, %v", at, frames, gap)
		}
	})
}

// TestJoinAtResumesBehindAnOpenClaim: an open claim in front of the position does not
// keep a frame inside a batch behind it from being found.
func TestJoinAtResumesBehindAnOpenClaim(t *testing.T) {
	r := heap(t, small(0))
	p, q := publisher(t, r, 0), publisher(t, r, 1)
	must(t, p.TryPublish(nil))
	_, err := q.Claim(100)
	must(t, err)
	if n, err := p.TryPublishBatch([][]byte{[]byte("a"), []byte("b"), []byte("c")}); n != 3 {
		t.Fatal(n, err)
	}
	at, frames, gap := joined(t, r, At(64+128+64))
	if at != 64+128+64 || strings.Join(payloads(frames), "") != "bc" || gap != nil {
		t.Errorf("%d %v %v", at, payloads(frames), gap)
	}
}

// TestJoinInsideAFrame starts with the next frame, and says what was passed over.
func TestJoinInsideAFrame(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		must(t, p.TryPublish(make([]byte, 300))) // cells 0 to 4
		must(t, p.TryPublish([]byte("next")))
		at, frames, gap := joined(t, r, At(start+64))
		if at != start+320 || len(frames) != 1 || gap == nil || *gap != (GapError{From: start + 64, To: start + 320}) {
			t.Errorf("%d, %v, %v", at, frames, gap)
		}
		// Of a batch: the next frame is an inner one.
		if n, err := p.TryPublishBatch([][]byte{make([]byte, 100), []byte("inner")}); n != 2 {
			t.Fatal(err)
		}
		at, frames, gap = joined(t, r, At(start+384+64))
		if at != start+512 || len(frames) != 1 || frames[0].payload != "inner" || gap == nil || gap.Bytes() != 64 {
			t.Errorf("of a batch: %d, %v, %v", at, frames, gap)
		}
	})
}

// TestJoinAtLappedPosition reports exactly what is not held any more.
func TestJoinAtLappedPosition(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		for i := range 100 {
			must(t, p.TryPublish(message(uint64(i), 48)))
		}
		for _, from := range []Position{start - 6400, start, start + 64, start + 63*64} {
			at, frames, gap := joined(t, r, At(from))
			want := GapError{From: from, To: start + 64*64}
			if at != want.To || len(frames) != 36 || gap == nil || *gap != want {
				t.Errorf("from %d: starts at %d with %d frames, gap %v, want %v", from, at, len(frames), gap, &want)
			}
		}
		s := subscriber(t, r, 0, SubscriberConfig{Policy: Reliable}, At(start))
		if !s.Ready() {
			t.Error("not ready although a gap is to be told")
		}
		_, err := poll(t, s, 10)
		if !errors.Is(err, ErrOverrun) || err.Error() != fmt.Sprintf("ring: overrun: missed 4096 bytes of positions, from %d up to %d", start, start+4096) {
			t.Error(err)
		}
		if st, _ := r.SubscriberState(0); st.Gaps != 1 || st.GapBytes != 4096 {
			t.Errorf("figures: %d gaps of %d bytes", st.Gaps, st.GapBytes)
		}
	})
}

func TestJoinRefusals(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		must(t, p.TryPublish(nil))
		must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Reliable}))
		s, err := r.Subscriber(0, SubscriberOptions{})
		must(t, err)
		for _, at := range []Position{start + 128, start + 32} {
			err := s.Join(At(at), never)
			wantErr(t, err, ErrConfig)
			if want := fmt.Sprintf("start position %d is above tail %d, or not a multiple of 64", at, start+64); !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if _, err := s.Poll(1, nil); !errors.Is(err, ErrSlot) || !strings.HasSuffix(err.Error(), "subscriber 0 has not joined") {
			t.Errorf("Poll before Join: %v", err)
		}
		// A refused join leaves nothing behind: publishers are not held.
		for range 200 {
			must(t, p.TryPublish(nil))
		}
		must(t, s.Join(Latest(), never))
		wantErr(t, s.Join(Latest(), never), ErrSlot)
		must(t, s.Close())
		wantErr(t, s.Join(Latest(), never), ErrSlot)
		wantErr(t, s.Close(), ErrClosed)
		_, err = r.Subscriber(0, SubscriberOptions{})
		wantErr(t, err, ErrSlot)
	})
}

// TestJoinWaitsForALimit: a publisher that is computing its limit is waited for, for as
// long as wait allows.
func TestJoinWaitsForALimit(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 2)
		must(t, p.TryPublish(nil))
		r.publishers[2].counter.Begin()
		must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Reliable}))
		s, err := r.Subscriber(0, SubscriberOptions{})
		must(t, err)
		stop, calls := errors.New("enough"), 0
		err = s.Join(Earliest(), func() error {
			if !r.gating.has(0) {
				t.Error("does not gate while it waits")
			}
			if calls++; calls == 3 {
				return stop
			}
			return nil
		})
		wantErr(t, err, stop)
		if calls != 3 || err.Error() != "ring: join: publisher slot 2 is computing its limit: enough" {
			t.Errorf("%d calls, %v", calls, err)
		}
		if r.gating.has(0) {
			t.Error("gates although the join failed")
		}
		must(t, s.Join(Earliest(), func() error { r.publishers[2].counter.End(); return nil }))
		if got := drain(t, s); len(got) != 1 {
			t.Errorf("%d frames", len(got))
		}

		// Latest does not need to look at limits, so it does not wait.
		r.publishers[2].counter.Begin()
		reliable(t, r, 1)
		// A publisher that died while it was computing is not waited for once it is freed.
		must(t, r.CondemnPublisher(2))
		must(t, r.AdmitSubscriber(2, SubscriberConfig{Policy: Reliable}))
		s, err = r.Subscriber(2, SubscriberOptions{})
		must(t, err)
		must(t, s.Join(Earliest(), func() error { _, err := r.RepairPublisher(2); return err }))
	})
}

// TestJoinRaisesItsCursor while limits reach further than it allows, again and again.
func TestJoinRaisesItsCursor(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p, q := publisher(t, r, 0), publisher(t, r, 1)
		must(t, p.TryPublish(nil)) // its limit is now start+4096
		r.publishers[1].counter.Begin()
		must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Reliable}))
		s, err := r.Subscriber(0, SubscriberOptions{})
		must(t, err)
		rounds := 0
		// Between two looks a publisher that is held by nobody but us uses its limit.
		must(t, s.Join(Earliest(), func() error {
			if rounds++; rounds == 1 {
				for range 63 {
					must(t, p.TryPublish(nil))
				}
				r.publishers[1].counter.End()
			}
			return nil
		}))
		if s.Position() != start {
			t.Errorf("starts at %d, want %d: nothing was overwritten", s.Position(), start)
		}
		wantErr(t, p.TryPublish(nil), ErrBackpressure)
		wantErr(t, q.TryPublish(nil), ErrBackpressure)
		if got := drain(t, s); len(got) != 64 {
			t.Errorf("%d frames", len(got))
		}
	})
}

// TestJoinLatestLooksAgain: publishers pass over a cursor more than a capacity behind, so
// a joiner whose cursor was that far behind must not trust limits computed meanwhile.
// docs/model/join.pml has the interleaving; here, what the joiner does about it.
func TestJoinLatestLooksAgain(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		lap := func() {
			for range 65 {
				must(t, p.TryPublish(nil))
			}
		}
		waits := 0
		at, err := r.join(&r.subscribers[0].cursor, Latest(), func() { lap(); r.gating.set(0) }, func() error {
			waits++
			return nil
		})
		must(t, err)
		if waits != 1 || at != r.Tail() || r.subscribers[0].cursor.Load() != uint64(at) {
			t.Errorf("%d waits, joined at %d, cursor %d, tail %d", waits, at, r.subscribers[0].cursor.Load(), r.Tail())
		}
		r.gating.clear(0)
		stop := errors.New("enough")
		_, err = r.join(&r.subscribers[0].cursor, Latest(), lap, func() error { return stop })
		wantErr(t, err, stop)
		if err.Error() != "ring: join: publishers are too fast: enough" {
			t.Error(err)
		}
	})
}

// TestLossyJoinsGateNobody.
func TestLossyJoinsGateNobody(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		for i := range 100 {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		r.publishers[0].counter.Begin() // not waited for either
		for i, c := range []struct {
			from   Start
			at     Position
			frames int
		}{{Latest(), start + 6400, 0}, {Earliest(), start + 36*64, 64}, {At(start + 50*64), start + 50*64, 50}} {
			s := subscriber(t, r, i, SubscriberConfig{Policy: Lossy}, c.from)
			if s.Position() != c.at || r.gating.has(i) {
				t.Errorf("%v: at %d, gates: %v", c.from, s.Position(), r.gating.has(i))
			}
			if got := drain(t, s); len(got) != c.frames {
				t.Errorf("%v: %d frames, want %d", c.from, len(got), c.frames)
			}
		}
		r.publishers[0].counter.End()
		fill := 0
		for ; fill < 1000; fill++ {
			must(t, p.TryPublish(nil))
		}
	})
}

func TestStartString(t *testing.T) {
	for start, want := range map[Start]string{{}: "latest", Latest(): "latest", Earliest(): "earliest", At(0): "0", At(1<<64 - 64): "18446744073709551552"} {
		if start.String() != want {
			t.Errorf("%v, want %s", start, want)
		}
		if p, ok := start.Position(); ok != (start.kind == startAt) || p != start.pos {
			t.Errorf("%s: position %d, %v", want, p, ok)
		}
	}
}
