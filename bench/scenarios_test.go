package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// scenarioTests are those of all other scenarios.
func scenarioTests(t *testing.T, program string) {
	t.Run("rate", func(t *testing.T) { smokeRate(t, program) })
	t.Run("fanout", func(t *testing.T) { smokeFan(t, program, "fanout", "1", "1,3") })
	t.Run("fanin", func(t *testing.T) { smokeFan(t, program, "fanin", "1,3", "1") })
	t.Run("group", func(t *testing.T) { smokeFan(t, program, "group", "3", "3") })
	t.Run("wakeup", func(t *testing.T) { smokeWakeup(t, program) })
	t.Run("pages", func(t *testing.T) { smokePages(t, program) })
	t.Run("gc", func(t *testing.T) { smokeGC(t, program) })
	t.Run("start", func(t *testing.T) { smokeStart(t, program) })
	t.Run("ingress", func(t *testing.T) { smokeIngress(t, program) })
	t.Run("push", func(t *testing.T) { smokePush(t, program) })
	t.Run("all", func(t *testing.T) { smokeAll(t, program) })
}

// of returns the results of a scenario.
func of(results []object, scenario string) []object {
	var found []object
	for _, o := range results {
		if o["scenario"] == scenario {
			found = append(found, o)
		}
	}
	return found
}

func smokeRate(t *testing.T, program string) {
	results := measure(t, program, "rate", "--rate", "1k,20k", "--duration", "50ms", "--size", "16,100", "--systems", "hugebus,unix,tcp,nats",
		"--wait", "adaptive", "--raw-duration", "5ms")
	rates := of(results, "rate")
	if len(rates) != 2*2*4 {
		t.Fatalf("%d results, want one for each size, rate and system", len(rates))
	}
	for _, o := range rates {
		target := o.number(t, "target_per_s")
		// All are sent, however late, unless the machine is so busy that a round was cut short.
		if frames := o.number(t, "frames"); frames > 2*0.05*target || frames < 2*0.05*target && o["behind"] != true {
			t.Errorf("%v frames at %v/s: %v", frames, target, o)
		}
		o.number(t, "p50_ns")
		o.number(t, "frames_per_s")
	}
}

func smokeFan(t *testing.T, program, scenario, publishers, readers string) {
	for _, batch := range []string{"1", "7"} {
		results := of(measure(t, program, scenario, "--publishers", publishers, "--readers", readers, "--count", "3000", "--batch", batch,
			"--size", "8,100", "--capacity", "64KiB", "--raw-duration", "5ms"), scenario)
		if want := 2 * (1 + strings.Count(publishers+readers, ",")); len(results) != want {
			t.Fatalf("%d results, want %d", len(results), want)
		}
		for _, o := range results {
			if want := 2 * 3000 * o.number(t, "publishers"); o["frames"] != want {
				t.Errorf("%v frames were published, want %v: %v", o["frames"], want, o)
			}
			o.number(t, "frames_per_s")
		}
	}
}

func smokeWakeup(t *testing.T, program string) {
	results := measureAny(t, program, "wakeup", "--count", "50", "--rate", "500", "--duration", "50ms", "--raw-duration", "5ms",
		"--idle", "200ms", "--subscriptions", "1,130", "--missed", "500")
	for scenario, count := range map[string]int{"raw-futex": 1, "latency": 4, "cpu": 2, "missed-wakeups": 1, "idle": 2} {
		if got := of(results, scenario); len(got) != count {
			t.Errorf("%d results of %s, want %d", len(got), scenario, count)
		}
	}
	for _, o := range append(of(results, "latency"), of(results, "raw-futex")...) {
		// --duration bounds a round as well, for the slow stream.
		if n := o.number(t, "frames"); n > 100 {
			t.Errorf("%v frames were checked, want 100 at most: %v", n, o)
		}
		o.number(t, "p50_ns")
	}
	for _, o := range of(results, "cpu") {
		o.number(t, "cpu")
		o.number(t, "frames")
	}
	for _, o := range of(results, "missed-wakeups") {
		if o.number(t, "frames") != 500 {
			t.Errorf("%v", o)
		}
		o.number(t, "sleeps")
		if _, counted := o["missed_wakeups"]; !counted {
			t.Errorf("missed wake-ups are not counted: %v", o)
		}
	}
	for i, o := range of(results, "idle") {
		if o["subscribers"] != []float64{1, 130}[i] {
			t.Errorf("%v", o)
		}
		// No thread for each subscription.
		if threads := o.number(t, "threads"); threads > 100 {
			t.Errorf("%v threads wait: %v", threads, o)
		}
		for _, name := range []string{"cpu", "broker_cpu"} {
			if _, counted := o[name]; !counted {
				t.Errorf("%s is not there: %v", name, o)
			}
		}
	}
}

