package client_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func membersKilledAtAnyPoint(t *testing.T, w *world) {
	for _, c := range []struct {
		point string // of the member that claims three of six frames
		first string // what of them it had finished
		left  string // what the others get
	}{
		{ring.FailGroupAfterIntent + "=stop", "", "f1 f2 f3 f4 f5 f6"},
		{ring.FailGroupAfterHead + "=stop", "", "f1+1 f2+1 f3+1 f4 f5 f6"},
		{ring.FailGroupMidWork + "=stop", "", "f1+1 f2+1 f3+1 f4 f5 f6"},
		{ring.FailGroupMidWork + "=stop@2", "f1", "f2+1 f3+1 f4 f5 f6"},
		{ring.FailGroupMidWork + "=stop@3", "f1 f2", "f3+1 f4 f5 f6"},
		{ring.FailGroupAfterAck + "=stop", "f1 f2 f3", "f4 f5 f6"},
	} {
		for _, help := range []bool{false, true} {
			parallel(t, fmt.Sprintf("%s/help=%v", c.point, help), w, func(t *testing.T, w *world) {
				memberDies(t, w, c.point, strings.Fields(c.left), help)
			})
		}
	}
	parallel(t, "adopter after-take", w, func(t *testing.T, w *world) {
		adopterDies(t, w, ring.FailGroupAfterTake+"=stop", "f1+2", "f2+1", "f3+1")
	})
	parallel(t, "adopter mid-work", w, func(t *testing.T, w *world) {
		adopterDies(t, w, ring.FailGroupMidWork+"=stop", "f1+2", "f2+1", "f3+1")
	})
	parallel(t, "adopter mid-work, second frame", w, func(t *testing.T, w *world) {
		adopterDies(t, w, ring.FailGroupMidWork+"=stop@2", "f2+2", "f3+1")
	})
	parallel(t, "in its handler", w, memberDiesInItsHandler)
	parallel(t, "all members", w, allMembersDie)
	parallel(t, "stopped at a stale head", w, memberIsStoppedAtAStaleHead)
	parallel(t, "dead letters", w, frameThatKillsGoesToDeadLetters)
	parallel(t, "dead letters beside a living member", w, livingMemberIsSparedADeadLetter)
}

// six publishes f1 to f6 on a topic that has a group g already.
func six(t *testing.T, w *world, o client.TopicOptions) (topic string, lane *client.Lane) {
	t.Helper()
	topic = w.topic(t, o)
	lane = w.lane(t, topic)
	publish(t, lane, "f1", "f2", "f3", "f4", "f5", "f6")
	return topic, lane
}

// dying is a member that stops at a failpoint while it works on up to three frames.
func (w *world) dying(t *testing.T, topic, point string) *puppet {
	t.Helper()
	p := w.puppet(t, topic, point)
	p.do("member g", "ok")
	name, _, _ := strings.Cut(point, "=")
	p.stops("poll 3", name)
	return p
}

// memberDies: what it had not finished reaches another member, marked; nothing is lost, or twice without a mark. With
// help, the other member claims behind it before it dies.
func memberDies(t *testing.T, w *world, point string, left []string, help bool) {
	topic, _ := six(t, w, client.TopicOptions{})
	p := w.dying(t, topic, point)
	other := w.member(t, topic, "g")
	var got []string
	if help {
		got = drain(t, other)
	}
	p.Kill()
	info := w.attached(t, topic, 1, 1)
	got = append(got, drain(t, other)...)
	if !help {
		want(t, "the other member", got, left...)
	} else {
		// What it claimed itself came before what the dead one left.
		var own, redelivered []string
		for _, word := range left {
			if strings.Contains(word, "+") {
				redelivered = append(redelivered, word)
			} else {
				own = append(own, word)
			}
		}
		want(t, "the other member", got, append(own, redelivered...)...)
	}
	if strings.Contains(strings.Join(left, " "), "+") != (info.Groups[0].UnfinishedRanges == 1) {
		t.Errorf("%d unfinished ranges", info.Groups[0].UnfinishedRanges)
	}
	if g := w.info(t, topic).Groups[0]; g.UnfinishedRanges != 0 || g.LagBytes != 0 {
		t.Errorf("in the end: %d unfinished ranges, %d bytes of lag", g.UnfinishedRanges, g.LagBytes)
	}
}

// adopterDies: a member takes over what a dead one left, and dies as well.
func adopterDies(t *testing.T, w *world, point string, left ...string) {
	topic, _ := six(t, w, client.TopicOptions{})
	w.dying(t, topic, ring.FailGroupMidWork+"=stop").Kill()
	w.attached(t, topic, 1, 0)
	w.dying(t, topic, point).Kill()
	w.attached(t, topic, 1, 0)
	want(t, "the third member", drain(t, w.member(t, topic, "g")), append(left, "f4", "f5", "f6")...)
}

