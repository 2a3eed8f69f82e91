package broker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// publishAll publishes each text as a frame.
func publishAll(t *testing.T, pub *ring.Publisher, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := pub.TryPublish([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// holdOne makes a member claim frames and never finish them, like one that is killed in
// its handler: the poll runs in a goroutine that ends with the test.
func holdOne(t *testing.T, m *ring.Member, limit int) {
	t.Helper()
	holding, end := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.Poll(limit, func(ring.Frame) error {
			close(holding)
			<-end
			return errors.New("the test is over")
		})
	}()
	<-holding
	t.Cleanup(func() { close(end); <-ended })
}

func TestDeadMembersFramesGoToAnotherMarked(t *testing.T) {
	s := start(t, Config{})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, m := p.member("orders", "workers")
	_, dying := victim.member("orders", "workers")
	publishAll(t, pub, "a", "b", "c")
	holdOne(t, dying, 2)
	if got := payloads(t, m.Poll); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("the other member got %q", got)
	}
	victim.die()
	redelivered := map[string]uint16{}
	testutil.Eventually(t, "the dead member's frames arrive", func() bool {
		if _, err := m.Poll(10, func(f ring.Frame) error {
			redelivered[string(f.Payload)] = f.Redelivered
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return len(redelivered) == 2
	})
	if redelivered["a"] != 1 || redelivered["b"] != 1 {
		t.Errorf("redelivered: %v", redelivered)
	}
	s.log.await(t, "unfinished_bytes=128")
	if g := p.show("orders").Groups[0]; len(g.Members) != 1 || g.Redelivered != 1 || g.UnfinishedRanges != 0 {
		t.Errorf("group: %+v", g)
	}
}

func TestGroupIsClosedAtOnceWhenItsLastMemberLeavesCleanly(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	v, _ := p.member("orders", "workers")
	w, _ := p.member("orders", "workers")
	p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	if n := p.show("orders").GroupCount; n != 1 {
		t.Errorf("%d groups while one member is left", n)
	}
	p.must(control.OpDetach, control.DetachRequest{Attachment: w.Attachment}, nil)
	if n := p.show("orders").GroupCount; n != 0 {
		t.Errorf("%d groups after the last member has left", n)
	}
}

func TestGroupLingersAfterADeathAndGoesOnWhereItWas(t *testing.T) {
	s := start(t, Config{GroupLinger: time.Hour})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, dying := victim.member("orders", "workers")
	publishAll(t, pub, "a", "b")
	holdOne(t, dying, 1)
	victim.die()
	testutil.Eventually(t, "the group lingers", func() bool {
		g := p.show("orders").Groups
		return len(g) == 1 && len(g[0].Members) == 0 && !g[0].Closes.IsZero() && g[0].UnfinishedRanges == 1
	})
	publishAll(t, pub, "c")
	_, m := p.member("orders", "workers")
	if got := payloads(t, m.Poll); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the new member got %q", got)
	}
	if g := p.show("orders").Groups[0]; !g.Closes.IsZero() {
		t.Errorf("the group still closes at %v", g.Closes)
	}
}

func TestLingeringGroupGatesAndIsClosedWithALogLine(t *testing.T) {
	s := start(t, Config{GroupLinger: 50 * time.Millisecond})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, dying := victim.member("orders", "workers")
	publishAll(t, pub, "a")
	holdOne(t, dying, 1)
	for pub.TryPublish(make([]byte, 1000)) == nil {
	}
	victim.die()
	s.log.await(t, "group has no members")
	s.log.await(t, "group is closed")
	s.log.await(t, "unfinished_ranges=1")
	testutil.Eventually(t, "publishers can go on", func() bool { return pub.TryPublish([]byte("x")) == nil })
	if n := p.show("orders").GroupCount; n != 0 {
		t.Errorf("%d groups", n)
	}
}

func TestNoLingerClosesAtOnce(t *testing.T) {
	s := start(t, Config{GroupLinger: -1})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	victim.member("orders", "workers")
	victim.die()
	testutil.Eventually(t, "the group is closed", func() bool { return p.show("orders").GroupCount == 0 })
}

func TestGroupStarts(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", TopicOptions{Capacity: 64 << 10, Pages: "4KiB", Groups: 8})
	_, pub := p.publisher("orders")
	publishAll(t, pub, "a", "b")
	join := func(group string, start *control.StartPoint) []string {
		v := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindMember, Group: group, Start: start})
		m, err := v.ring.Member(v.Group, v.Member, ring.SubscriberOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return payloads(t, m.Poll)
	}
	if got := join("all", &control.StartPoint{From: control.FromEarliest}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("earliest: %q", got)
	}
	if got := join("second", &control.StartPoint{From: control.FromPosition, Position: 64}); !slices.Equal(got, []string{"b"}) {
		t.Errorf("position: %q", got)
	}
	for name, start := range map[string]*control.StartPoint{"new": nil, "new2": {From: control.FromLatest}, "new3": {}} {
		if got := join(name, start); got != nil {
			t.Errorf("latest: %q", got)
		}
	}
	for _, bad := range []control.StartPoint{{From: control.FromPosition, Position: 1 << 30}, {From: control.FromPosition, Position: 63}, {From: "yesterday"}} {
		p.refused(control.CodeInvalid, control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindMember, Group: "bad", Start: &bad})
	}
	if info := p.show("orders"); info.GroupCount != 5 {
		t.Errorf("%d groups: one that could not start was left", info.GroupCount)
	}
}

