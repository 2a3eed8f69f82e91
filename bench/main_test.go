package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// quick makes a smoke run short: it must run and check its data, and no time is
// asserted.
var quick = []string{"--rounds", "2", "--json"}

// object is a result as a program sees it.
type object map[string]any

func (o object) number(t *testing.T, name string) float64 {
	t.Helper()
	n, ok := o[name].(float64)
	if !ok || n <= 0 {
		t.Errorf("%s of %v is %v, want a number above 0", name, o["scenario"], o[name])
	}
	return n
}

// measure runs the program and returns its results, which are all of two rounds.
func measure(t *testing.T, program string, args ...string) []object {
	t.Helper()
	objects := measureAny(t, program, args...)
	for _, o := range objects {
		if o["rounds"] != 2.0 {
			t.Errorf("rounds %v, want 2", o["rounds"])
		}
	}
	return objects
}

// measureAny is measure for scenarios that do some things once.
func measureAny(t *testing.T, program string, args ...string) []object {
	t.Helper()
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: append(args, quick...)})
	p.Succeed()
	var objects []object
	if err := json.Unmarshal([]byte(p.Stdout()), &objects); err != nil {
		t.Fatalf("%v: %v in %s", args, err, p.Stdout())
	}
	for _, o := range objects {
		o.number(t, "raw_rtt_p50_ns")
	}
	return objects
}

var latencies = []string{"p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"}

func TestBench(t *testing.T) {
	program := testutil.BuildTagged(t, "github.com/hugebus/hugebus/bench", "")
	t.Run("compare", func(t *testing.T) { compareTests(t, program) })
	t.Run("scenarios", func(t *testing.T) { scenarioTests(t, program) })
	t.Run("latency", func(t *testing.T) { smokeLatency(t, program) })
	t.Run("throughput", func(t *testing.T) { smokeThroughput(t, program) })
	t.Run("large payloads", func(t *testing.T) { smokeLarge(t, program) })
	t.Run("raw", func(t *testing.T) { smokeRaw(t, program) })
	t.Run("table", func(t *testing.T) { smokeTable(t, program) })
	t.Run("worker dies", func(t *testing.T) { workerDies(t, program) })
	t.Run("killed", func(t *testing.T) { killed(t, program) })
	t.Run("interrupted", func(t *testing.T) { interrupted(t, program) })
	t.Run("restart", func(t *testing.T) { smokeRestart(t, program) })
}

func smokeLatency(t *testing.T, program string) {
	for _, wait := range []string{"spin", "poll", "adaptive", "sleep"} {
		results := measure(t, program, "latency", "--size", "8,48,1KiB", "--batch", "1,4", "--count", "50",
			"--raw-duration", "5ms", "--capacity", "64KiB", "--wait", wait)
		if len(results) != 7 {
			t.Fatalf("%d results, want 6 and the raw one", len(results))
		}
		for i, size := range []float64{8, 8, 48, 48, 1024, 1024} {
			o, batch := results[i], []float64{1, 4}[i%2]
			if o["scenario"] != "latency" || o["system"] != "hugebus" || o["payload_bytes"] != size || o["batch"] != batch {
				t.Errorf("result %d is %v", i, o)
			}
			if o["frames"] != 2*50*batch {
				t.Errorf("%v frames were checked, want %v", o["frames"], 2*50*batch)
			}
			last := 0.0
			for _, name := range latencies {
				n := o.number(t, name)
				if n < last {
					t.Errorf("%s is below the percentile before it: %v", name, o)
				}
				last = n
			}
			if _, ok := o["frames_per_s"]; ok {
				t.Errorf("a latency with a rate: %v", o)
			}
		}
		if raw := results[6]; raw["system"] != "raw" || raw["scenario"] != "raw-rtt" || raw["p50_ns"] != raw["raw_rtt_p50_ns"] {
			t.Errorf("the last result is %v", raw)
		}
	}
}

