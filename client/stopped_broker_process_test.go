package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// TestStoppedBroker: for longer than all bounds that are set here nobody notices, a client dies, and when the broker goes on it repairs,
// serves, and takes nobody for stuck, stalled or dead who is not.
func TestStoppedBroker(t *testing.T) {
	w, b := brokerProcess(t)
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	careful := w.subscriber(t, topic, client.SubscriberOptions{Policy: client.Evict, EvictAfter: 100 * time.Millisecond})
	g := w.member(t, topic, "g")
	p := w.puppet(t, topic, "")
	p.do("lane", "ok")
	p.do("claim 0 mine 100", "ok")
	b.Halt()
	p.Kill()
	// Not to wait for anything: it is the time that the bounds are about, stuck_claim (1 s) among them.
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		drain(t, careful)
	}
	b.Signal(contSignal)
	w.attached(t, topic, 1, 3) // the dead one is repaired
	for i := range 300 {
		name := fmt.Sprint("n", i)
		if err := l.Publish(t.Context(), text(name, 40)); err != nil {
			t.Fatal(err)
		}
		want(t, "subscriber", drain(t, reader), name)
		want(t, "careful subscriber", drain(t, careful), name)
		want(t, "member", drain(t, g), name)
	}
	info := w.info(t, topic)
	if info.Repairs != 1 || info.StuckClaims != 0 || info.Violations != 0 || info.Subscribers[1].Evicted {
		t.Errorf("%+v", info)
	}
	testutil.Eventually(t, "the broker answers", func() bool { _, err := w.c.Ping(t.Context()); return err == nil })
}