func TestGroupCannotStartBehindAStoppedPublisher(t *testing.T) {
	t.Parallel() // it waits for seconds
	s := start(t, Config{})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	v := victim.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher})
	// An odd counter: the publisher is computing its limit (docs/layout.md).
	counter := 2048 + 128*v.Slot + 16
	putWord(v.segments[control.FileCtl].Bytes(), counter, 1)
	early := control.AttachRequest{Topic: "orders", Kind: control.KindMember, Group: "g", Start: &control.StartPoint{From: control.FromEarliest}, LaneOnly: true}
	result := make(chan error)
	go func() {
		_, err := p.ask(control.OpAttach, early, nil)
		result <- err
	}()
	// If it dies meanwhile, its repair must not wait for who waits for it.
	testutil.Eventually(t, "the group is opening", func() bool {
		topic := s.topics.get("orders")
		topic.mu.Lock()
		defer topic.mu.Unlock()
		return topic.group("g") != nil
	})
	victim.die()
	if err := <-result; err != nil {
		t.Errorf("after the publisher's death: %v", err)
	}

	// If it does not, there is an end too.
	stopped := s.connect(t).attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher})
	putWord(stopped.segments[control.FileCtl].Bytes(), 2048+128*stopped.Slot+16, 1)
	early.Group = "h"
	_, err := p.ask(control.OpAttach, early, nil)
	wantError(t, err, control.CodeBusy, "is it stopped?", "SIGCONT")
	if n := p.show("orders").GroupCount; n != 1 {
		t.Errorf("%d groups", n)
	}
}

