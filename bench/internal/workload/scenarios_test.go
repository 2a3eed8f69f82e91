package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/internal/sys"
)

func TestClockAgreesWithTheHosts(t *testing.T) {
	c, err := newClock()
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		before, err := sys.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		now := c.now()
		after, err := sys.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		// The closest of many readings was taken, which lies within a microsecond even on a busy machine;
		// a wrong offset is off by the time since the machine began.
		const tolerance = 50 * time.Microsecond
		if now < before-tolerance || now > after+tolerance {
			t.Fatalf("the clock says %v between %v and %v", now, before, after)
		}
	}
}

func TestFallingBehindIsSeen(t *testing.T) {
	p := RateParams{PeerParams{Nanoseconds: 1e9}, 1000}
	good := Sent{Rate: report.Rate{Frames: 1000, Nanoseconds: 1e9}}
	for name, c := range map[string]struct {
		sent Sent
		got  Received
		want bool
	}{
		"in time":                    {good, Received{Late: 1e5}, false},
		"sender held up":             {Sent{Rate: report.Rate{Frames: 1000, Nanoseconds: 12e8}}, Received{}, true},
		"late at the end":            {Sent{Rate: good.Rate, Late: 3e7}, Received{}, true},
		"piles up between the sides": {good, Received{Late: 5e8}, true},
	} {
		if got := behind(p, c.sent, c.got); got != c.want {
			t.Errorf("%s: behind is %v, want %v", name, got, c.want)
		}
	}
}

func tally(ns int64, sums ...Sum) Tally {
	t := Tally{Sums: sums, Rate: report.Rate{Nanoseconds: ns}}
	for _, s := range sums {
		t.Frames += s.Frames
	}
	return t
}

func TestReadersAreHeldToWhatWasPublished(t *testing.T) {
	published := []Tally{tally(5, Sum{10, 45}, Sum{}), tally(5, Sum{}, Sum{3, 3})}
	all, part, rest := tally(7, Sum{10, 45}, Sum{3, 3}), tally(6, Sum{4, 6}, Sum{3, 3}), tally(9, Sum{6, 39}, Sum{})
	for name, c := range map[string]struct {
		group string
		read  []Tally
		want  string
	}{
		"each has all":         {"", []Tally{all, all}, ""},
		"one misses some":      {"", []Tally{all, part}, "of publisher 0 4 frames were read instead of 10"},
		"a group shares":       {"g", []Tally{part, rest}, ""},
		"a group misses some":  {"g", []Tally{part, part}, "of publisher 0 8 frames were read instead of 10"},
		"a group has it twice": {"g", []Tally{all, part}, "of publisher 0 14 frames were read instead of 10"},
		"other ones":           {"", []Tally{tally(7, Sum{10, 46}, Sum{3, 3})}, "(or other ones)"},
	} {
		f := &fanCase{params: FanParams{Group: c.group}}
		rate, err := f.judge(published, c.read)
		if c.want == "" && (err != nil || rate.Frames != 13) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, %v", name, rate, err)
		}
	}
}

func TestFiguresAreSummedOverTopics(t *testing.T) {
	text := "# HELP hugebus_missed_wakeups_total x\nhugebus_missed_wakeups_total{topic=\"a b\"} 3\n" +
		"hugebus_missed_wakeups_total{topic=\"c\"} 4\nhugebus_missed_wakeups_total_other 9\nhugebus_frames_total{topic=\"c\"} 7\n"
	if n, err := sumMetric(strings.NewReader(text), "hugebus_missed_wakeups_total"); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := sumMetric(strings.NewReader("x{} y\n"), "x"); err == nil {
		t.Error("no error for what is no number")
	}
}

func TestThreadsOfThisProcess(t *testing.T) {
	if n, err := threads("/proc/self/status"); err != nil || n < 1 {
		t.Errorf("%d, %v", n, err)
	}
}
