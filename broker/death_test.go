package broker

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func TestDeadSubscriberLetsPublishersGoOn(t *testing.T) {
	s := start(t, Config{})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	victim.subscriber("orders")
	fill := func() (n int) {
		for pub.TryPublish(make([]byte, 1000)) == nil {
			if n++; n > 10_000 {
				return n
			}
		}
		return n
	}
	if n := fill(); n == 0 || n > 64 {
		t.Fatalf("%d frames fitted although a subscriber gates", n)
	}
	victim.die()
	testutil.Eventually(t, "the publisher can go on", func() bool { return pub.TryPublish([]byte("x")) == nil })
	if n := fill(); n < 10_000 {
		t.Errorf("only %d frames fitted after the death", n)
	}
	s.log.await(t, "subscriber died")
	testutil.Eventually(t, "the subscriber is gone", func() bool { return p.show("orders").SubscriberCount == 0 })
}

func TestDeadPublishersOpenClaimBecomesPadding(t *testing.T) {
	s := start(t, Config{})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, sub := p.subscriber("orders")
	v, dying := victim.publisher("orders")
	if err := pub.TryPublish([]byte("before")); err != nil {
		t.Fatal(err)
	}
	if _, err := dying.Claim(500); err != nil {
		t.Fatal(err)
	}
	if err := pub.TryPublish([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, sub.Poll); !slices.Equal(got, []string{"before"}) {
		t.Fatalf("read before the death: %q", got)
	}
	victim.die()
	var got []string
	testutil.Eventually(t, "the frame behind the hole arrives", func() bool {
		got = append(got, payloads(t, sub.Poll)...)
		return len(got) > 0
	})
	if !slices.Equal(got, []string{"after"}) {
		t.Errorf("read after the death: %q", got)
	}
	testutil.Eventually(t, "the publisher is gone", func() bool { return p.show("orders").PublisherCount == 1 })
	if info := p.show("orders"); info.Repairs != 1 || info.RepairedBytes != 576 {
		t.Errorf("repairs: %d of %d bytes", info.Repairs, info.RepairedBytes)
	}
	state, err := v.ring.State()
	if err != nil || state.Repairs != 1 || state.SkippedBytes != 576 || state.Publishers != 1 {
		t.Errorf("state in memory: %+v, %v", state, err)
	}
	for _, text := range []string{"publisher left an open claim", "skipped_bytes=576", fmt.Sprintf("pid=%d", os.Getpid()), fmt.Sprintf("uid=%d", os.Getuid()), "died=true"} {
		s.log.await(t, text)
	}
	// This process still runs: the log says so, as it would of a client that misbehaves.
	s.log.await(t, "and still runs")
}

func TestDetachedPublishersOpenClaimIsRepairedToo(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	v, pub := p.publisher("orders")
	_, sub := p.subscriber("orders")
	if _, err := pub.Claim(10); err != nil {
		t.Fatal(err)
	}
	p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	_, next := p.publisher("orders")
	if next.Index() != v.Slot {
		t.Errorf("slot %d was given, not the free %d", next.Index(), v.Slot)
	}
	if err := next.TryPublish([]byte("next")); err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, sub.Poll); !slices.Equal(got, []string{"next"}) {
		t.Errorf("read: %q", got)
	}
}

func TestSlotsRunOutAndAreReused(t *testing.T) {
	s := start(t, Config{})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 2, Subscribers: 2, Groups: 1})
	cases := []control.AttachRequest{
		{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true},
		{Topic: "orders", Kind: control.KindSubscriber, LaneOnly: true},
	}
	for _, r := range cases {
		p.attach(r)
		v := victim.attach(r)
		p.refused(control.CodeNoSlot, control.OpAttach, r, fmt.Sprintf("all 2 %s slots are taken", r.Kind), "more slots")
		victim.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
		if got := victim.attach(r); got.Slot != v.Slot {
			t.Errorf("%s: slot %d, not the free %d", r.Kind, got.Slot, v.Slot)
		}
	}
	victim.refused(control.CodeNotFound, control.OpDetach, control.DetachRequest{Attachment: 1}, "no attachment 1")
	victim.die()
	for _, r := range cases {
		testutil.Eventually(t, "the dead client's slot is free", func() bool {
			_, err := p.ask(control.OpAttach, r, nil)
			return err == nil
		})
	}
}

func TestGroupsAndMembersRunOut(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 1, Subscribers: 70, Groups: 1})
	member := control.AttachRequest{Topic: "orders", Kind: control.KindMember, Group: "g", LaneOnly: true}
	for range ring.MaxMembers {
		p.attach(member)
	}
	p.refused(control.CodeNoSlot, control.OpAttach, member, "has 64 members already")
	member.Group = "h"
	p.refused(control.CodeNoSlot, control.OpAttach, member, "all 1 group slots are taken")
}

