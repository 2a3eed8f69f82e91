package main

import (
	"encoding/json"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// smokeRestart kills a broker twice: whatever is lost or does not come back ends the program with an error.
func smokeRestart(t *testing.T, program string) {
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{
		"restart", "--kills", "2", "--topics", "3", "--clients", "4", "--span", "200ms", "--json",
	}})
	p.Succeed()
	var got struct {
		Topics, Clients, Kills           int
		TopicFiles, ClientFiles          float64
		Quiet, Away, Anew, Return, Start struct{ Count int64 }
	}
	if err := json.Unmarshal([]byte(p.Stdout()), &got); err != nil {
		t.Fatalf("%v in %s", err, p.Stdout())
	}
	if got.Topics != 3 || got.Clients != 4 || got.Kills != 2 || got.Return.Count != 2 || got.Start.Count != 2 {
		t.Errorf("%+v, want 3 topics, and 4 clients that came back from each of 2 kills", got)
	}
	if got.Quiet.Count == 0 || got.Away.Count == 0 || got.Anew.Count == 0 {
		t.Errorf("%+v: nothing was published", got)
	}
	// Three segments and two doorbells; a socket, and a pidfd where the kernel has them.
	if got.TopicFiles != 5 || got.ClientFiles < 1 || got.ClientFiles > 2 {
		t.Errorf("%v descriptors for a topic and %v for a client, want 5 and at most 2", got.TopicFiles, got.ClientFiles)
	}
}