func smokePages(t *testing.T, program string) {
	results := of(measureAny(t, program, "pages", "--count", "5000", "--rings", "64KiB,2MiB", "--kinds", "4KiB,2MiB", "--raw-duration", "5ms"), "pages")
	seen := 0
	for _, o := range results {
		seen += strings.Count(o["variant"].(string), "4KiB pages")
		if o["frames"] != 10000.0 {
			t.Errorf("%v frames were checked, want 10000: %v", o["frames"], o)
		}
		if _, counted := o["page_faults"]; !counted {
			t.Errorf("page faults are not counted: %v", o)
		}
	}
	// Huge pages may not be there, small ones are.
	if seen != 2 {
		t.Errorf("%d results on 4 KiB pages, want 2: %v", seen, results)
	}
}

func smokeGC(t *testing.T, program string) {
	results := of(measure(t, program, "gc", "--heap", "8MiB", "--alloc", "32MiB", "--duration", "300ms", "--raw-duration", "5ms"), "gc")
	if len(results) != 2 {
		t.Fatalf("%d results, want 2", len(results))
	}
	if results[0]["gc_cycles"] != 0.0 {
		t.Errorf("collections without a heap: %v", results[0])
	}
	results[1].number(t, "gc_cycles")
	for _, o := range results {
		o.number(t, "p50_ns")
	}
}

func smokeStart(t *testing.T, program string) {
	results := measure(t, program, "start", "--count", "5000", "--capacity", "64KiB", "--raw-duration", "5ms")
	if n, m := len(of(results, "start")), len(of(results, "attach")); n != 2 || m != 2 {
		t.Fatalf("%d and %d results, want 2 and 2", n, m)
	}
	for _, o := range of(results, "start") {
		o.number(t, "frames_per_s")
		if o["frames"] != 1000.0 {
			t.Errorf("stretches of %v frames, want 500 in each of two rounds", o["frames"])
		}
	}
	for _, o := range of(results, "attach") {
		o.number(t, "p50_ns")
	}
}

func smokeAll(t *testing.T, program string) {
	dir := t.TempDir()
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{"all", "--smoke", "--json", "--only", "latency,group,raw", "--html", dir + "/all.html"}})
	p.Succeed()
	var results []object
	if err := json.Unmarshal([]byte(p.Stdout()), &results); err != nil {
		t.Fatalf("%v in %s", err, p.Stdout())
	}
	for _, scenario := range []string{"latency", "group", "raw-rtt", "raw-transfer"} {
		if len(of(results, scenario)) == 0 {
			t.Errorf("nothing of %s", scenario)
		}
	}
	page, err := os.ReadFile(dir + "/all.html")
	if err != nil || !strings.Contains(string(page), "<h2>group: Measure 4 publishers") || !strings.Contains(string(page), "bench all --smoke") {
		t.Errorf("the page, %v: %.300s", err, page)
	}
}

func TestWrongFlagsOfScenariosAreRefusedWithTheRemedy(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"rate --rate 0", `--rate "0": use a number from 1 to 1G, such as 10k or 1M`},
		{"rate --rate 2M5", `--rate "2M5": use a number`},
		{"rate --size 8", "--size 8: use from 16 to"},
		{"rate --duration 0", "nothing bounds a round"},
		{"rate --systems zeromq", "use some of hugebus, unix, tcp, nats, redis"},
		{"rate --wait poll", "--wait: "},
		{"fanout --readers 0", "--publishers 1 --readers 0: use from 1 to 32 of each"},
		{"fanin --publishers 33", "use from 1 to 32 of each"},
		{"group --wait poll", "no --wait poll"},
		{"pages --rings 3MiB", "--rings: --capacity 3MiB: use a power of two"},
		{"pages --kinds auto", `--kinds "auto": use 4KiB, thp, 2MiB or 1GiB`},
		{"gc --heap 1KiB", `--heap "1KiB": use from 1MiB to 64GiB`},
		{"gc --gogc 0", "--gogc 0: use at least 1"},
		{"all --only pigeons", `--only "pigeons": use some of compare, latency`},
		{"wakeup --missed -1", "--missed -1: use from 0 to"},
		{"wakeup --subscriptions 0", "--subscriptions 0: use from 1 to 10000"},
		{"wakeup --idle 1ms", "--idle 1ms: use 0, or at least 40ms"},
	} {
		root := newRoot()
		root.SetArgs(strings.Split(c.args, " "))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.args, err, c.want)
		}
	}
}

func TestRatesAreReadWithTheirPrefix(t *testing.T) {
	for text, want := range map[string]float64{"1": 1, "10k": 1e4, "2.5M": 2.5e6, "1G": 1e9} {
		if got, err := parseRate(text); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
