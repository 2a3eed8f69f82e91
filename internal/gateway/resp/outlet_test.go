package resp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/testutil"
)

// lanesOf says how many lanes are open for each topic, in order.
func (r *rig) lanesOf(topics ...string) string {
	r.bus.mu.Lock()
	defer r.bus.mu.Unlock()
	var n []string
	for _, t := range topics {
		n = append(n, fmt.Sprint(r.bus.lanes[t]))
	}
	return strings.Join(n, " ")
}

func TestWhatWasUsedLongestAgoIsGivenBack(t *testing.T) {
	r := start(t, func(c *Config) { c.MaxTopics = 2 })
	c := r.dial()
	for _, step := range []struct{ topic, lanes string }{{"a", "1 0 0"}, {"b", "1 1 0"}, {"a", "1 1 0"}, {"c", "1 0 1"}, {"b", "0 1 1"}} {
		c.send("PUBLISH " + step.topic + " x\n")
		c.want(":0\n")
		if got := r.lanesOf("a", "b", "c"); got != step.lanes {
			t.Errorf("after %s: lanes %s, want %s", step.topic, got, step.lanes)
		}
	}
	c.send("PUBLISH a 1\nPUBLISH b 2\nPUBLISH c 3\nPUBLISH a 4\n") // with one read
	c.want(":0\n:0\n:0\n:0\n")
	if s := r.Stats(); s.Published != 9 || s.Outlets != 2 || s.GivenBack < 3 || s.Denials["topics"] != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTopicsThatAreInUseAreNotGivenBack(t *testing.T) {
	r := start(t, func(c *Config) { c.MaxTopics = 2 })
	full := make(chan struct{})
	r.bus.mu.Lock()
	r.bus.full = full
	r.bus.mu.Unlock()
	a, b, c := r.dial(), r.dial(), r.dial()
	a.send("PUBLISH a x\n")
	b.send("PUBLISH b x\n")
	testutil.Eventually(t, "both wait", func() bool { return r.lanesOf("a", "b") == "1 1" })
	c.send("PUBLISH c x\n")
	c.wantPrefix("-ERR channel 'c': clients are publishing to 2 topics, and that is the limit: raise --max-topics")
	r.bus.mu.Lock()
	r.bus.full = nil
	r.bus.mu.Unlock()
	close(full)
	a.want(":0\n")
	b.want(":0\n")
	testutil.Eventually(t, "one is idle", func() bool {
		c.send("PUBLISH c x\n")
		line, err := c.r.ReadString('\n')
		check(t, err)
		return line == ":0\r\n"
	})
	c.send("SUBSCRIBE a b c\n")
	c.want("*3\n$9\nsubscribe\n$1\na\n:1\n*3\n$9\nsubscribe\n$1\nb\n:2\n")
	c.wantPrefix("-ERR channel 'c': clients have subscribed to 2 topics, and that is the limit: raise --max-topics")
	if s := r.Stats(); s.Denials["topics"] < 2 || !strings.Contains(r.log.String(), "--max-topics") {
		t.Errorf("%+v", s)
	}
}

func TestALostTopicIsOpenedAgain(t *testing.T) {
	r := start(t, nil)
	c, reader := r.dial(), r.dial()
	reader.send("SUBSCRIBE a\n")
	reader.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
	lose := func(failures, max int) {
		r.bus.mu.Lock()
		defer r.bus.mu.Unlock()
		r.bus.failures, r.bus.max = failures, max
	}
	heard := func(payloads ...string) {
		t.Helper()
		for _, p := range payloads {
			reader.want(fmt.Sprintf("*3\n$7\nmessage\n$1\na\n$%d\n%s\n", len(p), p))
		}
	}
	c.send("PUBLISH a 0\n")
	c.want(":1\n")
	heard("0")
	lose(1, 0)
	c.send("PUBLISH a 1\n")
	c.want(":1\n")
	heard("1")
	lose(1, 0)
	c.send("PUBLISH a 2\nPUBLISH a 3\nPUBLISH a 4\n") // with one write; the first is published before the topic is lost
	c.want(":1\n:1\n:1\n")
	heard("2", "3", "4")
	lose(2, 0)
	c.send("PUBLISH a 5\n")
	c.wantPrefix("-ERR the topic was lost meanwhile: the attachment was lost")
	c.send("PUBLISH a 6\n")
	c.want(":1\n")
	heard("6")
	lose(1, 10) // what comes in its place has less capacity
	c.send("PUBLISH a 7777777777777\n")
	c.wantPrefix("-ERR a message of 13 bytes is above the limit of 10 bytes")
	c.send("PUBLISH a 8\n")
	c.want(":1\n")
	heard("8")
	if s := r.Stats(); s.Published != 7 || s.GivenUp != 2 || s.BatchSizes.Sum != 7 {
		t.Errorf("%+v", s)
	}
}

// TestWhatWasReadIsPublishedThoughItStops: also to a topic that is not attached to yet, if the broker answers in time.
func TestWhatWasReadIsPublishedThoughItStops(t *testing.T) {
	for _, answers := range []bool{true, false} {
		drain := time.Minute
		if !answers {
			drain = 50 * time.Millisecond
		}
		r := start(t, func(c *Config) { c.DrainTimeout = drain })
		slow := make(chan struct{})
		r.bus.mu.Lock()
		r.bus.slow = slow
		r.bus.mu.Unlock()
		c := r.dial()
		c.send("PUBLISH a 1\nPUBLISH b 2\n")
		testutil.Eventually(t, "it attaches", func() bool { return r.Stats().Commands == 1 })
		r.cancel()
		<-r.ctx.Done()
		if answers {
			close(slow)
			c.want(":0\n:0\n")
		}
		r.stop()
		if s := r.Stats(); answers && (s.Published != 2 || s.GivenUp != 0) || !answers && (s.Published != 0 || s.GivenUp != 2) {
			t.Errorf("the broker answers %v: %+v", answers, s)
		}
	}
}

func TestTheTopicOfAllChannelsIsAttachedToAtStart(t *testing.T) {
	serve := func(laneErr error) *rig {
		return start(t, func(c *Config) {
			c.Topic = "chat"
			c.Bus.(*bus).laneErr = laneErr
		})
	}
	r := serve(nil)
	testutil.Eventually(t, "it is attached", func() bool { return r.lanesOf("chat") == "1" })
	r = serve(ErrMayNot)
	c := r.dial()
	c.send("PUBLISH a x\nSUBSCRIBE a\n")
	c.want("-ERR channel 'a': not allowed\n*3\n$9\nsubscribe\n$1\na\n:1\n")
	if !strings.Contains(r.log.String(), "nobody can publish") {
		t.Error("nothing is said of who may not publish")
	}
	r = serve(errors.New("client: no memory"))
	if err := <-r.result; err == nil || err.Error() != "resp: --resp-topic chat: no memory" {
		t.Errorf("Serve: %v", err)
	}
	r.result <- nil
}

func TestFiguresOfPublishing(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	c.send(strings.Repeat("PUBLISH a x\n", 10))
	c.want(strings.Repeat(":0\n", 10))
	registry := prometheus.NewPedanticRegistry()
	check(t, registry.Register(r.Server))
	families, err := registry.Gather()
	check(t, err)
	seen := 0
	for _, f := range families {
		m := f.GetMetric()[0]
		switch f.GetName() {
		case "hugebus_resp_batch_frames":
			if h := m.GetHistogram(); h.GetSampleSum() != 10 || h.GetSampleCount() < 1 {
				t.Errorf("%v", h)
			}
		case "hugebus_resp_publish_seconds":
			if h := m.GetHistogram(); h.GetSampleSum() <= 0 || h.GetSampleCount() < 1 {
				t.Errorf("%v", h)
			}
		case "hugebus_resp_publisher_topics", "hugebus_resp_listen_queue_limit":
			if m.GetGauge().GetValue() < 1 {
				t.Errorf("%v", m)
			}
		default:
			continue
		}
		seen++
	}
	if seen != 4 {
		t.Errorf("%d of the figures are there", seen)
	}
}