func smokeThroughput(t *testing.T, program string) {
	for _, way := range [][]string{
		{"--batch", "1,16"}, {"--mode", "exclusive", "--batch", "1,16"}, {"--claim"}, {"--claim", "--write", "seq", "--read", "all"},
		{"--read", "all", "--wait", "poll", "--pause", "4", "--poll-limit", "7"},
	} {
		args := append([]string{"throughput", "--count", "20000", "--raw-duration", "5ms", "--capacity", "64KiB"}, way...)
		results := measure(t, program, args...)
		streams := results[:len(results)-2]
		if batches := len(streams); batches != 1+strings.Count(strings.Join(way, " "), ",") {
			t.Fatalf("%v: %d results", way, len(results))
		}
		for _, o := range streams {
			if o["scenario"] != "throughput" || o["system"] != "hugebus" || o["payload_bytes"] != 48.0 {
				t.Errorf("%v: %v", way, o)
			}
			if o["frames"] != 40000.0 {
				t.Errorf("%v: %v frames were checked, want 40000", way, o["frames"])
			}
			rate, bytes := o.number(t, "frames_per_s"), o.number(t, "bytes_per_s")
			if ratio := bytes / rate; ratio < 47.99 || ratio > 48.01 {
				t.Errorf("%v: %v bytes a frame, want 48", way, ratio)
			}
			if _, ok := o["p50_ns"]; ok {
				t.Errorf("%v: a throughput with a latency: %v", way, o)
			}
		}
		for i, scenario := range []string{"raw-rtt", "raw-transfer"} {
			if o := results[len(streams)+i]; o["scenario"] != scenario || o["system"] != "raw" {
				t.Errorf("%v: %v, want %s", way, o, scenario)
			}
		}
	}
}

func smokeLarge(t *testing.T, program string) {
	results := measure(t, program, "throughput", "--size", "64KiB,100001", "--batch", "1,3", "--read", "all",
		"--duration", "20ms", "--raw-duration", "5ms", "--capacity", "1MiB")
	for _, o := range results[:4] {
		o.number(t, "frames")
		o.number(t, "frames_per_s")
	}
}

func smokeRaw(t *testing.T, program string) {
	results := measure(t, program, "raw", "--size", "4KiB,64KiB", "--batch", "16,256", "--duration", "5ms")
	trips, transfers := 0, 0
	for _, o := range results {
		switch o["scenario"] {
		case "raw-rtt":
			trips++
			for _, name := range latencies {
				o.number(t, name)
			}
		case "raw-transfer":
			transfers++
			o.number(t, "frames_per_s")
			if o["payload_bytes"] != 64.0 {
				t.Errorf("a line of %v bytes", o["payload_bytes"])
			}
		}
	}
	// Three ways each: 4 KiB hold two blocks of 16 lines and more, and not two of 256.
	if trips != 6 || transfers != 9 {
		t.Errorf("%d round trips and %d transfers, want 6 and 9", trips, transfers)
	}
}

func smokeTable(t *testing.T, program string) {
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{"latency", "--count", "20", "--rounds", "1", "--raw-duration", "5ms", "--capacity", "64KiB", "--cores", "none"}})
	p.Succeed()
	for _, want := range []string{"p99.99", "p50/raw", "hugebus", "raw-rtt", "Cores any, shared topics of 64KiB"} {
		if !strings.Contains(p.Stdout(), want) {
			t.Errorf("%q is not in the output:\n%s", want, p.Stdout())
		}
	}
	if !strings.Contains(p.Stderr(), "bench: warning: the processes are not pinned") {
		t.Errorf("no warning for want of pinning:\n%s", p.Stderr())
	}
}

// endless starts a run that does not end by itself, and waits for its two workers.
func endless(t *testing.T, program string) (*testutil.Proc, []int) {
	t.Helper()
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{"throughput", "--duration", "1h", "--rounds", "1", "--raw-duration", "5ms", "--capacity", "64KiB"}})
	var workers []int
	testutil.Eventually(t, "two workers", func() bool {
		workers = children(t, p.Pid())
		return len(workers) == 2
	})
	return p, workers
}

// children are the running children of a process.
func children(t *testing.T, parent int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		var pid, ppid int
		var state string
		fields := string(text[strings.LastIndexByte(string(text), ')')+1:])
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(fields, &state, &ppid); err != nil {
			t.Fatal(err)
		}
		if ppid == parent && state != "Z" {
			found = append(found, pid)
		}
	}
	return found
}

