package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
)

// A death is one way in which publishers die.
type death struct {
	point   string // failpoint at which they stop, and are killed; empty: after the command
	command string // of puppetRole, on lane 0
	dead    int    // how many
	apart   bool   // the living publish between the claims of the dead
	wrap    bool   // the first claim begins with padding
}

func (d death) String() string {
	name := fmt.Sprintf("%s/%s/%d", d.point[strings.LastIndexByte(d.point, '/')+1:], strings.ReplaceAll(d.command, " ", "_"), d.dead)
	if d.apart {
		name += "/apart"
	}
	if d.wrap {
		name += "/wrap"
	}
	return name
}

// open reports whether the claim is made, and not committed.
func (d death) open() bool { return d.point != ring.FailAfterIntent && d.point != ring.FailAfterCommit }

// words are what a committed command leaves.
func (d death) words(i int) []string {
	name := fmt.Sprintf("dead%d", i)
	if strings.HasPrefix(d.command, "batch") {
		return []string{name + ".0", name + ".1", name + ".2"}
	}
	return []string{name}
}

// size is what a claim takes in the ring, without padding.
func (d death) size() uint64 {
	var size, n int
	fmt.Sscanf(d.command[strings.IndexByte(d.command, '%')+2:], "%d %d", &size, &n)
	return uint64(ring.FrameSize(size) * max(n, 1))
}

func deaths() (all []death) {
	for _, command := range []string{"publish 0 %s 40", "publish 0 %s 900", "batch 0 %s 100 3"} {
		points := []string{ring.FailAfterIntent, ring.FailAfterClaim, ring.FailMidCopy, ring.FailBeforeCommit, ring.FailAfterCommit}
		if strings.HasPrefix(command, "batch") {
			points = append(points, ring.FailMidBatch)
		}
		for _, point := range points {
			all = append(all, death{point: point, command: command, dead: 1})
			if !strings.HasSuffix(command, " 40") {
				all = append(all, death{point: point, command: command, dead: 1, wrap: true})
			}
		}
	}
	for _, point := range []string{ring.FailAfterIntent, ring.FailAfterClaim, ring.FailBeforeCommit, ring.FailAfterCommit} {
		all = append(all,
			death{point: point, command: "publish 0 %s 300", dead: 3},
			death{point: point, command: "publish 0 %s 300", dead: 2, apart: true, wrap: true},
			death{point: point, command: "batch 0 %s 100 3", dead: 3, apart: true})
	}
	return all
}

func publishersKilledAtAnyPoint(t *testing.T, w *world) {
	for _, d := range deaths() {
		parallel(t, d.String(), w, func(t *testing.T, w *world) { publishersDie(t, w, d) })
	}
	parallel(t, "exclusive", w, exclusivePublisherDies)
	parallel(t, "before the ring", w, publisherDiesBeforeTheRing)
	parallel(t, "repair waits for the living", w, repairWaitsForTheLiving)
	parallel(t, "three lanes of one process", w, threeLanesOfOneProcessDie)
}

// publishersDie lets them die. The living go on before and after, and only frames of the dead are missing.
func publishersDie(t *testing.T, w *world, d death) {
	topic := w.topic(t, client.TopicOptions{Publishers: d.dead + 1})
	living, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	padding := uint64(0)
	if d.wrap {
		padding = 128
		for range (8192 - int(padding)) / 64 {
			publish(t, living, "before")
			drain(t, reader)
		}
	}
	var expected []string
	var puppets []*puppet
	for i := range d.dead {
		p := w.puppet(t, topic, d.point+"=stop")
		p.do("lane", "ok")
		p.stops(fmt.Sprintf(d.command, fmt.Sprintf("dead%d", i)), d.point)
		puppets = append(puppets, p)
		if d.point == ring.FailAfterCommit {
			expected = append(expected, d.words(i)...)
		}
		if d.apart {
			expected = append(expected, fmt.Sprintf("between%d", i))
			publish(t, living, expected[len(expected)-1])
		}
	}
	expected = append(expected, "living1", "living2")
	publish(t, living, "living1", "living2")
	if d.open() {
		want(t, "in front of an open claim", drain(t, reader))
	}
	if info := w.info(t, topic); info.Repairs != 0 || info.PublisherCount != d.dead+1 {
		t.Errorf("while they are stopped: %d repairs, %d publishers", info.Repairs, info.PublisherCount)
	}
	killAll(puppets...)
	publish(t, living, "living3")
	info := w.attached(t, topic, 1, 1)
	publish(t, living, "living4")
	want(t, "after their death", drain(t, reader), append(expected, "living3", "living4")...)
	repairs, bytes := uint64(0), uint64(0)
	if d.open() {
		repairs, bytes = uint64(d.dead), uint64(d.dead)*d.size()+padding
	}
	if info.Repairs != repairs || info.RepairedBytes != bytes || info.Violations != 0 {
		t.Errorf("%d repairs of %d bytes, %d violations; want %d of %d", info.Repairs, info.RepairedBytes, info.Violations, repairs, bytes)
	}
	slotsAreFree(t, w, topic, d.dead, reader)
}

