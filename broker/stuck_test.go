package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// stuck is a broker for which a claim is stuck soon, a topic, and a claim that is.
func stuck(t *testing.T, c Config) (s *server, admin, owner *peer, v *view, claim ring.Claim) {
	t.Helper()
	c.StuckClaim = 20 * time.Millisecond
	s = start(t, c)
	admin, owner = s.connect(t), s.connect(t)
	admin.create("orders", small)
	v, p := owner.publisher("orders")
	claim, err := p.Claim(100)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the claim is named", func() bool { return admin.show("orders").StuckClaims == 1 })
	return s, admin, owner, v, claim
}

func TestStuckClaimIsNamedEverywhere(t *testing.T) {
	s, admin, _, _, claim := stuck(t, Config{Metrics: "127.0.0.1:0"})
	p := admin.show("orders").Publishers[0]
	if p.StuckFor < 20*time.Millisecond || p.Stage != "claim" || p.Position != 0 || p.ClaimedBytes != 128 {
		t.Errorf("%+v", p)
	}
	for _, text := range []string{
		"publisher holds a claim for too long", fmt.Sprint("pid=", os.Getpid()), fmt.Sprint("uid=", os.Getuid()), "name=test", "slot=0",
		"position=0", "bytes=128", "stage=claim", "age=", "hugebus topic unstick orders --publisher 0",
	} {
		s.log.await(t, text)
	}
	text := s.get(t, "/metrics")
	for _, line := range []string{
		`hugebus_stuck_claims{topic="orders"} 1`, `hugebus_stuck_claims_total{topic="orders"} 1`, `hugebus_revoked_claims_total{topic="orders"} 0`,
		fmt.Sprintf(`hugebus_stuck_claim_seconds{name="test",pid="%d",slot="0",topic="orders"} 0.`, os.Getpid()),
	} {
		if !strings.Contains(text, line) {
			t.Errorf("metrics do not say %s", line)
		}
	}
	if err := claim.Commit(); err != nil {
		t.Fatal(err)
	}
	s.log.await(t, "publisher that held a claim for too long has gone on")
	if info := admin.show("orders"); info.StuckClaims != 0 || info.Publishers[0].StuckFor != 0 || info.Publishers[0].Stage != "" {
		t.Errorf("%+v", info)
	}
}

