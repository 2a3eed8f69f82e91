package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// slots are who has which slot, by name of the attachment.
func slots(info client.TopicInfo) map[string]int {
	out := map[string]int{}
	for _, list := range [][]client.AttachmentInfo{info.Publishers, info.Subscribers} {
		for _, a := range list {
			out[fmt.Sprint(a.Attachment, a.Name, a.PID)] = a.Slot
		}
	}
	for _, g := range info.Groups {
		for _, a := range g.Members {
			out[fmt.Sprint(g.Name, a.Attachment, a.Name, a.PID)] = a.Slot
		}
	}
	return out
}

func sameSlots(t *testing.T, before, after client.TopicInfo) {
	t.Helper()
	was, is := slots(before), slots(after)
	if fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("slots were %v, are %v", was, is)
	}
}

// A flow is a publisher, a reliable subscriber and two members of a group, which all run until stop.
type flow struct {
	t         *testing.T
	c         *client.Client
	topic     string
	done      chan struct{}
	ends      context.CancelFunc
	publisher sync.WaitGroup
	all       sync.WaitGroup
	published atomic.Uint64
	read      atomic.Uint64
	worked    atomic.Uint64
	seen      sync.Map // numbers that members have finished
}

func startFlow(t *testing.T, c *client.Client, topic string) *flow {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &flow{t: t, c: c, topic: topic, done: make(chan struct{}), ends: cancel}
	sub, err := c.Subscriber(ctx, topic, client.SubscriberOptions{Name: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	f.all.Go(func() { defer sub.Close(); f.check(sub.Run(ctx, f.take)) })
	for i := range 2 {
		g, err := c.Group(ctx, topic, "workers", client.GroupOptions{Name: fmt.Sprint("worker ", i)})
		if err != nil {
			t.Fatal(err)
		}
		f.all.Go(func() { defer g.Close(); f.check(g.Run(ctx, f.work)) })
	}
	lane, err := c.Lane(ctx, topic, client.PublisherOptions{Name: "writer"})
	if err != nil {
		t.Fatal(err)
	}
	f.publisher.Go(func() {
		defer lane.Close()
		var b [8]byte
		for n := uint64(0); ; n++ {
			select {
			case <-f.done:
				return
			default:
			}
			binary.LittleEndian.PutUint64(b[:], n)
			if err := lane.Publish(ctx, b[:]); err != nil {
				t.Errorf("publish %d: %v", n, err)
				return
			}
			f.published.Add(1)
		}
	})
	return f
}

func (f *flow) check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		f.t.Error(err)
	}
}

// take checks that frames come in order, and none is missing.
func (f *flow) take(frame client.Frame) error {
	if n := binary.LittleEndian.Uint64(frame.Payload); n != f.read.Load() {
		return fmt.Errorf("frame %d came, want %d", n, f.read.Load())
	}
	f.read.Add(1)
	return nil
}

// work checks that no frame comes twice without saying so.
func (f *flow) work(frame client.Frame) error {
	n := binary.LittleEndian.Uint64(frame.Payload)
	if _, twice := f.seen.LoadOrStore(n, true); twice {
		if frame.Redelivered == 0 {
			return fmt.Errorf("frame %d came twice, and is not marked", n)
		}
		return nil
	}
	f.worked.Add(1)
	return nil
}

// moves waits until frames have come through since the call.
func (f *flow) moves() {
	f.t.Helper()
	published, read, worked := f.published.Load(), f.read.Load(), f.worked.Load()
	testutil.Eventually(f.t, "frames flow", func() bool {
		return f.published.Load() > published+100 && f.read.Load() > read+100 && f.worked.Load() > worked+100 || f.t.Failed()
	})
}

// stop ends the publisher, and checks that every frame has come.
func (f *flow) stop() {
	f.t.Helper()
	close(f.done)
	f.publisher.Wait()
	testutil.Eventually(f.t, "every frame has come", func() bool {
		n := f.published.Load()
		return f.read.Load() == n && f.worked.Load() == n || f.t.Failed()
	})
	f.ends()
	f.all.Wait()
}