// slotsAreFree publishes from n new lanes, and finds no slot for one more.
func slotsAreFree(t *testing.T, w *world, topic string, n int, reader *client.Subscriber) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("new%d", i)
		publish(t, w.lane(t, topic), name)
		want(t, "from a slot of the dead", drain(t, reader), name)
	}
	info := w.info(t, topic)
	for _, p := range info.Publishers {
		if p.ClaimedBytes != 0 || p.Frames == 0 {
			t.Errorf("publisher in slot %d: %d bytes claimed, %d frames", p.Slot, p.ClaimedBytes, p.Frames)
		}
	}
	if l, err := w.c.Lane(t.Context(), topic, client.PublisherOptions{}); err == nil {
		t.Errorf("there was a slot more than the topic has")
		l.Close()
	}
}

// exclusivePublisherDies at each point of a topic that has one publisher; the next one gets its slot.
func exclusivePublisherDies(t *testing.T, w *world) {
	topic := w.topic(t, client.TopicOptions{Exclusive: true})
	reader := w.subscriber(t, topic, client.SubscriberOptions{})
	repairs := uint64(0)
	for _, point := range []string{
		ring.FailAfterIntent, ring.FailAfterClaim, ring.FailMidCopy, ring.FailBeforeCommit, ring.FailAfterCommit, ring.FailMidBatch,
	} {
		p := w.puppet(t, topic, point+"=stop")
		p.do("lane", "ok")
		p.stops("batch 0 dead 500 3", point)
		p.Kill()
		info := w.attached(t, topic, 0, 1)
		expected := []string(nil)
		switch point {
		case ring.FailAfterCommit:
			expected = []string{"dead.0", "dead.1", "dead.2"}
		case ring.FailAfterIntent:
		default:
			repairs++
		}
		if info.Repairs != repairs {
			t.Errorf("%s: %d repairs, want %d", point, info.Repairs, repairs)
		}
		l := w.lane(t, topic)
		publish(t, l, "next")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, point, drain(t, reader), append(expected, "next")...)
	}
}

// publisherDiesBeforeTheRing: it has committed, has taken the sleepers' word, and has not rung. Nobody but the broker
// can wake them then.
func publisherDiesBeforeTheRing(t *testing.T, w *world) {
	topic := w.topic(t, client.TopicOptions{})
	subscriber, member := w.puppet(t, topic, ""), w.puppet(t, topic, "")
	subscriber.do("sub reliable", "ok")
	member.do("member g", "ok")
	p := w.puppet(t, topic, ring.FailBeforeRing+"=stop")
	p.do("lane", "ok")
	sleepers := []*puppet{subscriber, member}
	for _, s := range sleepers {
		s.Send("follow")
	}
	// 30 ms is longer than the bound of a sleeper's first sleep, so both sleep without a bound in between.
	p.stops("trickle 0 frame", ring.FailBeforeRing)
	p.Kill()
	last := strings.Count(p.Stdout(), "frame") + 1 // it could not say so any more
	for _, s := range sleepers {
		for n := range last {
			s.Expect(fmt.Sprintf("frame%d", n+1))
		}
	}
}

// threeLanesOfOneProcessDie with a claim open in each: all are condemned before the first is repaired.
func threeLanesOfOneProcessDie(t *testing.T, w *world) {
	for _, between := range []bool{false, true} {
		topic := w.topic(t, client.TopicOptions{Publishers: 4})
		living, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
		p := w.puppet(t, topic, "")
		var expected []string
		for i := range 3 {
			p.do("lane", "ok")
			p.do(fmt.Sprintf("claim %d dead 300", i), "ok")
			if between {
				expected = append(expected, fmt.Sprint("between", i))
				publish(t, living, expected[i])
			}
		}
		p.Kill()
		info := w.attached(t, topic, 1, 1)
		if info.Repairs != 3 || info.RepairedBytes != 3*320 {
			t.Errorf("between=%v: %d repairs of %d bytes, want 3 of 960", between, info.Repairs, info.RepairedBytes)
		}
		publish(t, living, "living")
		want(t, "after their death", drain(t, reader), append(expected, "living")...)
		slotsAreFree(t, w, topic, 3, reader)
	}
}

// repairWaitsForTheLiving: a living publisher is stopped with an intent at the position at which the dead one died.
func repairWaitsForTheLiving(t *testing.T, w *world) {
	topic := w.topic(t, client.TopicOptions{})
	living, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	slow := w.puppet(t, topic, ring.FailAfterIntent+"=stop")
	dead := w.puppet(t, topic, ring.FailAfterClaim+"=stop")
	slow.do("lane", "ok")
	dead.do("lane", "ok")
	slow.stops("publish 0 slow 40", ring.FailAfterIntent)
	dead.stops("publish 0 dead 40", ring.FailAfterClaim)
	dead.Kill()
	publish(t, living, "living")
	// Its slot stays taken, and its claim open, for as long as the two cannot be told apart.
	if info := w.info(t, topic); info.PublisherCount != 3 || info.Repairs != 0 {
		t.Errorf("%d publishers and %d repairs, want 3 and none", info.PublisherCount, info.Repairs)
	}
	want(t, "in front of the open claim", drain(t, reader))
	slow.Signal(contSignal)
	slow.Expect("ok")
	w.attached(t, topic, 2, 1)
	want(t, "after the repair", drain(t, reader), "living", "slow")
}
