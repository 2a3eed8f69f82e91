package client_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
	"github.com/hugebus/hugebus/internal/testutil"
)

// tortureEnv makes the torture tests last for a duration, such as 30s, instead of for a number of frames or kills.
const tortureEnv = "HUGEBUS_TORTURE"

// duration is what tortureEnv says, or 0.
func duration(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv(tortureEnv)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("%s is %q: use a duration such as 30s", tortureEnv, s)
	}
	return d
}

var styles = []chaos.Style{chaos.Single, chaos.Batch, chaos.Claims, chaos.Mixed}

// TestTorture: 8 publishers, 3 reliable subscribers, a lossy one, an evicting one and a group of 3, each in its own
// process, on a ring of 1 MiB.
func TestTorture(t *testing.T) {
	const publishers, laps = 8, 64
	length := duration(t)
	f := newFleet(t, newWorld(t), publishers, false)
	subscribers := []*vessel{
		f.anchor(), f.subscriber("reliable 1", client.Reliable, 1), f.subscriber("reliable 2", client.Reliable, 256),
		f.subscriber("lossy", client.Lossy, 64), f.subscriber("evict", client.Evict, 64),
	}
	members := []*vessel{f.member("member 0", 1), f.member("member 1", 8), f.member("member 2", 64)}
	began := time.Now()
	var writers []*vessel
	for place := range publishers {
		writers = append(writers, f.publisher(place, styles[place%len(styles)]))
	}
	// Two fall behind for certain: by more than a lap, and by more than the bound.
	f.lap(subscribers[3])
	f.lap(subscribers[4])
	testutil.Eventually(t, "the topic has moved on by some laps", func() bool {
		return f.w.info(t, f.topic).Tail > laps*tortureCapacity
	})
	time.Sleep(time.Until(began.Add(length)))
	f.goOn(writers)
	for _, v := range writers {
		v.Send("stop")
	}
	r := f.finish(writers, subscribers, members)
	if r.Publishers != publishers || r.Gaps == 0 || r.Evictions != 1 {
		t.Errorf("%+v", r)
	}
	seconds := time.Since(began).Seconds()
	t.Logf("%.1f s: %d frames, %d bytes (%.0f frames/s, %.1f MB/s); compared with other readers: %d; gaps: %d, of %d frames; evictions: %d; slowest publish: %v",
		seconds, r.Frames, r.Bytes, float64(r.Frames)/seconds, float64(r.Bytes)/seconds/1e6, r.Compared, r.Gaps, r.Missed, r.Evictions, f.longest)
}

// lap stops a reader until the topic has moved on by two laps.
func (f *fleet) lap(v *vessel) {
	f.t.Helper()
	v.Halt()
	from := f.w.info(f.t, f.topic).Tail
	testutil.Eventually(f.t, "publishers go on for two laps", func() bool {
		return f.w.info(f.t, f.topic).Tail > from+2*tortureCapacity
	})
	v.Signal(contSignal)
}

// TestTortureWithKills kills processes of every kind at random times, by SIGKILL, and starts others in their place. One
// reliable subscriber lives: it must see every frame whose publishing returned.
func TestTortureWithKills(t *testing.T) {
	tortureWithKills(t, newWorld(t), nil)
}

// tortureAtFailpoints is the same with processes most of which kill themselves: at one of the points that their kind
// passes, when they pass it for some number of times.
func tortureAtFailpoints(t *testing.T, w *world) {
	tortureWithKills(t, w, func(random *rand.Rand, points []string) string {
		return fmt.Sprintf("%s=kill@%d", points[random.IntN(len(points))], 1+random.IntN(1<<random.IntN(13)))
	})
}

func tortureWithKills(t *testing.T, w *world, arm func(random *rand.Rand, points []string) string) {
	const publishers, kills = 4, 20
	length := duration(t)
	random := rand.New(rand.NewPCG(uint64(testutil.Seed(t)), 0))
	f := newFleet(t, w, publishers, true)
	if arm != nil {
		f.arm = func(points []string) string { return arm(random, points) }
	}
	anchor := f.anchor()
	crew := f.crew(publishers)
	began := time.Now()
	killed := map[string]int{}
	for n := 0; n < kills || time.Since(began) < length; n++ {
		// Not to wait for anything: so that each kill finds its victim somewhere else.
		time.Sleep(time.Duration(random.IntN(30000)) * time.Microsecond)
		i := slices.IndexFunc(crew, (*vessel).dead)
		if i < 0 {
			i = random.IntN(len(crew))
		}
		v := crew[i]
		v.Kill()
		if v.again == nil {
			t.Fatalf("%s was killed", v.name)
		}
		kind, _, _ := strings.Cut(v.name, " ")
		killed[kind]++
		if kind == "publisher" {
			f.gone(v)
		}
		crew[i] = v.again()
	}
	f.arm = nil
	crew = f.replaceDead(crew)
	f.goOn(crew[readersOfCrew:])
	for _, v := range crew[readersOfCrew:] {
		v.Send("stop")
	}
	info := f.w.info(t, f.topic)
	r := f.finish(crew[readersOfCrew:], append([]*vessel{anchor}, crew[:4]...), crew[4:readersOfCrew])
	if r.Frames == 0 {
		t.Error("nothing was published")
	}
	t.Logf("%.1f s: killed %v; %d frames of %d publishers; compared with other readers: %d; redelivered %d; repairs %d, of %d bytes",
		time.Since(began).Seconds(), killed, r.Frames, r.Publishers, r.Compared, r.Redelivered, info.Repairs, info.RepairedBytes)
}

// readersOfCrew is how many of a crew read; the others publish.
const readersOfCrew = 7

// crew starts four subscribers, three members, and some publishers.
func (f *fleet) crew(publishers int) []*vessel {
	f.t.Helper()
	crew := []*vessel{
		f.subscriber("reliable 1", client.Reliable, 1), f.subscriber("reliable 2", client.Reliable, 256),
		f.subscriber("lossy", client.Lossy, 64), f.subscriber("evict", client.Evict, 64),
		f.member("member 0", 1), f.member("member 1", 8), f.member("member 2", 64),
	}
	for place := range publishers {
		crew = append(crew, f.publisher(place, styles[place]))
	}
	return crew
}

// replaceDead replaces all that may die by themselves by others that do not.
func (f *fleet) replaceDead(crew []*vessel) []*vessel {
	f.t.Helper()
	for i, v := range crew {
		v.Kill()
		if i >= readersOfCrew {
			f.gone(v)
		}
		crew[i] = v.again()
	}
	return crew
}
