package client_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
)

// fill publishes until the topic is full.
func fill(t testing.TB, l *client.Lane) (n int) {
	t.Helper()
	for {
		err := l.TryPublish(text("full", 0))
		if err == client.ErrBackpressure {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// TestBlockedPublisherGoesOnWhenTheSubscriberIsKilled reports how long that takes. The goal is 50 ms.
func TestBlockedPublisherGoesOnWhenTheSubscriberIsKilled(t *testing.T) {
	const kills = 20
	w := newWorld(t)
	var delays []time.Duration
	for i := range kills {
		topic := w.topic(t, client.TopicOptions{Capacity: 4096})
		l := w.lane(t, topic)
		// The odd ones have two to hold the publisher back, the second of them as the member of a group.
		puppets := []*puppet{w.puppet(t, topic, "")}
		puppets[0].do("sub reliable", "ok")
		if i%2 == 1 {
			p := w.puppet(t, topic, "")
			p.do("member g", "ok")
			publish(t, l, "held")
			p.do("hold 1", "holding held")
			puppets = append(puppets, p)
		}
		fill(t, l)
		published := make(chan time.Time)
		go func() {
			if err := l.Publish(t.Context(), text("through", 0)); err != nil {
				t.Error(err)
			}
			published <- time.Now()
		}()
		if i%2 == 1 { // the group gates until somebody finishes what the dead member held
			puppets[1].Kill()
			w.attached(t, topic, 1, 1)
			drain(t, w.member(t, topic, "g"))
		}
		began := time.Now()
		puppets[0].Signal(os.Kill)
		delays = append(delays, (<-published).Sub(began))
		puppets[0].Wait()
	}
	slices.Sort(delays)
	t.Logf("from kill to the publisher's progress, %d kills: median %v, worst %v (goal: 50ms)", kills, delays[kills/2], delays[kills-1])
}

func subscribersKilledAtAnyPoint(t *testing.T, w *world) {
	for _, policy := range []string{"sub reliable", "sub lossy", "sub evict 4096"} {
		for _, point := range []string{ring.FailMidPoll, ring.FailBeforeCursor, client.FailSleepAfterBit, client.FailSleepUnbound} {
			if policy != "sub reliable" && point == ring.FailMidPoll {
				continue // they copy first, and pass no such point
			}
			parallel(t, policy+"/"+point, w, func(t *testing.T, w *world) { subscriberDies(t, w, policy, point) })
		}
	}
	parallel(t, "while a publisher is killed in its way", w, subscriberAndPublisherDie)
}

// subscriberDies at a point. Publishers and another subscriber go on, and its slot is free.
func subscriberDies(t *testing.T, w *world, policy, point string) {
	topic := w.topic(t, client.TopicOptions{Subscribers: 2})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	p := w.puppet(t, topic, point+"=stop")
	p.do(policy, "ok")
	if point == ring.FailMidPoll || point == ring.FailBeforeCursor {
		publish(t, l, "f1", "f2")
		p.stops("poll 8", point)
		want(t, "the other subscriber", drain(t, reader), "f1", "f2")
	} else {
		p.stops("wait", point)
	}
	publish(t, l, "f3")
	want(t, "the other subscriber", drain(t, reader), "f3")
	p.Kill()
	w.attached(t, topic, 1, 1)
	for i := range 2 * 8192 / 64 { // two laps: nobody holds them back any more
		name := fmt.Sprint("n", i)
		publish(t, l, name)
		want(t, "the other subscriber", drain(t, reader), name)
	}
	w.subscriber(t, topic, client.SubscriberOptions{}) // from the slot of the dead
}

// subscriberAndPublisherDie at the same time: one holds the ring, the other has a claim open in front of it.
func subscriberAndPublisherDie(t *testing.T, w *world) {
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	s, p := w.puppet(t, topic, ""), w.puppet(t, topic, "")
	s.do("sub reliable", "ok")
	p.do("lane", "ok")
	p.do("claim 0 dead 500", "ok")
	n := fill(t, l)
	published := make(chan error)
	go func() { published <- l.Publish(t.Context(), text("through", 0)) }()
	killAll(s, p)
	info := w.attached(t, topic, 1, 1)
	if info.Repairs != 1 || info.RepairedBytes != 576 {
		t.Errorf("%d repairs of %d bytes, want 1 of 576", info.Repairs, info.RepairedBytes)
	}
	if got := drain(t, reader); len(got) < n {
		t.Errorf("%d frames came, %d were published", len(got), n)
	}
	if err := <-published; err != nil {
		t.Error(err)
	}
}