// TestBrokerKilledUnderLoad kills it ten times. Nobody notices, everybody keeps its slot, and nothing is left behind.
func TestBrokerKilledUnderLoad(t *testing.T) {
	k := newKeptWorld(t, "")
	topic := k.topic(t, client.TopicOptions{Capacity: 64 << 10})
	far := k.puppet(t, topic, "")
	far.do("lane", "ok")
	far.do("sub lossy", "ok")
	f := startFlow(t, k.c, topic)
	f.moves()
	before := k.info(t, topic)
	for range 10 {
		k.kill()
		f.moves()
		k.start("")
		sameSlots(t, before, k.info(t, topic))
		f.moves()
		// New ones can attach, and leave.
		l, err := k.c.Lane(t.Context(), topic, client.PublisherOptions{Name: "new"})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.stop()
	far.CloseInput()
	k.attached(t, topic, 0, 0)
	if err := k.c.RemoveTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if err := k.c.Close(); err != nil {
		t.Fatal(err)
	}
	k.kill()
	k.keeps("socket")
}

// TestBrokerUpgrade stops the broker in the ordinary way and starts another.
func TestBrokerUpgrade(t *testing.T) {
	k := newKeptWorld(t, "")
	topic := k.topic(t, client.TopicOptions{Capacity: 64 << 10})
	f := startFlow(t, k.c, topic)
	f.moves()
	before := k.info(t, topic)
	for range 3 {
		k.upgrade()
		sameSlots(t, before, k.info(t, topic))
		f.moves()
	}
	f.stop()
}

// TestDeathWhileTheBrokerIsAway: what the dead left is repaired by the next broker, before anybody has to come back.
func TestDeathWhileTheBrokerIsAway(t *testing.T) {
	k := newKeptWorld(t, "")
	topic := k.topic(t, client.TopicOptions{})
	l, reader := k.lane(t, topic), k.subscriber(t, topic, client.SubscriberOptions{})
	writer, holder, worker := k.puppet(t, topic, ""), k.puppet(t, topic, ""), k.puppet(t, topic, "")
	for _, command := range []string{"lane", "claim 0 mine 100"} {
		writer.do(command, "ok")
	}
	holder.do("sub reliable", "ok")
	worker.do("member g", "ok")
	k.kill()
	publish(t, l, "behind")
	want(t, "in front of the open claim", drain(t, reader))
	killAll(writer, holder, worker)
	k.start("")
	info := k.attached(t, topic, 1, 1)
	if info.Repairs != 1 {
		t.Errorf("%d repairs", info.Repairs)
	}
	testutil.Eventually(t, "the frame behind the claim comes", func() bool {
		got := drain(t, reader)
		return len(got) == 1 && got[0] == "behind"
	})
	// Nobody is held back by the dead subscriber.
	for i := range 300 {
		publish(t, l, fmt.Sprint(i))
		drain(t, reader)
	}
}

// TestStoppedThroughTheGrace: a client that lives keeps its slot and its open claim, however long it takes.
func TestStoppedThroughTheGrace(t *testing.T) {
	k := newKeptWorld(t, "")
	topic := k.topic(t, client.TopicOptions{})
	l, reader := k.lane(t, topic), k.subscriber(t, topic, client.SubscriberOptions{})
	p := k.puppet(t, topic, "")
	p.do("lane", "ok")
	p.do("claim 0 mine 100", "ok")
	publish(t, l, "behind")
	p.Halt()
	before := k.info(t, topic)
	k.kill()
	k.start("")
	// The log names who does not come back, when the grace is over.
	testutil.Eventually(t, "the log names it", func() bool {
		_, after, _ := strings.Cut(k.broker.Stderr(), "client lives and has not come back")
		return strings.Contains(after, fmt.Sprint("pid=", p.Pid()))
	})
	want(t, "the claim is left alone", drain(t, reader))
	sameSlots(t, before, k.info(t, topic))
	p.Signal(contSignal)
	p.do("commit 0", "ok")
	want(t, "after its commit", drain(t, reader), "mine", "behind")
	p.do("publish 0 more 10", "ok")
	want(t, "and it goes on", drain(t, reader), "more")
	sameSlots(t, before, k.info(t, topic))
	p.Kill()
	k.attached(t, topic, 1, 1)
}

// TestDetachWhileTheBrokerIsAway: the next one hears of it, also from a client that has closed.
func TestDetachWhileTheBrokerIsAway(t *testing.T) {
	k := newKeptWorld(t, "")
	topic := k.topic(t, client.TopicOptions{})
	other := k.dial()
	for _, c := range []*client.Client{k.c, other} {
		for range 2 {
			if _, err := c.Lane(t.Context(), topic, client.PublisherOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	l, err := k.c.Lane(t.Context(), topic, client.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k.kill()
	if err := errors.Join(l.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	k.start("")
	k.attached(t, topic, 2, 0)
}

// TestBrokerAnewWithoutKeeper: what is attached is over, and says so; no slot of the new topic is touched.
func TestBrokerAnewWithoutKeeper(t *testing.T) {
	w, b := brokerProcess(t)
	topic := w.topic(t, client.TopicOptions{Capacity: 4096})
	l, sub, g := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{}), w.member(t, topic, "g")
	claiming := w.lane(t, topic)
	claim, err := claiming.Claim(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 2)
	go func() { waits <- sub.Run(t.Context(), func(client.Frame) error { return nil }) }()
	go func() { waits <- g.Run(t.Context(), func(client.Frame) error { return nil }) }()
	b.Kill()
	b = testutil.Start(t, "broker", w.socket)
	b.Expect("ready")
	for range 2 {
		if err := <-waits; !errors.Is(err, client.ErrDetached) {
			t.Errorf("who waited: %v", err)
		}
	}
	// Those who wait may hear of it some moments before the others do.
	testutil.Eventually(t, "publishers know", func() bool {
		_, err := claiming.TryClaim(1)
		return errors.Is(err, client.ErrDetached) && errors.Is(l.TryPublish([]byte("x")), client.ErrDetached)
	})
	if err := claim.Commit(); !errors.Is(err, client.ErrDetached) {
		t.Errorf("commit: %v", err)
	}
	if err := claim.Commit(); !errors.Is(err, client.ErrNotClaimed) {
		t.Errorf("commit again: %v", err)
	}
	if err := errors.Join(l.Close(), sub.Close(), g.Close(), claiming.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := w.c.Topic(t.Context(), topic); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("the old topic: %v", err)
	}
	w.topic(t, client.TopicOptions{Capacity: 4096})
}

// TestWaitForABroker: a context with a deadline waits, and so does a client that says so.
func TestWaitForABroker(t *testing.T) {
	k := newKeptWorld(t, "")
	topic := k.topic(t, client.TopicOptions{})
	k.kill()
	past, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	<-past.Done()
	if _, err := k.c.Lane(past, topic, client.PublisherOptions{}); !errors.Is(err, client.ErrBrokerUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("attach with a context that is over: %v", err)
	}
	if _, err := client.Dial(t.Context(), client.Options{Socket: k.socket}); !errors.Is(err, client.ErrBrokerUnavailable) || !strings.Contains(err.Error(), "has died") {
		t.Errorf("who does not want to wait: %v", err)
	}
	got := make(chan error)
	go func() {
		l, err := k.c.Lane(t.Context(), topic, client.PublisherOptions{})
		if err == nil {
			err = l.Close()
		}
		got <- err
	}()
	dialled := make(chan error)
	go func() { // its connection waits in the socket's queue
		c, err := client.Dial(t.Context(), client.Options{Socket: k.socket, WaitForBroker: -1})
		if err == nil {
			err = c.Close()
		}
		dialled <- err
	}()
	k.start("")
	for _, c := range []chan error{got, dialled} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	// The new broker has taken the old one's socket: those who do not wait find it.
	c, err := client.Dial(t.Context(), client.Options{Socket: k.socket})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestTwoBrokers: the second one is refused while the first lives, also when it is stopped.
func TestTwoBrokers(t *testing.T) {
	k := newKeptWorld(t, "")
	k.broker.Halt()
	second := testutil.Start(t, "keptbroker", k.socket)
	if line := second.Line(); !strings.Contains(line, fmt.Sprint("another broker (pid ", k.broker.Pid())) {
		t.Errorf("the second broker: %s", line)
	}
	// Without the lock file the keeper's lease is still there.
	if err := os.Remove(k.socket + ".lock"); err != nil {
		t.Fatal(err)
	}
	third := testutil.Start(t, "keptbroker", k.socket)
	if line := third.Line(); !strings.Contains(line, fmt.Sprint("pid ", k.broker.Pid())) || !strings.Contains(line, "two brokers must not have the same topics") {
		t.Errorf("the third broker: %s", line)
	}
	k.broker.Signal(contSignal)
	k.topic(t, client.TopicOptions{})
}
