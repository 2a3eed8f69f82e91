package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// Words of the cursors memory; see docs/layout.md.
const (
	gatingWord = 384
	groupsWord = 512
	firstSlot  = 1024
	slotBytes  = 128
)

func TestImpossibleCursorIsExpelled(t *testing.T) {
	s := start(t, Config{Metrics: "127.0.0.1:0"})
	p, q := s.connect(t), s.connect(t)
	p.create("orders", small)
	v, sub := q.subscriber("orders")
	_, pub := p.publisher("orders")
	putWord(v.segments[control.FileCursors].Bytes(), firstSlot+slotBytes*v.Slot, 1<<40)
	for range 3 {
		if info := p.show("orders"); info.Violations != 1 || info.Expulsions != 1 || info.Subscribers[0].Expelled != "ahead of tail" {
			t.Errorf("%+v", info)
		}
	}
	var told control.Expelled
	q.await(control.EventExpelled, &told)
	if told.Attachment != v.Attachment || told.Topic != "orders" || told.Reason != "ahead of tail" {
		t.Errorf("%+v", told)
	}
	if _, err := sub.Poll(1, func(ring.Frame) error { return nil }); err != ring.ErrUngated {
		t.Errorf("its reader: %v", err)
	}
	s.log.await(t, "it is expelled")
	s.log.await(t, fmt.Sprintf("pid=%d", os.Getpid()))
	for range 5000 { // it holds nobody back
		if err := pub.TryPublish(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if text := s.get(t, "/metrics"); !strings.Contains(text, `hugebus_expulsions_total{topic="orders"} 1`) {
		t.Error("the figures do not say so")
	}
	// Its slot is its own until it leaves, and then anybody's.
	if w := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber}); w.Slot == v.Slot {
		t.Error("its slot was given away")
	}
	q.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	if w := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber}); w.Slot != v.Slot {
		t.Error("its slot is lost")
	}
}

// TestNobodyIsExpelledByLooking: the broker looks while subscribers come, read, and go.
func TestNobodyIsExpelledByLooking(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	for range 30 {
		v, sub := p.subscriber("orders")
		m, member := p.member("orders", "g")
		publishAll(t, pub, "a", "b")
		p.show("orders")
		if got := payloads(t, sub.Poll); len(got) != 2 {
			t.Errorf("%q", got)
		}
		payloads(t, member.Poll)
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		p.show("orders") // closed, and not detached yet
		p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
		p.must(control.OpDetach, control.DetachRequest{Attachment: m.Attachment}, nil)
	}
	if info := p.show("orders"); info.Violations != 0 || info.Expulsions != 0 {
		t.Errorf("%+v", info)
	}
}

func TestHostileGroupHeadEndsTheGroup(t *testing.T) {
	s := start(t, Config{})
	p, q := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	v, m := q.member("orders", "workers")
	publishAll(t, pub, "a")
	payloads(t, m.Poll)
	head := firstSlot + slotBytes*small.Subscribers // of group 0
	putWord(v.segments[control.FileCursors].Bytes(), head, 1<<40)
	if info := p.show("orders"); info.Expulsions != 1 || info.Groups[0].Members[0].Expelled != "its group ahead of tail" {
		t.Errorf("%+v", info)
	}
	var told control.Expelled
	q.await(control.EventExpelled, &told)
	p.refused(control.CodeBusy, control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindMember, Group: "workers"}, "was written over", "1 members")
	q.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	_, m = p.member("orders", "workers")
	publishAll(t, pub, "b")
	if got := payloads(t, m.Poll); len(got) != 1 || got[0] != "b" {
		t.Errorf("%q", got)
	}
	s.log.await(t, "it is given up")
}

func TestWhatIsNobodysHoldsNobodyBack(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	v := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber, Policy: control.PolicyLossy})
	_, pub := p.publisher("orders")
	words := v.segments[control.FileCursors].Bytes()
	putWord(words, gatingWord, 1<<5) // a slot that nobody has; its cursor is 0
	putWord(words, groupsWord, 1<<1)
	putWord(words, 0, 0) // the magic
	for range 5000 {
		err := pub.TryPublish(make([]byte, 100))
		if err == ring.ErrBackpressure {
			testutil.Eventually(t, "the publisher can go on", func() bool { return pub.TryPublish(nil) == nil })
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.ask(control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber, LaneOnly: true}, &control.AttachReply{}); err != nil {
		t.Error(err)
	}
	if _, err := ring.Attach(ring.Memory{Ctl: v.segments[0].Bytes(), Cursors: words, Data: v.segments[2].Bytes()}); err != nil {
		t.Errorf("nobody can attach any more: %v", err)
	}
	s.log.await(t, "in the name of nobody")
	s.log.await(t, "it is restored")
}

// TestLogIsNotFloodedByViolations counts most of them.
func TestLogIsNotFloodedByViolations(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	v := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber, Policy: control.PolicyLossy})
	for range 500 {
		putWord(v.segments[control.FileCursors].Bytes(), gatingWord, 1<<5)
		p.show("orders")
	}
	if info := p.show("orders"); info.Violations < 400 {
		t.Errorf("%d violations", info.Violations)
	}
	if n := strings.Count(s.log.String(), "in the name of nobody"); n < alarmBurst || n > 60 {
		t.Errorf("%d lines in the log", n)
	}
}