// TestLogNamesAStuckClaimLessAndLessOften: at 1, 2, 4, … seconds, and then every ten minutes.
func TestLogNamesAStuckClaimLessAndLessOften(t *testing.T) {
	s := start(t, Config{StuckClaim: time.Second})
	p := s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	if _, err := pub.Claim(1); err != nil {
		t.Fatal(err)
	}
	topic := s.topics.get("orders")
	topic.mu.Lock()
	defer topic.mu.Unlock()
	topic.stuck = stuckClaims{}
	now, earlier := time.Now(), topic.counts.stuck // on a slow machine it may have been seen for a second
	var ages []time.Duration
	for age := time.Duration(0); age <= time.Hour; age += time.Second {
		before := strings.Count(s.log.String(), "holds a claim for too long")
		topic.watchClaims(now.Add(age))
		if strings.Count(s.log.String(), "holds a claim for too long") > before {
			ages = append(ages, age)
		}
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1624, 2224, 2824, 3424}
	if len(ages) != len(want) {
		t.Fatalf("named at %v", ages)
	}
	for i := range want {
		if ages[i] != want[i]*time.Second {
			t.Errorf("named at %v, want %v s", ages, want)
		}
	}
	if n := topic.counts.stuck - earlier; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

// await waits for an event.
func (p *peer) await(kind control.EventKind, into any) {
	p.t.Helper()
	for {
		for i, m := range p.events {
			if m.Event == kind {
				p.events = append(p.events[:i], p.events[i+1:]...)
				if err := m.Decode(into); err != nil {
					p.t.Fatal(err)
				}
				return
			}
		}
		m, _, err := p.receive()
		if err != nil {
			p.t.Fatal(err)
		}
		p.events = append(p.events, m)
	}
}

// unstuck asks to unstick, does something, and returns the reply.
func unstuck(t *testing.T, admin *peer, meanwhile func()) control.UnstuckClaim {
	t.Helper()
	done := make(chan control.UnstickReply, 1)
	go func() {
		var r control.UnstickReply
		admin.must(control.OpUnstick, control.UnstickRequest{Name: "orders"}, &r)
		done <- r
	}()
	meanwhile()
	r := <-done
	if len(r.Claims) != 1 {
		t.Fatalf("%+v", r)
	}
	return r.Claims[0]
}

func TestUnstick(t *testing.T) {
	ask := func(t *testing.T, owner *peer, v *view) {
		var r control.Revoke
		owner.await(control.EventRevoke, &r)
		if r != (control.Revoke{Attachment: v.Attachment, Topic: "orders"}) {
			t.Errorf("%+v", r)
		}
	}
	t.Run("revoked", func(t *testing.T) {
		s, admin, owner, v, _ := stuck(t, Config{})
		got := unstuck(t, admin, func() {
			ask(t, owner, v)
			owner.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment, Revoked: true}, nil)
		})
		if got.Outcome != control.UnstickRevoked || got.SkippedBytes != 128 || got.Remedy != "" || got.PID != int32(os.Getpid()) {
			t.Errorf("%+v", got)
		}
		if info := admin.show("orders"); info.RevokedClaims != 1 || info.PublisherCount != 0 || info.StuckClaims != 0 {
			t.Errorf("%+v", info)
		}
		s.log.await(t, "operator takes a claim away from a living publisher")
	})
	t.Run("ended", func(t *testing.T) {
		_, admin, owner, v, claim := stuck(t, Config{})
		got := unstuck(t, admin, func() {
			ask(t, owner, v)
			if err := claim.Commit(); err != nil {
				t.Error(err)
			}
		})
		if got.Outcome != control.UnstickEnded || got.SkippedBytes != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("died", func(t *testing.T) {
		_, admin, owner, v, _ := stuck(t, Config{})
		got := unstuck(t, admin, func() {
			ask(t, owner, v)
			owner.die()
		})
		if got.SkippedBytes != 128 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("waiting", func(t *testing.T) {
		_, admin, owner, v, claim := stuck(t, Config{})
		got := unstuck(t, admin, func() { ask(t, owner, v) })
		if got.Outcome != control.UnstickWaiting || !strings.Contains(got.Remedy, fmt.Sprintf("kill -9 %d", got.PID)) {
			t.Errorf("%+v", got)
		}
		if !claim.Open() || admin.show("orders").Repairs != 0 {
			t.Error("something was done to a claim that was not given up")
		}
	})
	t.Run("refused", func(t *testing.T) {
		_, admin, _, _, claim := stuck(t, Config{})
		slot := 1
		for _, r := range []control.UnstickRequest{{Name: "orders", Publisher: &slot}, {Name: "orders", PID: 1}} {
			admin.refused(control.CodeNotFound, control.OpUnstick, r, "longer than 20ms", "1 others have")
		}
		admin.refused(control.CodeNotFound, control.OpUnstick, control.UnstickRequest{Name: "none"})
		admin.refused(control.CodeInvalid, control.OpUnstick, control.UnstickRequest{Name: "a b"})
		if err := claim.Commit(); err != nil {
			t.Fatal(err)
		}
		admin.refused(control.CodeNotFound, control.OpUnstick, control.UnstickRequest{Name: "orders"}, "no publisher has held a claim", "0 others have")
	})
}

// TestIdleBrokerDoesNotLook: without anything attached nothing wakes it.
func TestIdleBrokerDoesNotLook(t *testing.T) {
	s := start(t, Config{StuckClaim: 20 * time.Millisecond})
	p := s.connect(t)
	p.create("orders", small)
	topic := s.topics.get("orders")
	if topic.look(time.Now()) {
		t.Error("an unused topic is busy")
	}
	v, _ := p.publisher("orders")
	if !topic.look(time.Now()) {
		t.Error("a topic in use is not looked at")
	}
	p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	if topic.look(time.Now()) {
		t.Error("a topic that is not used any more is busy")
	}
	p.must(control.OpRemove, control.RemoveRequest{Name: "orders"}, nil)
	if topic.look(time.Now()) {
		t.Error("a topic that is gone is busy")
	}
}
