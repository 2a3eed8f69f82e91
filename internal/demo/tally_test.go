package demo

import (
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestBucketsAreNarrowAndInOrder(t *testing.T) {
	before := -1
	for _, ns := range []uint64{0, 1, 127, 128, 255, 256, 257, 511, 512, 1000, 1_000_000, 1 << 40, 1<<41 - 1} {
		b := bucketOf(ns)
		if b < before || b >= buckets {
			t.Errorf("%d ns is in bucket %d, after %d", ns, b, before)
		}
		before = b
		if v := float64(bucketValue(b)); v < float64(ns)*0.991 || v > float64(ns)*1.009 {
			t.Errorf("%d ns is told as %v", ns, v)
		}
	}
	for b := range buckets {
		if got := bucketOf(bucketValue(b)); got != b {
			t.Fatalf("the value of bucket %d, %d, is in bucket %d", b, bucketValue(b), got)
		}
	}
	if bucketOf(1<<63) != buckets-1 {
		t.Error("what is too long does not count as longest")
	}
}

func TestQuantilesAgreeWithASort(t *testing.T) {
	rng := rand.New(rand.NewSource(testutil.Seed(t)))
	readers := []*tally{fresh(t, 64), fresh(t, 64)}
	var all []int64
	for i := range 50_000 {
		ns := rng.Int63n(1 << (10 + rng.Intn(25)))
		readers[i%2].took(latencyPaced, time.Duration(ns))
		readers[i%2].took(latencyFull, 1)
		all = append(all, ns)
	}
	slices.Sort(all)
	s := speed(0, 64, latencyPaced, readers)
	if s.Max != all[len(all)-1] || s.Frames != 64 || s.Bytes != bytesOf(0, 64) {
		t.Errorf("max %d, want %d; %+v", s.Max, all[len(all)-1], s)
	}
	for p, got := range map[float64]int64{0.5: s.P50, 0.9: s.P90, 0.99: s.P99, 0.999: s.P999} {
		want := float64(all[int(p*float64(len(all)))])
		if float64(got) < want*0.97 || float64(got) > want*1.03 {
			t.Errorf("quantile %v is %d, want %v", p, got, want)
		}
	}
}

func TestATallyIsSharedAndChecked(t *testing.T) {
	mine := fresh(t, 1000)
	again := func() *os.File {
		t.Helper()
		fd, err := sys.Dup(int(mine.segment.File().Fd()))
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "tally")
	}
	theirs, err := openTally(again(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if theirs.mark(999) || !theirs.mark(999) || theirs.mark(0) {
		t.Error("marks are forgotten, or made up")
	}
	theirs.add(tallyFrames, 3)
	if mine.get(tallyFrames) != 3 || mine.seen[15].Load() != 1<<39 || mine.again[15].Load() != 1<<39 || mine.seen[0].Load() != 1 {
		t.Error("what one writes the other does not read")
	}
	if err := theirs.close(); err != nil {
		t.Error(err)
	}
	if _, err := openTally(again(), 1_000_000); err == nil || !strings.Contains(err.Error(), "1000000 frames take") {
		t.Errorf("a tally that is too small: %v", err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openTally(f, 10); err == nil || !strings.Contains(err.Error(), "map the tally") {
		t.Errorf("no tally at all: %v", err)
	}
}

func TestArrivals(t *testing.T) {
	a, b := fresh(t, 200), fresh(t, 200)
	mark := func(t *tally, seqs ...uint64) {
		for _, seq := range seqs {
			if t.mark(seq) {
				t.add(tallyDuplicated, 1)
			}
			t.add(tallyFrames, 1)
		}
	}
	for seq := range uint64(200) {
		mark([]*tally{a, b}[seq%2], seq)
	}
	got := arrival([]*tally{a, b}, 200)
	if !got.ok(200) || got.Once != 200 || !slices.Equal(got.Shares, []uint64{100, 100}) {
		t.Errorf("all well: %+v", got)
	}
	mark(a, 1, 3) // b has them too
	mark(b, 5, 5) // again and again
	mark(a, 5)    // and at the other one
	a.add(tallyCorrupted, 1)
	b.add(tallyRedelivered, 4)
	got = arrival([]*tally{a, b}, 200)
	if got.ok(200) || got.Once != 197 || got.Lost != 0 || got.Duplicated != 5 || got.Corrupted != 1 || got.Redelivered != 4 {
		t.Errorf("with duplicates: %+v", got)
	}
	got = arrival([]*tally{b}, 200)
	if got.ok(200) || got.Lost != 100 || got.Once != 99 || got.Duplicated != 2 {
		t.Errorf("half of it: %+v", got)
	}
}

func TestAReaderChecksFrames(t *testing.T) {
	tally := fresh(t, 100)
	r, err := newReader(Spec{Frames: 100, Full: 80, Paced: 90}, tally)
	if err != nil {
		t.Fatal(err)
	}
	now := r.clock.now()
	show := func(b []byte, redelivered uint16) {
		if err := r.frame(client.Frame{Payload: b, Redelivered: redelivered}); err != nil {
			t.Fatal(err)
		}
	}
	show(payload(0, now), 0)
	show(payload(2, now), 0)
	show(payload(1, now), 0)                   // out of order
	show(payload(2, now), 1)                   // again, marked; and out of order
	show(payload(95, now), 0)                  // paced
	show(payload(85, now), 0)                  // neither, and out of order
	show(payload(100, now), 0)                 // there is no such frame
	show([]byte("something else entirely"), 0) // nor this
	for counter, want := range map[int]uint64{
		tallyFrames: 8, tallyDuplicated: 1, tallyDisordered: 3, tallyCorrupted: 2, tallyRedelivered: 1,
		tallyBytes: bytesOf(0, 3) + uint64(payloadSize(2)+payloadSize(95)+payloadSize(85)+payloadSize(100)) + 23,
	} {
		if got := tally.get(counter); got != want {
			t.Errorf("counter %d is %d, want %d", counter, got, want)
		}
	}
	took := func(histogram int) (n uint64) {
		for b := range tally.latency[histogram] {
			n += tally.latency[histogram][b].Load()
		}
		return n
	}
	if took(latencyFull) != 4 || took(latencyPaced) != 1 || tally.get(tallyMaxPaced) == 0 || tally.get(tallyLastFull) < uint64(now) {
		t.Errorf("%d and %d latencies", took(latencyFull), took(latencyPaced))
	}
}
