package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// memoryCgroup makes a cgroup with a limit of memory, and says in which file that is, or skips the test where this process
// may not.
func memoryCgroup(t *testing.T, limit int64) (dir, file string) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("no cgroups:", err)
	}
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		root := "/sys/fs/cgroup"
		switch {
		case len(parts) != 3:
			continue
		case parts[1] == "": // version 2
			file = "memory.max"
		case parts[1] == "memory":
			root, file = root+"/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for _, parent := range []string{filepath.Join(root, parts[2]), root} {
			dir = filepath.Join(parent, "hugebus-test-"+strconv.Itoa(os.Getpid()))
			if err = os.Mkdir(dir, 0o755); err != nil {
				continue
			}
			// Version 2: the controller may be on for the parent's children already, or not be allowed to be.
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+memory"), 0)
			if err = os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0); err == nil {
				t.Cleanup(func() {
					testutil.Eventually(t, "the cgroup is empty", func() bool { return os.Remove(dir) == nil })
				})
				return dir, file
			}
			_ = os.Remove(dir)
		}
	}
	t.Skip("this process may not make a cgroup with a limit of memory:", err)
	return "", ""
}

// TestBrokerInASmallCgroup: what does not fit its memory is an error that says so, and not a kill; what was there goes on, and
// what fits can be made.
func TestBrokerInASmallCgroup(t *testing.T) {
	dir, limit := memoryCgroup(t, 96<<20)
	w, b := brokerProcess(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(b.Pid())), 0); err != nil {
		t.Skip("this process may not move another one:", err)
	}
	topic := w.topic(t, client.TopicOptions{Capacity: 8 << 20, Pages: "4KiB"})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	for range 3 {
		_, err := w.c.CreateTopic(t.Context(), "large", client.TopicOptions{Capacity: 128 << 20, Pages: "4KiB"})
		if !errors.Is(err, client.ErrNoMemory) || !strings.Contains(err.Error(), limit) || !strings.Contains(err.Error(), "128MiB") {
			t.Fatalf("a topic that does not fit: %v", err)
		}
		publish(t, l, "f1")
		want(t, "the topic that is there", drain(t, reader), "f1")
	}
	if _, err := w.c.CreateTopic(t.Context(), "large", client.TopicOptions{Capacity: 16 << 20, Pages: "4KiB"}); err != nil {
		t.Error(err)
	}
}
