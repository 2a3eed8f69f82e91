package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/hugebus/hugebus/client"
)

func init() { scenarios["Unstick"] = unstickScenario }

func unstickScenario(w *world) {
	w.broker("--stuck-claim", "50ms")
	w.ok("topic", "create", "orders", "--capacity", "64KiB")
	w.mistakes([]mistake{
		{"topic unstick", 2, []string{"name of a topic is missing"}},
		{"topic unstick orders --publisher -1", 2, []string{"--publisher: -1 is not a slot"}},
		{"topic unstick orders --pid 0", 2, []string{"--pid: 0 is not a process"}},
		{"topic unstick orders --pid 4294967303", 2, []string{"--pid: 4294967303 is not a process", "2147483647"}},
		{"topic unstick orders", 1, []string{"no publisher has held a claim for longer than 50ms"}},
		{"topic unstick orders --pid 7", 1, []string{"no publisher of process 7"}},
		{"broker --stuck-claim 0s", 2, []string{"--stuck-claim: 0s is not above 0"}},
	})
	c, err := client.Dial(context.Background(), client.Options{Socket: w.socket, Name: "holder"})
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	for _, asJSON := range []bool{false, true} {
		l, err := c.Lane(context.Background(), "orders", client.PublisherOptions{})
		if err != nil {
			w.Fatal(err)
		}
		claim, err := l.TryClaim(100)
		if err != nil {
			w.Fatal(err)
		}
		w.attached("orders", "a claim that is stuck", func(t client.TopicInfo) bool { return t.StuckClaims == 1 })
		if page := w.ok("topic", "show", "orders", "--rates=false"); !strings.Contains(page, "stuck for ") || !strings.Contains(page, "stuck claims") {
			w.Errorf("show: %s", page)
		}
		if asJSON {
			var got []client.UnstuckClaim
			w.decode(&got, "topic", "unstick", "orders", "--publisher", "0", "--json")
			if len(got) != 1 || got[0].Outcome != client.UnstickRevoked || got[0].PID != int32(os.Getpid()) {
				w.Errorf("unstick: %+v", got)
			}
		} else if text := w.ok("topic", "unstick", "orders"); !strings.Contains(text, "publisher 0 (holder, pid ") || !strings.Contains(text, "taken away, 128 bytes are padding now") {
			w.Errorf("unstick: %s", text)
		}
		if err := claim.Commit(); !errors.Is(err, client.ErrClaimRevoked) {
			w.Errorf("commit: %v", err)
		}
		if err := l.Close(); err != nil {
			w.Error(err)
		}
	}
	if page := w.ok("topic", "show", "orders", "--rates=false"); !strings.Contains(page, "revoked claims  2") {
		w.Errorf("show: %s", page)
	}
}