// memberIsStoppedAtAStaleHead: it has found a frame and is about to read its header. Another member finishes the frame,
// and publishers write payload over it. That is not corruption, and it must get none of it.
func memberIsStoppedAtAStaleHead(t *testing.T, w *world) {
	topic, lane := six(t, w, client.TopicOptions{})
	p := w.puppet(t, topic, ring.FailGroupFound+"=stop")
	p.do("member g", "ok")
	other := w.member(t, topic, "g")
	want(t, "the other member", drain(t, other), "f1", "f2", "f3", "f4", "f5", "f6")
	publish(t, lane, "f7") // not at the ring's start, where frames always begin
	p.stops("poll 3", ring.FailGroupFound)
	want(t, "the other member", drain(t, other), "f7")
	large := bytes.Repeat([]byte{0xff}, 2000)
	for range 16 {
		if err := lane.TryPublish(large); err != nil {
			t.Fatal(err)
		}
		drain(t, other)
	}
	publish(t, lane, "last")
	p.Signal(contSignal)
	if line := p.Line(); line == "" { // it may have to look again
		p.do("poll 3", "last")
	} else if line != "last" {
		t.Errorf("the stopped member says %q, want last", line)
	}
	want(t, "the other member", drain(t, other))
}

// memberDiesInItsHandler, where no failpoint is.
func memberDiesInItsHandler(t *testing.T, w *world) {
	topic, lane := six(t, w, client.TopicOptions{})
	p := w.puppet(t, topic, "")
	p.do("member g", "ok")
	p.do("hold 3", "holding f1")
	p.Kill()
	w.attached(t, topic, 1, 0)
	other := w.member(t, topic, "g")
	publish(t, lane, "f7")
	want(t, "the other member", drain(t, other), "f1+1", "f2+1", "f3+1", "f4", "f5", "f6", "f7")
}

// allMembersDie at the same time, each with a range of its own. The group waits for a new member.
func allMembersDie(t *testing.T, w *world) {
	topic, _ := six(t, w, client.TopicOptions{})
	var members []*puppet
	for i := range 3 {
		p := w.puppet(t, topic, "")
		p.do("member g", "ok")
		p.do("hold 2", fmt.Sprint("holding f", 2*i+1))
		members = append(members, p)
	}
	killAll(members...)
	w.attached(t, topic, 1, 0)
	got := drain(t, w.member(t, topic, "g"))
	seen := map[string]int{}
	for _, word := range got {
		seen[word]++
	}
	for i := range 6 {
		if name := fmt.Sprintf("f%d+1", i+1); seen[name] != 1 || len(got) != 6 {
			t.Errorf("%s came %d times, in %q", name, seen[name], got)
		}
	}
}

// frameThatKillsGoesToDeadLetters: f1 is in the hands of each member that dies.
func frameThatKillsGoesToDeadLetters(t *testing.T, w *world) {
	topic, _ := six(t, w, client.TopicOptions{MaxRedeliveries: 2})
	for i := range 3 {
		p := w.puppet(t, topic, "")
		p.do("member g", "ok")
		if i == 0 {
			p.do("hold 3", "holding f1")
		} else {
			p.do("hold 3", fmt.Sprint("holding f1+", i))
		}
		p.Kill()
		w.attached(t, topic, 1, 0)
	}
	isDeadLetter(t, w, topic)
	want(t, "the next member", drain(t, w.member(t, topic, "g")), "f2+1", "f3+1", "f4", "f5", "f6")
}

// livingMemberIsSparedADeadLetter: a member that waits for work all the time does not get a frame that was handed out
// too often, although it could be faster than the broker.
func livingMemberIsSparedADeadLetter(t *testing.T, w *world) {
	topic, _ := six(t, w, client.TopicOptions{MaxRedeliveries: 1})
	var killers []*puppet
	for i := range 2 {
		p := w.puppet(t, topic, "")
		p.do("member g", "ok")
		if i == 0 {
			p.do("hold 3", "holding f1")
			p.Kill()
			w.attached(t, topic, 1, 0)
			continue
		}
		p.do("hold 3", "holding f1+1")
		killers = append(killers, p)
	}
	g := w.member(t, topic, "g")
	want(t, "the living member, before", drain(t, g), "f4", "f5", "f6")
	done := make(chan []string)
	go func() {
		var words []string
		_ = g.Run(t.Context(), func(f client.Frame) error {
			if words = append(words, marked(f)); word(f.Payload) == "last" {
				return client.ErrStop
			}
			return nil
		})
		done <- words
	}()
	killAll(killers...)
	isDeadLetter(t, w, topic)
	publish(t, w.lane(t, topic), "last")
	want(t, "the living member, after", <-done, "f2+1", "f3+1", "last")
}

// isDeadLetter waits until f1 is in the dead-letter topic of topic.
func isDeadLetter(t *testing.T, w *world, topic string) {
	t.Helper()
	testutil.Eventually(t, "f1 is a dead letter", func() bool { return w.info(t, topic).DeadLetters == 1 })
	s := w.subscriber(t, control.DeadLetterTopic(topic), client.SubscriberOptions{Start: client.Earliest()})
	want(t, "dead letters", drain(t, s), "f1")
}
