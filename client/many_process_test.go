package client_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// A footprint is what a process costs: descriptors, and memory of its own, in bytes.
type footprint struct{ files, memory int }

func footprintOf(t *testing.T, pid int) (f footprint) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid)
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if n, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			if _, err := fmt.Sscan(n, &f.memory); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.files, f.memory = len(files), f.memory<<10
	return f
}

// TestManyTopicsAndClients: each topic and each client costs a broker so many descriptors and not more, a bounded amount of memory,
// and nothing when it is gone; and they do not get in each other's way. `bench restart` does the same with a thousand.
func TestManyTopicsAndClients(t *testing.T) {
	const (
		many = 200
		// A topic has three segments and two doorbells, a client its connection.
		topicFiles, clientFiles = 5, 1
	)
	// most is what either may cost in memory that is the broker's own: 20 to 30 KiB are usual, and several times as much under the
	// race detector.
	most := 128 << 10
	if raceEnabled {
		most *= 8
	}
	w, b := brokerProcess(t)
	empty := footprintOf(t, b.Pid())
	name := func(i int) string { return fmt.Sprint("many.", i%many) }
	for i := range many {
		if _, err := w.c.CreateTopic(t.Context(), name(i), client.TopicOptions{Capacity: 64 << 10, Pages: "4KiB"}); err != nil {
			t.Fatal(err)
		}
	}
	topics := footprintOf(t, b.Pid())
	if got := topics.files - empty.files; got != many*topicFiles {
		t.Errorf("%d topics cost %d descriptors, not %d each", many, got, topicFiles)
	}
	if got := (topics.memory - empty.memory) / many; got > most {
		t.Errorf("a topic costs %d bytes of the broker's own memory, more than %d", got, most)
	}
	clients, lanes, readers := make([]*client.Client, many), make([]*client.Lane, many), make([]*client.Subscriber, many)
	for i := range clients {
		c := dial(t, w.socket)
		clients[i] = c
		var err error
		if readers[i], err = c.Subscriber(t.Context(), name(i+1), client.SubscriberOptions{}); err != nil {
			t.Fatal(err)
		}
		if lanes[i], err = c.Lane(t.Context(), name(i), client.PublisherOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	busy := footprintOf(t, b.Pid())
	if got := busy.files - topics.files; got != many*clientFiles {
		t.Errorf("%d clients cost %d descriptors, not %d each", many, got, clientFiles)
	}
	if got := (busy.memory - topics.memory) / many; got > most {
		t.Errorf("a client costs %d bytes of the broker's memory, more than %d", got, most)
	}
	t.Logf("a topic costs %d bytes of the broker's own memory, a client %d", (topics.memory-empty.memory)/many, (busy.memory-topics.memory)/many)
	for i, l := range lanes {
		publish(t, l, fmt.Sprint("f", i))
	}
	for i, r := range readers {
		want(t, name(i+1), drain(t, r), fmt.Sprint("f", (i+1)%many))
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		if err := w.c.RemoveTopic(t.Context(), name(i)); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "the broker holds no more than before", func() bool { return footprintOf(t, b.Pid()).files <= empty.files })
}
