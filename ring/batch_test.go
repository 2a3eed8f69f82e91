package ring

import (
	"slices"
	"strings"
	"testing"
)

// batchOf is n messages of size bytes each.
func batchOf(n, size int) [][]byte {
	b := make([][]byte, n)
	for i := range b {
		b[i] = message(uint64(i), size)
	}
	return b
}

func TestBatchOrderAndSizes(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 1)
		s := reliable(t, r, 0)
		for i := range 300 {
			batch := make([][]byte, i%9)
			var want []string
			for j := range batch {
				batch[j] = message(uint64(i*100+j), (i*31+j*57)%110)
				want = append(want, string(batch[j]))
			}
			if n, err := p.TryPublishBatch(batch); n != len(batch) || err != nil {
				t.Fatal(n, err)
			}
			got := drain(t, s)
			if !slices.Equal(payloads(got), want) {
				t.Fatalf("batch %d: %q, want %q", i, payloads(got), want)
			}
		}
		if st, _ := r.PublisherState(1); st.Frames != 33*36+0+1+2 {
			t.Errorf("%d frames counted", st.Frames)
		}
	})
}

// TestBatchIsVisibleAtOnce looks at the ring before each frame's stamp: as long as the
// claim's first one is missing, no reader finds anything, and no joiner starts inside.
func TestBatchIsVisibleAtOnce(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, skip := range []int{0, 57, 60, 63} { // the batch wraps from 57 on
			r := heap(t, small(start))
			p, q := publisher(t, r, 0), publisher(t, r, 1)
			s := reliable(t, r, 0)
			for uint64(r.Tail())/64%64 != uint64(skip) {
				must(t, p.TryPublish(nil))
				drain(t, s)
			}
			batch := batchOf(8, 100)
			must(t, p.reserve(batchSize(batch)))
			must(t, q.TryPublish([]byte("behind")))
			at := p.start + p.pad
			for _, b := range batch[1:] {
				at += frameSize(100)
				p.fill(at&p.mask, b)
				p.stamp(at, meta(100, kindData, flagInner, 0))
				if s.Ready() {
					t.Fatal("ready in the middle of a batch")
				}
				for i, from := range []Start{Earliest(), At(Position(p.start)), At(Position(at))} {
					j := subscriber(t, r, 5, SubscriberConfig{Policy: Reliable}, from)
					if j.Position() != Position(p.start) && j.Position() != Position(p.start+p.pad+p.size) {
						t.Errorf("from %v (%d): joined at %d, the claim is %d to %d", from, i, j.Position(), p.start, p.start+p.pad+p.size)
					}
					if i < 2 && j.Position() != Position(p.start) {
						t.Errorf("from %v: passed the claim over", from)
					}
					must(t, j.Close())
					must(t, r.ReleaseSubscriber(5))
				}
			}
			p.commitBatch(batch)
			if got, _ := poll(t, s, 100); len(got) != 9 {
				t.Errorf("%d frames in the first poll after the commit", len(got))
			}
		}
	})
}

// TestLargeBatch is more than fits one claim, or the whole ring.
func TestLargeBatch(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := reliable(t, r, 0)
		batch := batchOf(100, 90) // 200 cells in a ring of 64
		var got []string
		for done := 0; done < len(batch); {
			n, err := p.TryPublishBatch(batch[done:])
			if done += n; done < len(batch) {
				wantErr(t, err, ErrBackpressure)
			} else {
				must(t, err)
			}
			if n == 0 {
				t.Fatal("an empty ring took nothing")
			}
			got = append(got, payloads(drain(t, s))...)
		}
		for i, g := range got {
			if g != string(batch[i]) {
				t.Fatalf("frame %d differs", i)
			}
		}
		if len(got) != len(batch) {
			t.Errorf("%d frames", len(got))
		}
	})
}

// TestBatchAcrossEveryPlace: small frames, which are written in runs, from each cell on; positions wrap in the middle of some.
func TestBatchAcrossEveryPlace(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for _, n := range []int{2, 9, 31} {
			for before := range 64 {
				r := heap(t, small(start))
				p := publisher(t, r, 0)
				s := reliable(t, r, 0)
				for range before {
					must(t, p.TryPublish(nil))
				}
				drain(t, s)
				batch := batchOf(n, 48)
				if done, err := p.TryPublishBatch(batch); done != n || err != nil {
					t.Fatalf("%d frames behind %d: %d, %v", n, before, done, err)
				}
				for i, got := range payloads(drain(t, s)) {
					if got != string(batch[i]) {
						t.Fatalf("%d frames behind %d: frame %d differs", n, before, i)
					}
				}
			}
		}
	})
}

// TestBatchFillsTheLastCell: what fits of a batch is published, to the last cell.
func TestBatchFillsTheLastCell(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for room := range 20 {
			r := heap(t, small(start))
			p := publisher(t, r, 0)
			s := reliable(t, r, 0)
			for range 64 - room {
				must(t, p.TryPublish(nil))
			}
			n, err := p.TryPublishBatch(batchOf(40, 10))
			if n != room || err != ErrBackpressure {
				t.Errorf("room for %d: published %d, %v", room, n, err)
			}
			if got := drain(t, s); len(got) != 64 {
				t.Errorf("%d frames", len(got))
			}
		}
	})
}

// TestTooLargeInTheMiddle: what stands before is published, and the count says where.
func TestTooLargeInTheMiddle(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		for at := range 5 {
			r := heap(t, small(start))
			p := publisher(t, r, 0)
			s := reliable(t, r, 0)
			batch := batchOf(5, 10)
			batch[at] = make([]byte, 1009)
			n, err := p.TryPublishBatch(batch)
			if n != at || err != ErrTooLarge {
				t.Errorf("%d, %v, want %d", n, err, at)
			}
			if got := payloads(drain(t, s)); strings.Join(got, "") != joinBytes(batch[:at]) {
				t.Errorf("%q", got)
			}
			must(t, p.TryPublish(nil))
		}
	})
}

func joinBytes(bs [][]byte) string {
	var all strings.Builder
	for _, b := range bs {
		all.Write(b)
	}
	return all.String()
}

// TestEmptyBatch publishes nothing, also when the ring is full.
func TestEmptyBatch(t *testing.T) {
	r := heap(t, small(0))
	p := publisher(t, r, 0)
	reliable(t, r, 0)
	fill(t, p, 0)
	for _, b := range [][][]byte{nil, {}} {
		if n, err := p.TryPublishBatch(b); n != 0 || err != nil {
			t.Error(n, err)
		}
	}
}
