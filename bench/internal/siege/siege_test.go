package siege

import (
	"bytes"
	"container/heap"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestScheduleIsReadAsItWasWritten(t *testing.T) {
	s := Schedule{{At: 5, Who: "a", Do: doStart, Arm: "p=kill@3"}, {At: time.Hour, Who: "b", Do: doTerm}}
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSchedule(&b); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"{\"do\":\"kill\"}\nnonsense": "line 2", `{"do":"explode"}`: `cannot do "explode"`,
	} {
		if _, err := ReadSchedule(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCalendarGivesTheEarliestFirst(t *testing.T) {
	var c calendar
	for _, at := range []time.Duration{5, 1, 3, 2, 4} {
		heap.Push(&c, Action{At: at})
	}
	for want := time.Duration(1); want <= 5; want++ {
		if a := heap.Pop(&c).(Action); a.At != want {
			t.Errorf("%v came instead of %v", a.At, want)
		}
	}
}

func TestChancePrefersPointsAtWhichFewHaveDied(t *testing.T) {
	c := newChance(1)
	c.killed = map[string]int{"often": 1000, "seldom": 0}
	n := map[string]int{}
	for range 1000 {
		for _, a := range c.arm([]string{"often", "seldom"}, 1) {
			n[a.point]++
			if a.at < 1 || a.at > 32 {
				t.Fatalf("at hit %d", a.at)
			}
		}
	}
	if n["often"] > 10 || n["seldom"] < 750 || n["seldom"] > 950 {
		t.Errorf("%v", n)
	}
	if c.arm(nil, 1) != nil {
		t.Error("armed without a point")
	}
	for range 10 {
		if all := c.arm([]string{"a", "b", "c"}, 5); len(all) != 0 && len(all) != 3 {
			t.Errorf("armed at %s", formatArmings(all))
		}
	}
}

func TestChanceComesDownToWhatIsReached(t *testing.T) {
	c := newChance(1)
	for range 20 {
		c.missed(c.choose([]string{"rare"}))
	}
	for range 100 {
		if a := c.choose([]string{"rare"}); a.at != 1 {
			t.Fatalf("at hit %d, of a point that is never reached", a.at)
		}
	}
	for range 20 {
		c.fired(&arming{point: "rare"})
	}
	highest := 0
	for range 200 {
		highest = max(highest, c.choose([]string{"rare"}).at)
	}
	if highest < 256 || highest > mostHits {
		t.Errorf("at hit %d at most, of a point that is always reached", highest)
	}
}

func TestArmingIsReadAsItWasWritten(t *testing.T) {
	for _, text := range []string{"", "ring/x=kill@7", "y=stop@1;z=kill@2"} {
		if got := formatArmings(parseArmings(text)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestCensusNamesWhatIsMore(t *testing.T) {
	before, err := takeCensus(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	now, err := takeCensus(os.Getpid())
	f.Close()
	if more := before.More(now); err != nil || len(more) != 1 || more[0] != "1 x descriptor of /dev/null" {
		t.Errorf("%v, %v", more, err)
	}
	if more := now.More(before); len(more) != 0 {
		t.Errorf("less is not more: %v", more)
	}
}

func TestCounterGoesOnWhenTheBrokerBeginsAnew(t *testing.T) {
	var c counter
	for _, n := range []uint64{3, 5, 5, 2, 4} {
		c.see(n)
	}
	if c.sum != 9 {
		t.Errorf("%d, want 5 and 4", c.sum)
	}
}

func TestBrokerIsArmedAtPointsOfOneKind(t *testing.T) {
	c := newChance(1)
	for _, p := range append(slices.Clone(mendPoints), servePoints...) {
		c.killed[p] = 100
	}
	adopts := 0
	for range 200 {
		for _, a := range c.armBroker(true) {
			if slices.Contains(adoptPoints, a.point) {
				adopts++
			}
		}
		for _, a := range c.armBroker(false) {
			if !slices.Contains(servePoints, a.point) || a.at < 2 {
				t.Fatalf("armed with %v after a broker that never served", a)
			}
		}
	}
	if adopts < 150 {
		t.Errorf("only %d of 200 at points at which none has died", adopts)
	}
}

func TestWhoIsOnItsWayToARarePointIsSpared(t *testing.T) {
	c := newChance(1)
	c.killed = map[string]int{"often": Enough}
	spared := map[string]int{}
	for range 400 {
		for _, p := range []string{"often", "seldom"} {
			if c.spares([]*arming{{point: p}}) {
				spared[p]++
			}
		}
	}
	if spared["often"] > 0 || spared["seldom"] < 250 || spared["seldom"] > 350 || c.spares(nil) {
		t.Errorf("%v", spared)
	}
}

func TestResultNamesPointsAtWhichFewDied(t *testing.T) {
	r := Result{Points: map[string]Point{"a": {Kills: 3}, "b": {Kills: Enough}}, Rare: []string{"a"}}
	if got := r.coverage(); got != "fewer than 10 processes killed at 1 of 2 failpoints: a 3" {
		t.Error(got)
	}
	r.Rare = nil
	if got := r.coverage(); got != "each of 2 failpoints: at least 10 processes killed" {
		t.Error(got)
	}
}
