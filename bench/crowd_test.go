package main

import (
	"strings"
	"testing"

	"github.com/hugebus/hugebus/bench/internal/crowd"
	"github.com/hugebus/hugebus/bench/internal/server"
)

func smokeIngress(t *testing.T, program string) {
	all := measure(t, program, "ingress", "--connections", "7,30", "--rate", "100,20", "--duration", "100ms", "--raw-duration", "5ms", "--capacity", "1MiB", "--size", "24,100")
	loads := of(all, "ingress")
	if len(loads) != 4 {
		t.Fatalf("%d results, want one for each size and load", len(loads))
	}
	for i, o := range loads {
		conns, frames := []float64{7, 30}[i%2], []float64{2 * 7 * 10, 2 * 30 * 2}[i%2]
		// All are sent, however late, unless the machine is so busy that a round was cut short.
		if n := o.number(t, "frames"); o["publishers"] != conns || n > frames || n < frames && o["behind"] != true {
			t.Errorf("%v, want %v frames", o, frames)
		}
		for _, name := range append(latencies, "frames_per_s", "calls_per_frame", "target_per_s") {
			o.number(t, name)
		}
	}
	streams := of(all, "ingress-stream")
	if len(streams) != 4 || streams[0]["system"] != "hugebus" || streams[1]["system"] != "raw" {
		t.Fatalf("streams %v, want one of the bus and a bare one for each size", streams)
	}
	for i, o := range streams {
		o.number(t, "frames")
		o.number(t, "frames_per_s")
		if i%2 == 0 {
			o.number(t, "raw_share")
			o.number(t, "calls_per_frame")
		}
	}
}

func smokePush(t *testing.T, program string) {
	systems := []string{"hugebus", "nats"}
	if _, missing := server.RedisProgram(); missing == nil {
		systems = append(systems, "redis")
	}
	results := of(measure(t, program, "push", "--clients", "9,30", "--rate", "max,100", "--duration", "100ms", "--raw-duration", "5ms", "--capacity", "1MiB",
		"--window", "100", "--linger", "1ms"), "push")
	if len(results) != 2*len(systems) {
		t.Fatalf("%d results, want one for each load of %v", len(results), systems)
	}
	for i, o := range results {
		if want := systems[i%len(systems)]; o["system"] != want {
			t.Errorf("%v, want %s", o, want)
		}
		frames := o.number(t, "frames")
		if i < len(systems) {
			if o["subscribers"] != 9.0 || int(frames)%9 != 0 {
				t.Errorf("%v deliveries to 9 clients: %v", frames, o)
			}
		} else if frames != 2*10*30 {
			t.Errorf("%v deliveries, want 10 frames to 30 clients in two rounds: %v", frames, o)
		}
		for _, name := range append(latencies, "frames_per_s") {
			o.number(t, name)
		}
	}
}

func TestWrongFlagsOfCrowdsAreRefusedWithTheRemedy(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"ingress --connections 5", "--connections has 1 numbers and --rate 2: give a rate for each, as in --connections 1000,10000 --rate 1k,20"},
		{"ingress --connections 0 --rate 1", "--connections 0: use from 1 to 25000"},
		{"ingress --connections 1 --rate max", `--rate "max": use a number`},
		{"ingress --size 23", "--size 23: use from 24 to 65536 bytes"},
		{"ingress --capacity 4KiB --size 4KiB", "--size 4KiB: use from 24 to"},
		{"ingress --duration 0", "nothing bounds a round"},
		{"ingress --duration 0 --count 5", "--duration 0: an open loop is bounded by time"},
		{"ingress --wait poll", "--wait: "},
		{"push --clients 25001 --rate 1", "--clients 25001: use from 1 to 25000"},
		{"ingress --pages 3KiB", "--pages: "},
		{"ingress --raw-duration 0", "--raw-duration 0s: use more than 0"},
		{"push --window 0", "--window 0: use from 1 to 16384"},
		{"push --linger 2s", "--linger 2s: use from 0 to 1s"},
		{"push --systems pigeons", `--systems "pigeons": use some of hugebus, nats, redis`},
	} {
		root := newRoot()
		root.SetArgs(strings.Split(c.args, " "))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.args, err, c.want)
		}
	}
}

func TestLoadsThatDescriptorsDoNotSufficeForAreLeftOut(t *testing.T) {
	large := crowd.Shape{Connections: 1 << 40}
	fit, notes, err := fitting([]crowd.Shape{{Connections: 1}, large})
	if err != nil || len(fit) != 1 || len(notes) != 1 || !strings.Contains(notes[0], "Not measured: 1099511627776 connections need") {
		t.Errorf("%v fit, %q, %v", fit, notes, err)
	}
	if _, _, err := fitting([]crowd.Shape{large}); err == nil || !strings.Contains(err.Error(), "raise it (ulimit -Hn") {
		t.Errorf("nothing fits: %v", err)
	}
}
