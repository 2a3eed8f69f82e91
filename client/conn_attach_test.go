package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func TestAttachmentsOfOneDirectionShareAMapping(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	attach := func(kind control.Kind) *attachment {
		a, err := c.attach(t.Context(), attachOptions{kind: kind, topic: "t", policy: ring.Reliable})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	p, q, s := attach(control.KindPublisher), attach(control.KindPublisher), attach(control.KindSubscriber)
	if p.mem != q.mem || p.ring != q.ring || p.slot == q.slot {
		t.Error("two publishers do not share a mapping, or share a slot")
	}
	if s.mem == p.mem {
		t.Error("a subscriber has the publishers' writable mapping")
	}
	p.release()
	p.release() // does nothing
	if q.mem.segments[0].Bytes() == nil {
		t.Error("unmapped while in use")
	}
	q.release()
	if q.mem.segments[0].Bytes() != nil || s.mem.segments[0].Bytes() == nil {
		t.Error("the last release must unmap its direction, and only that")
	}
	s.release()
	if len(c.mappings) != 0 || len(c.attached) != 0 {
		t.Errorf("left: %d mappings, %d attachments", len(c.mappings), len(c.attached))
	}
	info, err := c.Topic(t.Context(), "t")
	if err != nil || info.PublisherCount+info.SubscriberCount != 0 {
		t.Errorf("the broker has %+v, %v", info, err)
	}
}

func TestManyAttachAtOnce(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 10 {
				a, err := c.attach(t.Context(), attachOptions{kind: control.KindPublisher, topic: "t"})
				if err != nil {
					t.Error(err)
					return
				}
				a.release()
			}
		})
	}
	all.Wait()
	if len(c.mappings) != 0 {
		t.Errorf("%d mappings are left", len(c.mappings))
	}
}

