package client_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/testutil"
)

// A world is a broker in this process, a client that watches, and other processes that may die.
type world struct {
	socket string
	c      *client.Client
	// binary has failpoints; empty: this test binary, without them.
	binary string
}

// newWorld starts a broker.
func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, broker.Config{})
}

// newWorldOf starts a broker that is configured as c says.
func newWorldOf(t testing.TB, c broker.Config) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb") // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.Socket = filepath.Join(dir, "s")
	socket := newBroker(t, c)
	return &world{socket: socket, c: dial(t, socket)}
}

// withFailpoints gives w a binary whose children have failpoints.
func (w *world) withFailpoints(t *testing.T) *world {
	t.Helper()
	if !failpoint.Enabled { // else this one has them
		began := time.Now()
		w.binary = testutil.BuildTagged(t, "github.com/hugebus/hugebus/client", "failpoint")
		t.Logf("the binary with failpoints took %v to build", time.Since(began).Round(time.Millisecond))
	}
	return w
}

// TestKilledAtAnyPoint kills processes that have stopped at a failpoint.
func TestKilledAtAnyPoint(t *testing.T) {
	w := newWorld(t).withFailpoints(t)
	t.Run("publishers", func(t *testing.T) { publishersKilledAtAnyPoint(t, w) })
	t.Run("members", func(t *testing.T) { membersKilledAtAnyPoint(t, w) })
	t.Run("subscribers", func(t *testing.T) { subscribersKilledAtAnyPoint(t, w) })
	t.Run("stopped", func(t *testing.T) { stoppedAtAnyPoint(t, w.binary) })
	t.Run("torture", func(t *testing.T) { tortureAtFailpoints(t, w) })
}

// parallel runs a subtest beside others: each waits most of its time for processes to start.
func parallel(t *testing.T, name string, w *world, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, w)
	})
}

var topics atomic.Int64

// topic makes a topic with a name of its own.
func (w *world) topic(t testing.TB, o client.TopicOptions) string {
	t.Helper()
	name := fmt.Sprintf("topic-%d", topics.Add(1))
	if o.Capacity == 0 {
		o.Capacity = 8192
	}
	if _, err := w.c.CreateTopic(t.Context(), name, o); err != nil {
		t.Fatal(err)
	}
	return name
}

// info describes a topic.
func (w *world) info(t testing.TB, topic string) client.TopicInfo {
	t.Helper()
	info, err := w.c.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// attached waits until the topic has that many publishers, and subscribers with members: until the broker has taken
// back what the dead held.
func (w *world) attached(t testing.TB, topic string, publishers, subscribers int) client.TopicInfo {
	t.Helper()
	var info client.TopicInfo
	testutil.Eventually(t, fmt.Sprintf("%s has %d publishers and %d subscribers", topic, publishers, subscribers), func() bool {
		info = w.info(t, topic)
		return info.PublisherCount == publishers && info.SubscriberCount == subscribers
	})
	return info
}

func (w *world) lane(t testing.TB, topic string) *client.Lane {
	t.Helper()
	l, err := w.c.Lane(t.Context(), topic, client.PublisherOptions{Name: "living"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close lane: %v", err)
		}
	})
	return l
}

func (w *world) subscriber(t testing.TB, topic string, o client.SubscriberOptions) *client.Subscriber {
	t.Helper()
	s, err := w.c.Subscriber(t.Context(), topic, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close subscriber: %v", err)
		}
	})
	return s
}

func (w *world) member(t testing.TB, topic, group string) *client.Group {
	t.Helper()
	g, err := w.c.Group(t.Context(), topic, group, client.GroupOptions{Name: "living"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close member: %v", err)
		}
	})
	return g
}

// text is a payload of size bytes that begins with a word.
func text(word string, size int) []byte {
	b := make([]byte, max(size, len(word)))
	copy(b, word)
	return b
}

// word is what text put there.
func word(payload []byte) string {
	before, _, _ := strings.Cut(string(payload), "\x00")
	return before
}

// publish publishes words that fit, each in one cell.
func publish(t testing.TB, l *client.Lane, words ...string) {
	t.Helper()
	for _, s := range words {
		if err := l.TryPublish(text(s, 0)); err != nil {
			t.Fatalf("publish %s: %v", s, err)
		}
	}
}

// drain polls until there is nothing more, and returns the words; those that were redelivered end in +N.
func drain(t testing.TB, from poller) (words []string) {
	t.Helper()
	for {
		n, err := from.Poll(16, func(f client.Frame) error {
			words = append(words, marked(f))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return words
		}
	}
}

// marked is a frame's word, with +N if it was redelivered.
func marked(f client.Frame) string {
	if f.Redelivered > 0 {
		return fmt.Sprintf("%s+%d", word(f.Payload), f.Redelivered)
	}
	return word(f.Payload)
}

// want compares words.
func want(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
