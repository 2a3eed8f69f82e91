package door

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestClassesAreThePowersOfTwo(t *testing.T) {
	for v, want := range map[uint64]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 1024: 10, 1025: 11, 1 << 34: 34, 1<<34 + 1: 35, 1 << 50: 35, math.MaxUint64: 35} {
		if got := class(v); got != want {
			t.Errorf("%d is in class %d, want %d", v, got, want)
		}
	}
}

func TestAHistogramLosesNothing(t *testing.T) {
	var h, other Histogram
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for v := range uint64(1000) {
				h.Add(v)
			}
		})
	}
	wg.Wait()
	other.Time(3)
	other.Time(-time.Second) // a clock of somebody's that went back
	var s Spread
	s.Take(&h)
	s.Take(&other)
	var count uint64
	for _, n := range s.Counts {
		count += n
	}
	if count != 4002 || s.Sum != 4*999*500+3 || s.Counts[0] != 2*4+1 || s.Counts[2] != 2*4+1 {
		t.Errorf("%d values, sum %d, %v", count, s.Sum, s.Counts)
	}
}

type snapshot struct {
	n      int
	by     map[string]uint64
	spread Spread
}

func TestFigures(t *testing.T) {
	s := snapshot{n: 7, by: map[string]uint64{"a": 1, "b": 2}}
	var h Histogram
	for _, v := range []uint64{1, 2, 8, 9, 1 << 20} {
		h.Add(v)
	}
	s.spread.Take(&h)
	f := &Figures[snapshot]{
		Prefix: "x_", Labels: prometheus.Labels{"l": "m"}, Stats: func() snapshot { return s },
		Numbers:       []Number[snapshot]{Gauge("n", "N.", func(s *snapshot) float64 { return float64(s.n) })},
		Families:      []Family[snapshot]{{Name: "f", Help: "F.", Label: "k", Kind: prometheus.CounterValue, Of: func(s *snapshot) map[string]float64 { return Floats(s.by) }}},
		Distributions: []Distribution[snapshot]{{Name: "d", Help: "D.", From: 1, To: 3, Unit: 0.5, Of: func(s *snapshot) *Spread { return &s.spread }}},
	}
	registry := prometheus.NewPedanticRegistry()
	check(t, registry.Register(f))
	families, err := registry.Gather()
	check(t, err)
	var got []string
	for _, m := range families {
		for _, v := range m.GetMetric() {
			got = append(got, strings.Join(strings.Fields(m.GetName()+" "+v.String()), " "))
		}
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"x_n", "value:7", `name:"k" value:"a"`, `value:2`, "sample_count:5", "sample_sum:524298",
		"cumulative_count:2 upper_bound:1", "cumulative_count:2 upper_bound:2", "cumulative_count:3 upper_bound:4"} {
		if !strings.Contains(strings.ReplaceAll(text, "  ", " "), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "upper_bound:8") || len(got) != 4 {
		t.Errorf("%d figures:\n%s", len(got), text)
	}
}

func TestTheQueueOfAListenerIsSeen(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0", Settings{Backlog: 7})
	check(t, err)
	defer l.Close()
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		defer c.Close()
	}
	testutil.Eventually(t, "both wait", func() bool { return QueueOf(l).Waiting == 2 })
	if q := QueueOf(l, l); q.Limit != 14 || q.Waiting != 4 || q.Overflows > q.Drops {
		t.Errorf("%+v", q)
	}
	before := QueueOf(l)
	full, err := Listen(t.Context(), "127.0.0.1:0", Settings{Backlog: 1})
	check(t, err)
	defer full.Close()
	testutil.Eventually(t, "a queue that is full is counted", func() bool {
		c, err := net.DialTimeout("tcp", full.Addr().String(), 50*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return QueueOf(full).Overflows > before.Overflows
	})
}

// flaky is a listener that fails as it is told.
type flaky struct {
	net.Listener
	results []error
}

func (f *flaky) Accept() (net.Conn, error) {
	err := f.results[0]
	f.results = f.results[1:]
	near, far := net.Pipe()
	_ = far.Close()
	if err != nil {
		_ = near.Close()
		return nil, err
	}
	return near, nil
}

func (f *flaky) Addr() net.Addr { return &net.UnixAddr{Name: "flaky"} }

func TestAcceptTriesAgain(t *testing.T) {
	var log strings.Builder
	broken := errors.New("broken")
	l := &flaky{results: []error{broken, broken, nil, broken, net.ErrClosed}}
	failures, admitted := 0, 0
	r := &Retry{Log: NewRateLog(slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return 0 }), Fail: func() { failures++ }}
	err := Accept(l, r, func() bool { return false }, func(c net.Conn) { admitted++; _ = c.Close() })
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "flaky was closed by somebody else") || failures != 3 || admitted != 1 {
		t.Errorf("%v, %d failures, %d admitted", err, failures, admitted)
	}
	var pauses []string
	for word := range strings.FieldsSeq(log.String()) {
		if p, ok := strings.CutPrefix(word, "pause="); ok {
			pauses = append(pauses, p)
		}
	}
	if !slices.Equal(pauses, []string{"5ms", "10ms", "5ms"}) {
		t.Errorf("pauses %v in %s", pauses, &log)
	}
	l.results = []error{net.ErrClosed}
	stopping := false
	check(t, Accept(l, r, func() bool { was := stopping; stopping = true; return was }, nil))
	stop := make(chan struct{})
	close(stop)
	r = &Retry{Log: r.Log, Fail: func() {}, Stop: stop, pause: time.Hour}
	r.Failed("x", "it ends at once, and no pause is longer than a second", broken)
	if r.pause != maxPause {
		t.Errorf("a pause of %v", r.pause)
	}
}