func TestRemovedTopicsAttachmentsLearnIt(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	o := attachOptions{kind: control.KindPublisher, topic: "t"}
	a, err := c.attach(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if a.removed() {
		t.Fatal("removed before its time")
	}
	if err := c.RemoveTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the attachment knows", a.removed)
	// The name may be in use again: that is another topic, with memory of its own.
	b, err := c.attach(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.removed() || b.mem == a.mem {
		t.Error("attached to the removed topic")
	}
	a.release()
	b.release()
}

func TestTopicMadeAnewBeforeTheEventArrives(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	o := attachOptions{kind: control.KindPublisher, topic: "t"}
	a, err := c.attach(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing of the broker: the client believes that it has the topic of another id.
	c.mu.Lock()
	delete(c.mappings, a.mem.key)
	a.mem.key.topicID = "ffff"
	c.mappings[a.mem.key] = a.mem
	c.mu.Unlock()
	b, err := c.attach(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.mem == a.mem || !a.removed() || b.removed() {
		t.Error("the old mapping was used for the new topic")
	}
	a.release()
	b.release()
	if info, err := c.Topic(t.Context(), "t"); err != nil || info.PublisherCount != 0 {
		t.Errorf("the slot that came first was not given back: %+v, %v", info, err)
	}
}

func TestWhatIsAttachedOutlivesTheBroker(t *testing.T) {
	socket, stop := runBroker(t, broker.Config{})
	c := connectTo(t, socket)
	pub, err := c.Publisher(t.Context(), "t", PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := c.Subscriber(t.Context(), "t", SubscriberOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	testutil.Eventually(t, "the client notices", func() bool { _, err := c.Ping(t.Context()); return err != nil })
	for i := range 100 {
		if err := pub.TryPublish([]byte("still here")); err != nil {
			t.Fatalf("publish %d without a broker: %v", i, err)
		}
		if n, err := sub.Poll(1, func(Frame) error { return nil }); n != 1 || err != nil {
			t.Fatalf("poll %d without a broker: %d, %v", i, n, err)
		}
	}
	if _, err := c.Topics(t.Context()); !errors.Is(err, ErrBrokerUnavailable) {
		t.Errorf("request without a broker: %v", err)
	}
	if _, err := c.Publisher(t.Context(), "u", PublisherOptions{}); !errors.Is(err, ErrBrokerUnavailable) {
		t.Errorf("attach without a broker: %v", err)
	}
	if err := errors.Join(pub.Close(), sub.Close()); err != nil {
		t.Errorf("close without a broker: %v", err)
	}
}

func TestConnectionStaysOpenAsLongAsSomethingIsAttached(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c, other := connectTo(t, socket), connectTo(t, socket)
	a, err := c.attach(t.Context(), attachOptions{kind: control.KindPublisher, topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	if err := a.closeWith(func() error { called++; return nil }); err != nil {
		t.Fatal(err)
	}
	pub, err := a.ring.Publisher(a.slot, ring.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := pub.Claim(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil || called != 1 {
		t.Fatalf("close: %v, its hook was called %d times", err, called)
	}
	if err := c.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a second close: %v", err)
	}
	if _, err := c.Topics(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("request after close: %v", err)
	}
	if _, err := c.attach(t.Context(), attachOptions{kind: control.KindPublisher, topic: "t"}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("attach after close: %v", err)
	}
	if err := a.closeWith(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("hook after close: %v", err)
	}
	// The broker does not take the open claim of somebody who lives for that of a dead one.
	info, err := other.Topic(t.Context(), "t")
	if err != nil || info.PublisherCount != 1 || info.Repairs != 0 {
		t.Errorf("while attached: %+v, %v", info, err)
	}
	if err := claim.Commit(); err != nil {
		t.Fatal(err)
	}
	a.release()
	<-c.conn.reader
	if info, err = other.Topic(t.Context(), "t"); err != nil || info.PublisherCount != 0 || info.Repairs != 0 {
		t.Errorf("after release: %+v, %v", info, err)
	}
}

func TestAttachThatNobodyWaitsForIsGivenBack(t *testing.T) {
	detached := make(chan uint64, 1)
	asked := make(chan struct{})
	answer := make(chan struct{})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(conn *control.Conn) {
		r := next(t, conn, control.OpAttach)
		close(asked)
		<-answer
		reply(t, conn, r, control.AttachReply{Attachment: 42}, null, null, null, null, null)
		r = next(t, conn, control.OpDetach)
		var d control.DetachRequest
		if err := control.DecodeBody(r, &d); err != nil {
			t.Error(err)
		}
		reply(t, conn, r, control.Empty{})
		detached <- d.Attachment
		_, _ = conn.Receive() // until the client closes
	})
	c := connectTo(t, socket)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := c.attach(ctx, attachOptions{kind: control.KindPublisher, topic: "t"}); !errors.Is(err, context.Canceled) {
		t.Errorf("attach: %v", err)
	}
	close(answer)
	if got := <-detached; got != 42 {
		t.Errorf("attachment %d was given back", got)
	}
}

func TestAttachWithTooFewOrWrongDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	const each = 6
	socket := fakeBroker(t, control.NewHello(ring.LayoutVersion), func(conn *control.Conn) {
		for n := range each {
			files := make([]*os.File, n)
			for i := range files {
				files[i] = null
			}
			reply(t, conn, next(t, conn, control.OpAttach), control.AttachReply{Attachment: uint64(n + 1)}, files...)
			reply(t, conn, next(t, conn, control.OpDetach), control.Empty{})
		}
		_, _ = conn.Receive()
	})
	c := connectTo(t, socket)
	for n := range each {
		_, err := c.attach(t.Context(), attachOptions{kind: control.KindPublisher, topic: "t"})
		want := fmt.Sprintf("%d descriptors came from the broker instead of 5", n)
		if n == control.MaxDescriptors {
			want = "not a memfd"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d descriptors: %v", n, err)
		}
	}
	if len(c.mappings) != 0 {
		t.Errorf("%d mappings are left", len(c.mappings))
	}
}

func TestNotesStandBesideTheirSubscription(t *testing.T) {
	socket, _ := runBroker(t, broker.Config{})
	c, other := connectTo(t, socket), connectTo(t, socket)
	s, err := c.Subscriber(t.Context(), "t", SubscriberOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"slow: 192.0.2.7", "", "größer"} {
		if err := s.Note(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if info, err := other.Topic(t.Context(), "t"); err != nil || info.Subscribers[0].Note != text {
			t.Errorf("%+v, %v, want %q", info.Subscribers, err, text)
		}
	}
	for _, text := range []string{strings.Repeat("x", 513), "a\nb", "\xff"} {
		if err := s.Note(t.Context(), text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Note(t.Context(), "x"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