func workerDies(t *testing.T, program string) {
	p, workers := endless(t, program)
	victim, err := os.FindProcess(workers[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	state := p.Wait()
	if state.ExitCode() != 1 {
		t.Errorf("exit status %d, want 1", state.ExitCode())
	}
	if want := fmt.Sprintf("(process %d", workers[0]); !strings.Contains(p.Stderr(), want) || !strings.Contains(p.Stderr(), "signal: killed") {
		t.Errorf("the message does not say who died and how:\n%s", p.Stderr())
	}
	gone(t, workers)
}

func killed(t *testing.T, program string) {
	p, workers := endless(t, program)
	p.Kill()
	gone(t, workers)
}

func interrupted(t *testing.T, program string) {
	p, workers := endless(t, program)
	p.Signal(unix.SIGINT)
	if state := p.Wait(); state.ExitCode() != 1 || !strings.Contains(p.Stderr(), "bench: interrupted") {
		t.Errorf("exit status %d\n%s", state.ExitCode(), p.Stderr())
	}
	gone(t, workers)
}

// gone waits until processes that are nobody's children any more have ended.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		testutil.Eventually(t, fmt.Sprintf("worker %d ends", pid), func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return err != nil || !strings.Contains(string(text), workerCommand)
		})
	}
}

func TestWrongFlagsAreRefusedWithTheRemedy(t *testing.T) {
	allowed, err := sys.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"latency --size 0", "--size 0: use from 8 to"},
		{"latency --size 48,x", `--size: `},
		{"latency --size ", "--size is empty: give one size or several, as in 48,1KiB"},
		{"latency --size 1MiB --capacity 1MiB", "use --capacity 8MiB"},
		{"latency --batch 0", "--batch 0: use from 1 to 65536"},
		{"latency --batch -1", "--batch -1: use from 1 to 65536"},
		{"throughput --batch 65537", "--batch 65537: use from 1 to 65536"},
		{"throughput --rounds 0", "--rounds 0: use at least 1"},
		{"throughput --count -1", "--count -1 is negative: use 0 for no bound"},
		{"throughput --duration -1s", "--duration -1s is negative: use 0 for no bound"},
		{"throughput --duration 0", "nothing bounds a round: give --count or --duration"},
		{"throughput --mode both", `--mode "both": use shared or exclusive`},
		{"throughput --claim --batch 16", "--claim: a claim is one frame; use --batch 1"},
		{"throughput --write seq", "--write seq: a publish that copies writes all; give --claim too"},
		{"throughput --write none", `--write "none": use all or seq`},
		{"throughput --read none", `--read "none": use seq or all`},
		{"throughput --capacity 100000", "--capacity 100000: use a power of two from 4KiB to"},
		{"throughput --capacity big", "--capacity: "},
		{"throughput --pages 3KiB", "--pages: "},
		{"throughput --wait nap", `--wait: unknown way to wait "nap": use poll, spin, adaptive, yield or sleep`},
		{"throughput --poll-limit 0", "--poll-limit 0: use at least 1"},
		{"throughput --raw-duration 0", "--raw-duration 0s: use more than 0"},
		{"raw --cores 0", `--cores "0": use two numbers such as 0,1, or auto, or none`},
		{"raw --cores a,b", `--cores "a,b": use two numbers such as 0,1, or auto, or none`},
		{"raw --cores 100000,0", fmt.Sprintf("--cores 100000,0: this process may not run on core 100000; allowed: %v", allowed)},
		{"raw --size 1KiB --batch 16", "holds less than two blocks of 16 lines: use at least 2048 bytes"},
		{"raw --pages 3KiB", "--pages: "},
		{"raw extra", `unknown command "extra" for "bench raw"`},
		{"latency --nonsense", "unknown flag: --nonsense"},
	} {
		root := newRoot()
		root.SetArgs(strings.Split(c.args, " "))
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.args, err, c.want)
		}
	}
}

func TestCountAloneReplacesTheDuration(t *testing.T) {
	for _, c := range []struct {
		args string
		want common
	}{
		{"", common{duration: 5}}, {"--count 7", common{count: 7}}, {"--count 7 --duration 3ns", common{count: 7, duration: 3}},
	} {
		var got common
		cmd := newRoot()
		got.register(cmd, 5)
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		if err := got.check(cmd.Flags().Changed); err != nil || got.count != c.want.count || got.duration != c.want.duration {
			t.Errorf("%q: count %d and duration %d, %v", c.args, got.count, got.duration, err)
		}
	}
}
