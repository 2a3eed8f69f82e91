package raw

import (
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/shm"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// heap is a segment on the Go heap, so that the race detector sees what both sides do.
func heap(t *testing.T, region int) memory {
	t.Helper()
	m, err := view(testutil.AlignedBytes(offLines + region))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// together runs both sides of a round.
func together(a, b func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b()
	}()
	a()
	<-done
}

func TestEveryWayOfARoundTripCountsItsTrips(t *testing.T) {
	m := heap(t, 64)
	for i, trip := range Trips {
		p := TripParams{Trip: trip, Round: uint64(i + 1), Count: 200}
		h := report.NewHistogram()
		together(func() { ping(m, p, h) }, func() { echo(m, p) })
		if h.Count() != 200 {
			t.Errorf("%s: %d trips, want 200", trip, h.Count())
		}
	}
}

func TestARoundTripEndsWithItsDuration(t *testing.T) {
	m := heap(t, 64)
	p := TripParams{Round: 1, Duration: time.Millisecond}
	h := report.NewHistogram()
	together(func() { ping(m, p, h) }, func() { echo(m, p) })
	if h.Count() == 0 {
		t.Error("no trips")
	}
}

func TestATransferArrivesWhole(t *testing.T) {
	m := heap(t, 64*64)
	round := uint64(0)
	for _, c := range []struct {
		transfer Transfer
		count    int64
		want     int64
	}{
		{Transfer{Block: 1, Region: 64 * 64, Pause: 1}, 1000, 1000},
		{Transfer{Block: 16, Region: 64 * 64, Prefetch: 24}, 1000, 1008}, // whole blocks
		{Transfer{Block: 24, Region: 64 * 64, Prefetch: 8, Pause: 64}, 1, 24},
	} {
		round++
		p := TransferParams{Transfer: c.transfer, Round: round, Count: c.count}
		var got report.Rate
		var err error
		together(func() { fill(m, p) }, func() { got, err = drain(m, p) })
		if err != nil || got.Frames != c.want || got.Nanoseconds <= 0 {
			t.Errorf("%s: %+v, %v; want %d lines", c.transfer, got, err, c.want)
		}
	}
}

func TestATransferThatArrivesChangedIsAnError(t *testing.T) {
	m := heap(t, 64*64)
	p := TransferParams{Transfer: Transfer{Block: 2, Region: 64 * 64}, Round: 1, Count: 100}
	p.write(m.lines, 1)
	for word := range lineWords {
		m.lines[1][word] ^= 1 << 40
		err := p.read(m.lines, 1)
		if err == nil || err.Error() != "raw: block 1 arrived changed" {
			t.Errorf("word %d: got %v", word, err)
		}
		m.lines[1][word] ^= 1 << 40
	}
	if err := p.read(m.lines, 1); err != nil {
		t.Errorf("whole: %v", err)
	}
}

func TestTransfersThatDoNotFitNameTheRemedy(t *testing.T) {
	for _, c := range []struct {
		transfer Transfer
		want     string
	}{
		{Transfer{Block: 0, Region: 1024}, "raw: a block of 0 lines: use at least 1"},
		{Transfer{Block: 16, Region: 1024}, "raw: a region of 1024 bytes holds less than two blocks of 16 lines: use at least 2048 bytes"},
		{Transfer{Block: 1, Region: 8192}, "raw: a region of 8192 bytes is above the segment's 4096"},
	} {
		if err := c.transfer.Check(4096); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, way := range Ways(4096, 16) {
		if err := way.Check(4096); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}

func TestViewRefusesWhatIsTooSmallOrNotAligned(t *testing.T) {
	if _, err := view(testutil.AlignedBytes(offLines)); err == nil || !strings.Contains(err.Error(), "use at least 4160") {
		t.Errorf("too small: %v", err)
	}
	if _, err := view(testutil.AlignedBytes(offLines + 128)[8:]); err == nil || !strings.Contains(err.Error(), "start at a cache line") {
		t.Errorf("not aligned: %v", err)
	}
}

func TestWordsOfDifferentWritersAreApart(t *testing.T) {
	offsets := []int{offPing, offPong, offFilled, offEmptied, offLines}
	for i := 1; i < len(offsets); i++ {
		if offsets[i]-offsets[i-1] < arch.FalseSharing {
			t.Errorf("words at %d and %d share lines", offsets[i-1], offsets[i])
		}
	}
}

func TestLimitsPicksTheBestOfTheWays(t *testing.T) {
	l, err := NewLimits(Trips[:2], Ways(64<<10, 16), shm.Pages4KiB, Bounds{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := len(l.Cases()); n != 5 {
		t.Errorf("%d cases, want 5", n)
	}
	for i, ns := range []int64{500, 400} {
		h := report.NewHistogram()
		h.Record(ns)
		l.trips[i].rounds = []*report.Histogram{h}
	}
	if best := l.RoundTrip(); best.P50 != 400 || best.Variant != Trips[1].String() || best.System != System || best.Scenario != ScenarioRoundTrip {
		t.Errorf("best round trip %+v", best)
	}
	for i, lines := range []int64{10, 30, 20} {
		l.transfers[i].rounds = []report.Rate{{Frames: lines, Nanoseconds: 1e9}}
	}
	best := l.Transfers()[0]
	if best.FramesPerSecond != 30 || best.BytesPerSecond != 30*64 || best.Batch != 16 || best.Scenario != ScenarioTransfer {
		t.Errorf("best transfer %+v", best)
	}
}

func TestLimitsNeedTransfersThatFit(t *testing.T) {
	if _, err := NewLimits(nil, []Transfer{{Block: 100, Region: 4096}}, shm.PagesAuto, Bounds{Count: 1}); err == nil {
		t.Error("a block larger than its region was accepted")
	}
	l, err := NewLimits(nil, nil, shm.PagesAuto, Bounds{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r := l.RoundTrip(); r != (report.Result{}) {
		t.Errorf("a round trip that was not measured: %+v", r)
	}
}