func TestExclusiveTopicHasOnePublisher(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", TopicOptions{Capacity: 4096, Pages: "4KiB", Exclusive: true})
	v, pub := p.publisher("orders")
	s.connect(t).refused(control.CodeNoSlot, control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindPublisher},
		`is exclusive, and "test"`, fmt.Sprintf("pid %d", os.Getpid()))
	if err := pub.TryPublish([]byte("x")); err != nil {
		t.Fatal(err)
	}
	p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	p.publisher("orders")
}

func TestRepairThatMustWaitIsTriedAgain(t *testing.T) {
	s := start(t, Config{})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	living := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher})
	v, dying := victim.publisher("orders")
	if _, err := dying.Claim(10); err != nil {
		t.Fatal(err)
	}
	// The living publisher's intent names the same position: it has lost the
	// compare-and-swap, and has not noticed yet.
	state, err := v.ring.PublisherState(v.Slot)
	if err != nil || !state.Claimed {
		t.Fatalf("%+v, %v", state, err)
	}
	// Offsets are those of docs/layout.md: the intent is a slot's first word, a position | 1.
	intent := 2048 + 128*living.Slot
	putWord(living.segments[control.FileCtl].Bytes(), intent, uint64(state.Claim)|1)
	victim.die()
	testutil.Eventually(t, "the repair is pending", func() bool { return pending(s, "orders") == 1 })
	victim2 := s.connect(t)
	for range 2 {
		victim2.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true})
	}
	victim2.refused(control.CodeBusy, control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindPublisher}, "1 of them wait for repair")
	putWord(living.segments[control.FileCtl].Bytes(), intent, 0)
	testutil.Eventually(t, "the repair is done", func() bool { return pending(s, "orders") == 0 })
	if info := p.show("orders"); info.Repairs != 1 || info.PublisherCount != 3 {
		t.Errorf("after the repair: %+v", info)
	}
	victim2.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true})
}

func pending(s *server, name string) int {
	t := s.topics.get(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}

func TestManyDieAtOnce(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", TopicOptions{Capacity: 64 << 10, Pages: "4KiB", Publishers: 16, Subscribers: 16})
	_, sub := p.subscriber("orders")
	var victims []*peer
	for i := range 15 {
		q := s.connect(t)
		_, pub := q.publisher("orders")
		if err := pub.TryPublish(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if _, err := pub.Claim(100 * (i + 1)); err != nil {
			t.Fatal(err)
		}
		victims = append(victims, q)
	}
	for _, q := range victims {
		q.die()
	}
	var got []string
	testutil.Eventually(t, "every committed frame arrives", func() bool {
		got = append(got, payloads(t, sub.Poll)...)
		return len(got) == 15
	})
	for i, text := range got {
		if text != fmt.Sprint(i) {
			t.Fatalf("frame %d reads %q", i, text)
		}
	}
	testutil.Eventually(t, "all slots are free", func() bool { return p.show("orders").PublisherCount == 0 })
	if n := p.show("orders").Repairs; n != 15 {
		t.Errorf("%d repairs", n)
	}
}

func TestStalledSubscriberIsEvictedInTime(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	v := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber, Policy: control.PolicyEvict, EvictAfter: 20 * time.Millisecond})
	sub, err := v.ring.Subscriber(v.Slot, ring.SubscriberOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Join(ring.Latest(), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	for pub.TryPublish(make([]byte, 100)) == nil {
	}
	testutil.Eventually(t, "the publisher can go on", func() bool { return pub.TryPublish([]byte("x")) == nil })
	s.log.await(t, "stood still for too long")
	if info := p.show("orders").Subscribers[0]; !info.Evicted || info.Policy != "evict" {
		t.Errorf("shown: %+v", info)
	}
	p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	testutil.Eventually(t, "the timer has stopped", func() bool {
		topic := s.topics.get("orders")
		topic.mu.Lock()
		defer topic.mu.Unlock()
		return topic.stalls.timer == nil || !topic.stalls.timer.Stop()
	})
}

func TestHostileSlotStateKeepsNobodyOut(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	v, _ := p.subscriber("orders")
	for slot := range small.Subscribers {
		if slot != v.Slot {
			putWord(v.segments[control.FileCursors].Bytes(), 1024+128*slot+8, 2)
		}
	}
	p.subscriber("orders")
	p.member("orders", "g")
}
