package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// unstickSoon unsticks what is stuck on a topic, as soon as the broker says so.
func (w *world) unstickSoon(t *testing.T, topic string) client.UnstuckClaim {
	t.Helper()
	testutil.Eventually(t, "a claim is named", func() bool { return w.info(t, topic).StuckClaims == 1 })
	claims, err := w.c.Unstick(t.Context(), topic, client.UnstickOptions{})
	if err != nil || len(claims) != 1 {
		t.Fatalf("%+v, %v", claims, err)
	}
	return claims[0]
}

// TestStoppedPublisherKeepsItsClaimUntilItGoesOn: nobody else can know where it stands, so nothing is done to its memory; when it
// goes on it gives the claim up before its program has a say.
func TestStoppedPublisherKeepsItsClaimUntilItGoesOn(t *testing.T) {
	w := newWorldOf(t, broker.Config{StuckClaim: 1e7})
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	p := w.puppet(t, topic, "")
	p.do("lane", "ok")
	p.do("claim 0 mine 500", "ok")
	p.Halt()
	got := w.unstickSoon(t, topic)
	if got.Outcome != "waiting" || !strings.Contains(got.Remedy, fmt.Sprintf("kill -CONT %d", got.PID)) || got.SkippedBytes != 0 {
		t.Errorf("%+v", got)
	}
	if n := fill(t, l); n > 8192/64 {
		t.Errorf("%d frames went past the claim of one that is stopped", n)
	}
	want(t, "in front of the claim", drain(t, reader))
	p.Signal(contSignal)
	testutil.Eventually(t, "the claim is given up", func() bool { return w.info(t, topic).RevokedClaims == 1 })
	drain(t, reader)
	lap(t, l, reader, 500)
	p.do("commit 0", "error "+client.ErrClaimRevoked.Error())
	p.do("try 0 more 1", "error "+client.ErrClaimRevoked.Error())
	p.do("lane", "ok")
	p.do("publish 1 again 1", "ok")
	if got := drain(t, reader); len(got) != 1 || got[0] != "again" {
		t.Errorf("%q", got)
	}
}

// stoppedAtAnyPoint: a living publisher is never overridden. In the middle of a call it cannot give its claim up. It is named, nothing is done, and
// when it goes on its frames arrive.
func stoppedAtAnyPoint(t *testing.T, binary string) {
	w := newWorldOf(t, broker.Config{StuckClaim: 1e7})
	w.binary = binary
	for _, point := range []string{ring.FailAfterIntent, ring.FailAfterClaim, ring.FailMidCopy, ring.FailBeforeCommit, ring.FailAfterCommit} {
		parallel(t, point, w, func(t *testing.T, w *world) {
			topic := w.topic(t, client.TopicOptions{})
			reader := w.subscriber(t, topic, client.SubscriberOptions{})
			p := w.puppet(t, topic, point+"=stop")
			p.do("lane", "ok")
			p.stops("publish 0 mine 500", point)
			stage := map[string]string{ring.FailAfterIntent: "intent", ring.FailAfterCommit: "committed"}[point]
			if stage == "" {
				stage = "claim"
			}
			got := w.unstickSoon(t, topic)
			info := w.info(t, topic).Publishers[0]
			if got.Outcome != "waiting" || info.Stage != stage || info.PID != got.PID || info.Position != got.Position {
				t.Errorf("%+v, %+v; want stage %s", got, info, stage)
			}
			p.Signal(contSignal)
			p.Expect("ok")
			want(t, "what was stopped", drain(t, reader), "mine")
			testutil.Eventually(t, "nothing is stuck", func() bool { return w.info(t, topic).StuckClaims == 0 })
			if info := w.info(t, topic); info.RevokedClaims != 0 || info.Repairs != 0 {
				t.Errorf("%+v", info)
			}
			p.do("publish 0 more 1", "ok")
			want(t, "behind it", drain(t, reader), "more")
		})
	}
}

// TestStuckPublisherThatDies: unstick waits for it, and its death is repaired as any other.
func TestStuckPublisherThatDies(t *testing.T) {
	w := newWorldOf(t, broker.Config{StuckClaim: 1e7})
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	p := w.puppet(t, topic, "")
	p.do("lane", "ok")
	p.do("claim 0 mine 500", "ok")
	p.Halt()
	if got := w.unstickSoon(t, topic); got.Outcome != "waiting" {
		t.Errorf("%+v", got)
	}
	p.Kill()
	if info := w.attached(t, topic, 1, 1); info.Repairs != 1 || info.RevokedClaims != 0 || info.StuckClaims != 0 {
		t.Errorf("%+v", info)
	}
	publish(t, l, "f1")
	want(t, "behind the padding", drain(t, reader), "f1")
}