func TestFramesThatKillTheirMembersBecomeDeadLetters(t *testing.T) {
	s := start(t, Config{GroupLinger: time.Hour})
	p := s.connect(t)
	o := small
	o.MaxRedeliveries = 2
	p.create("orders", o)
	_, pub := p.publisher("orders")
	for range 1 { // the group must exist before the frames are published
		victim := s.connect(t)
		_, m := victim.member("orders", "workers")
		publishAll(t, pub, "poison", "good")
		holdOne(t, m, 2)
		victim.die()
	}
	for i := range 2 {
		testutil.Eventually(t, "the range waits for a member", func() bool {
			g := p.show("orders").Groups
			return len(g) == 1 && len(g[0].Members) == 0 && g[0].UnfinishedRanges == 1
		})
		victim := s.connect(t)
		_, m := victim.member("orders", "workers")
		holdOne(t, m, 2)
		victim.die()
		_ = i
	}
	s.log.await(t, "they are dead letters now")
	dead := p.show("orders.dead")
	if dead.PublisherCount != 1 || dead.Publishers[0].Frames != 1 || dead.Publishers[0].Name != brokerName || dead.OwnerUID != uint32(p.show("orders").OwnerUID) {
		t.Errorf("dead-letter topic: %+v", dead)
	}
	v := p.attach(control.AttachRequest{Topic: "orders.dead", Kind: control.KindMember, Group: "g", Start: &control.StartPoint{From: control.FromEarliest}})
	reader, err := v.ring.Member(v.Group, v.Member, ring.SubscriberOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, reader.Poll); !slices.Equal(got, []string{"poison"}) {
		t.Errorf("dead letters: %q", got)
	}
	if v.MaxRedeliveries != -1 {
		t.Errorf("dead letters are redelivered %d times, want for ever", v.MaxRedeliveries)
	}
	w, m := p.member("orders", "workers")
	if w.MaxRedeliveries != 2 {
		t.Errorf("the attach reply says %d redeliveries", w.MaxRedeliveries)
	}
	if got := payloads(t, m.Poll); !slices.Equal(got, []string{"good"}) {
		t.Errorf("left in the group: %q", got)
	}
	if n := p.show("orders").DeadLetters; n != 1 {
		t.Errorf("%d dead letters were counted", n)
	}
}

func TestDeadLettersOnRequest(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	o := small
	o.MaxRedeliveries = 1
	p.create("orders", o)
	_, pub := p.publisher("orders")
	_, m := p.member("orders", "workers")
	publishAll(t, pub, "bad", "good")
	refuse := errors.New("cannot")
	for range 3 {
		if _, err := m.Poll(1, func(f ring.Frame) error {
			if strings.HasPrefix(string(f.Payload), "bad") {
				return refuse
			}
			return nil
		}); err != nil && err != refuse {
			t.Fatal(err)
		}
	}
	var r control.DeadLetterReply
	p.must(control.OpDeadLetter, control.DeadLetterRequest{Topic: "orders", Group: "workers"}, &r)
	if r.Moved != 1 || r.Topic != "orders.dead" {
		t.Errorf("reply: %+v", r)
	}
	p.must(control.OpDeadLetter, control.DeadLetterRequest{Topic: "orders", Group: "workers"}, &r)
	if r.Moved != 0 {
		t.Errorf("a second time: %+v", r)
	}
	p.refused(control.CodeNotFound, control.OpDeadLetter, control.DeadLetterRequest{Topic: "orders", Group: "nobody"}, `no group "nobody"`)
	p.refused(control.CodeInvalid, control.OpDeadLetter, control.DeadLetterRequest{Topic: "orders", Group: "a b"})
}

func TestDeadLettersStayWhereTheyAreWhenTheyCannotMove(t *testing.T) {
	s := start(t, Config{Quotas: Quotas{Limits: Limits{Topics: 1}}})
	p := s.connect(t)
	o := small
	o.MaxRedeliveries = 1
	p.create("orders", o)
	_, pub := p.publisher("orders")
	_, m := p.member("orders", "workers")
	publishAll(t, pub, "bad")
	for range 2 {
		_, _ = m.Poll(1, func(ring.Frame) error { return errors.New("cannot") })
	}
	p.refused(control.CodeQuota, control.OpDeadLetter, control.DeadLetterRequest{Topic: "orders", Group: "workers"}, "dead-letter topic", "quotas.topics")
	if got := payloads(t, m.Poll); !slices.Equal(got, []string{"bad"}) {
		t.Errorf("left in the group: %q", got)
	}
}
