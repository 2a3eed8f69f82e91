package ring

import (
	"strings"
	"testing"
)

func TestClaimCommit(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 2)
		s := reliable(t, r, 0)
		for n := range 1009 {
			c, err := p.Claim(n)
			must(t, err)
			if len(c.Payload) != n || cap(c.Payload) != n {
				t.Fatalf("room for %d bytes of %d, wanted %d", len(c.Payload), cap(c.Payload), n)
			}
			want := message(uint64(n), n)
			copy(c.Payload, want)
			if got := drain(t, s); len(got) != 0 || s.Ready() {
				t.Fatal("visible before the commit")
			}
			must(t, c.Commit())
			if !s.Ready() {
				t.Fatal("not ready after the commit")
			}
			if got := drain(t, s); len(got) != 1 || got[0].payload != string(want) || got[0].source != 2 {
				t.Fatalf("%d bytes: %v", n, got)
			}
		}
	})
}

// TestCommitN shortens to every length, also to none, and fills what is left over.
func TestCommitN(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := reliable(t, r, 0)
		commits := uint64(0)
		for _, claimed := range []int{0, 1, 48, 49, 500, 1008} {
			for n := 0; n <= claimed; n += 1 + n/64 {
				commits += 2
				c, err := p.Claim(claimed)
				must(t, err)
				want := message(uint64(n), claimed)
				copy(c.Payload, want)
				wantErr(t, c.CommitN(claimed+1), ErrTooLarge)
				wantErr(t, c.CommitN(-1), ErrTooLarge)
				must(t, c.CommitN(n)) // still open after that
				must(t, p.TryPublish([]byte("next")))
				if got := payloads(drain(t, s)); len(got) != 2 || got[0] != string(want[:n]) || got[1] != "next" {
					t.Fatalf("%d of %d bytes: %q", n, claimed, got)
				}
				if s.Position() != r.Tail() {
					t.Fatalf("reader at %d, tail %d", s.Position(), r.Tail())
				}
			}
		}
		if st, _ := r.PublisherState(0); st.Frames != commits {
			t.Errorf("%d frames counted", st.Frames)
		}
	})
}

func TestAbort(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s, l := reliable(t, r, 0), lossy(t, r, 1)
		for n := range 1009 {
			c, err := p.Claim(n)
			must(t, err)
			must(t, c.Abort())
			if got, err := poll(t, s, 10); len(got) != 0 || err != nil || s.Position() != r.Tail() {
				t.Fatalf("%v, %v; at %d, tail %d", got, err, s.Position(), r.Tail())
			}
			if got, err := poll(t, l, 10); len(got) != 0 || err != nil || l.Position() != r.Tail() {
				t.Fatalf("lossy: %v, %v; at %d, tail %d", got, err, l.Position(), r.Tail())
			}
		}
		if st, _ := r.PublisherState(0); st.Frames != 0 || st.Claimed {
			t.Errorf("%+v", st)
		}
	})
}

// TestClaimMisuse: a claim ends once, and never through an older value.
func TestClaimMisuse(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	s := reliable(t, r, 0)
	first, err := p.Claim(5)
	must(t, err)
	copy(first.Payload, "first")

	_, err = p.Claim(5)
	wantErr(t, err, ErrClaimed)
	wantErr(t, p.TryPublish(nil), ErrClaimed)
	n, err := p.TryPublishBatch([][]byte{nil})
	if n != 0 || err != ErrClaimed {
		t.Error(n, err)
	}
	_, err = p.Claim(1009)
	wantErr(t, err, ErrTooLarge)
	_, err = p.Claim(-1)
	wantErr(t, err, ErrTooLarge)

	copied := first
	must(t, copied.Commit())
	for _, c := range []Claim{first, copied, {}} {
		wantErr(t, c.Commit(), ErrNotClaimed)
		wantErr(t, c.CommitN(0), ErrNotClaimed)
		wantErr(t, c.Abort(), ErrNotClaimed)
	}
	second, err := p.Claim(6)
	must(t, err)
	copy(second.Payload, "second")
	wantErr(t, first.Commit(), ErrNotClaimed)
	wantErr(t, first.Abort(), ErrNotClaimed)
	must(t, second.Commit())
	wantErr(t, second.Abort(), ErrNotClaimed)
	if got := strings.Join(payloads(drain(t, s)), " "); got != "first second" {
		t.Errorf("%q", got)
	}
}

// TestClaimsAtTheWrap: at every distance from the wrap a claim is contiguous, the rest
// before it is padding, and all of it becomes visible as one.
func TestClaimsAtTheWrap(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for left := uint64(64); left <= 1024; left += 64 {
			for _, end := range []string{"commit", "short", "abort", "publish", "batch"} {
				r := heap(t, small(start))
				p := publisher(t, r, 1)
				s := reliable(t, r, 0)
				for uint64(r.Tail())&r.mask != MinCapacity-left {
					must(t, p.TryPublish(nil))
					drain(t, s)
				}
				at := r.Tail()
				wrap := at.Add(left)
				want, frames := at, []string{}
				payload := message(9, 900) // 15 cells
				if left < 15*64 {
					want = wrap
				}
				before := func() {
					if s.Ready() || r.Tail() != want+15*64 {
						t.Fatalf("%s %d before the wrap: ready %v, tail %d, want %d", end, left, s.Ready(), r.Tail(), want+15*64)
					}
				}
				switch end {
				case "commit", "short", "abort":
					c, err := p.Claim(900)
					must(t, err)
					copy(c.Payload, payload)
					before()
					switch end {
					case "commit":
						must(t, c.Commit())
						frames = []string{string(payload)}
					case "short":
						must(t, c.CommitN(100))
						frames = []string{string(payload[:100])}
					case "abort":
						must(t, c.Abort())
					}
				case "publish":
					must(t, p.TryPublish(payload))
					frames = []string{string(payload)}
				case "batch":
					n, err := p.TryPublishBatch([][]byte{payload[:1], payload[:800], nil}) // 1 + 13 + 1 cells
					if n != 3 {
						t.Fatal(n, err)
					}
					frames = []string{string(payload[:1]), string(payload[:800]), ""}
				}
				got := drain(t, s)
				if strings.Join(payloads(got), "|") != strings.Join(frames, "|") || len(got) != len(frames) {
					t.Errorf("%s %d before the wrap: %d frames, want %d", end, left, len(got), len(frames))
				}
				if len(got) > 0 && got[0].at != want {
					t.Errorf("%s %d before the wrap: at %d, want %d", end, left, got[0].at, want)
				}
				if s.Position() != r.Tail() || r.Tail() != want+15*64 {
					t.Errorf("%s: reader at %d, tail %d, want %d", end, s.Position(), r.Tail(), want+15*64)
				}
			}
		}
	})
}
