package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/keeper/keepertest"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// kept is a configuration whose topics outlive the broker, until the test ends.
func kept(t *testing.T) Config {
	t.Helper()
	c := Config{Socket: filepath.Join(shortDir(t), "s"), Keeper: KeeperConfig{Mode: KeepInProcess, Exec: keepertest.Exec()}}
	t.Cleanup(func() {
		testutil.Eventually(t, "the keeper has ended", func() bool {
			err := keeper.Shutdown(context.Background(), c.Socket+keeper.SocketSuffix)
			return err == nil || strings.Contains(err.Error(), keeper.ErrNotRunning.Error())
		})
	})
	return c
}

// end stops a broker, and waits for it.
func (s *server) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("serve: %v", err)
	}
	s.done <- nil
}

// secretive connects and returns the secret.
func (s *server) secretive(t *testing.T) (*peer, string) {
	t.Helper()
	conn, err := control.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	theirs, err := conn.SayHello(control.NewHello(ring.LayoutVersion))
	if err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, conn: conn, lastID: 1}, theirs.Secret
}

func (p *peer) reattach(secret string, more bool, ids ...uint64) control.ReattachReply {
	p.t.Helper()
	var r control.ReattachReply
	p.must(control.OpReattach, control.ReattachRequest{Secret: secret, Attachments: ids, More: more}, &r)
	return r
}

func TestReattachAfterARestart(t *testing.T) {
	c := kept(t)
	first := start(t, c)
	p, secret := first.secretive(t)
	p.create("orders", small)
	var ids []uint64
	for range 3 {
		v, pub := p.publisher("orders")
		ids = append(ids, v.Attachment)
		if err := pub.TryPublish([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	v, _ := p.member("orders", "g")
	epoch := first.epoch
	first.end(t)
	second := start(t, c)
	if s, err := v.ring.State(); err != nil || s.Epoch != second.epoch || s.Epoch == epoch || s.Publishers != 3 || s.Groups != 1 {
		t.Errorf("state: %+v, %v", s, err)
	}
	q, own := second.secretive(t)
	if r := q.reattach("nobody's", false, 1); r.Known || len(r.Attachments) != 0 {
		t.Errorf("a secret that nobody has: %+v", r)
	}
	if own == secret || own == "" {
		t.Errorf("secrets %q and %q", secret, own)
	}
	if r := q.reattach(secret, true, ids[0], 9999); !r.Known || !slices.Equal(r.Attachments, ids[:1]) {
		t.Errorf("first page: %+v", r)
	}
	if n := q.show("orders").PublisherCount; n != 3 {
		t.Errorf("%d publishers before the last page", n)
	}
	if r := q.reattach(secret, false, ids[2], v.Attachment); !slices.Equal(r.Attachments, []uint64{ids[2], v.Attachment}) {
		t.Errorf("last page: %+v", r)
	}
	if info := q.show("orders"); info.PublisherCount != 2 || info.Publishers[1].Slot != 2 || info.Groups[0].Members[0].Slot != v.Slot {
		t.Errorf("shown: %+v", info)
	}
	next := q.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true})
	if next.Attachment <= v.Attachment || next.Slot != 1 {
		t.Errorf("a new attachment: %+v", next.AttachReply)
	}
	// Its end is a death as ever.
	q.die()
	testutil.Eventually(t, "all is given back", func() bool {
		info := second.connect(t).show("orders")
		return info.PublisherCount+info.SubscriberCount == 0
	})
}

func TestReattachOfALivingConnection(t *testing.T) {
	s := start(t, Config{})
	p, secret := s.secretive(t)
	p.create("orders", small)
	v, _ := p.publisher("orders")
	q, _ := s.secretive(t)
	if r := q.reattach(secret, false, v.Attachment); !slices.Equal(r.Attachments, []uint64{v.Attachment}) {
		t.Fatalf("%+v", r)
	}
	if _, _, err := p.receive(); err == nil {
		t.Error("the earlier connection is still there")
	}
	if n := q.show("orders").PublisherCount; n != 1 {
		t.Errorf("%d publishers", n)
	}
	q.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
}

func TestReattachRefusals(t *testing.T) {
	s := start(t, Config{})
	p, secret := s.secretive(t)
	p.create("orders", small)
	q, _ := s.secretive(t)
	q.publisher("orders")
	q.refused(control.CodeInvalid, control.OpReattach, control.ReattachRequest{Secret: secret}, "before the first attach")
	many := control.ReattachRequest{Secret: secret, Attachments: make([]uint64, control.MaxReattach+1)}
	q.refused(control.CodeInvalid, control.OpReattach, many, "257", "limit of 256")
}

func TestLostKeeperIsReplaced(t *testing.T) {
	c := kept(t)
	s := start(t, c)
	p, secret := s.secretive(t)
	p.create("orders", small)
	v, _ := p.publisher("orders")
	var pid int
	_, text, _ := strings.Cut(s.log.String(), `"keeper has the lease for this broker" pid=`)
	if _, err := fmt.Sscan(text, &pid); err != nil {
		t.Fatal(err, s.log)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.log.await(t, "another keeper has everything")
	p.create("trades", small)
	s.end(t)
	s = start(t, c)
	q, _ := s.secretive(t)
	if r := q.reattach(secret, false, v.Attachment); len(r.Attachments) != 1 {
		t.Errorf("after the keeper's death: %+v", r)
	}
	if q.show("trades").ID == "" {
		t.Error("no trades")
	}
}

func TestDamagedEntriesHoldNobodyUp(t *testing.T) {
	c := kept(t)
	s := start(t, c)
	s.connect(t).create("orders", small)
	s.end(t)
	store, err := keeper.Start(t.Context(), keeper.Options{Socket: c.Socket + keeper.SocketSuffix, Exec: keepertest.Exec()})
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	five := []*os.File{null, null, null, null, null}
	for key, data := range map[string]string{
		"topic/1": "nonsense", "topic/2": `{"id":"2","name":"a"}`, "topic/3": `{"id":"3","name":"a b"}`, "client/1": "nonsense", "client/2": "{}",
		"client/3": `{"secret":"s","attachments":[{"id":7,"topic":"?","kind":"publisher","slot":-1}]}`, "later/1": "of another release",
	} {
		if err := store.Put(t.Context(), key, []byte(data), five); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, c)
	if n := s.topics.count(); n != 1 {
		t.Errorf("%d topics", n)
	}
	s.log.await(t, "is given up")
	if id := s.connect(t).attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true}).Attachment; id <= 7 {
		t.Errorf("attachment %d was given again", id)
	}
}

func TestKeeperConfiguration(t *testing.T) {
	for want, c := range map[string]Config{
		"keeper: the program":    {Keeper: KeeperConfig{Mode: KeepInProcess}},
		"keeper: mode 9":         {Keeper: KeeperConfig{Mode: 9}},
		"adopt_grace: -1ns is n": {AdoptGrace: -1},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := ParseConfig("f", []byte("adopt_grace: 0s")); err == nil || !strings.Contains(err.Error(), "f:1:14: adopt_grace") {
		t.Errorf("no grace: %v", err)
	}
	if c, err := ParseConfig("f", []byte("adopt_grace: 7s")); err != nil || c.AdoptGrace.Seconds() != 7 {
		t.Errorf("%v, %v", c.AdoptGrace, err)
	}
}

// TestRecordOfAFreedSubscriber: a broker died when it had freed a subscriber's slot, and had not forgotten it yet. The next one
// must not take the free slot for one that its client has spoilt.
func TestRecordOfAFreedSubscriber(t *testing.T) {
	c := kept(t)
	s := start(t, c)
	p, secret := s.secretive(t)
	p.create("orders", small)
	v, _ := p.subscriber("orders")
	if err := s.topics.get("orders").ring.ReleaseSubscriber(v.Slot); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	s = start(t, c)
	q, _ := s.secretive(t)
	if r := q.reattach(secret, false, v.Attachment); len(r.Attachments) != 0 {
		t.Errorf("a free slot was given back: %+v", r)
	}
	if info := q.show("orders"); info.SubscriberCount != 0 || info.Violations != 0 {
		t.Errorf("%d subscribers, %d violations", info.SubscriberCount, info.Violations)
	}
}

// TestRecordOfASlotThatIsAnothers: a broker died when it had taken a subscriber's slot back, in part or wholly, and had not
// forgotten it yet, perhaps with another client in its place that was not recorded. The next one must blame nobody.
func TestRecordOfASlotThatIsAnothers(t *testing.T) {
	for name, change := range map[string]func(r *ring.Ring, slot int) error{
		"half released": func(r *ring.Ring, slot int) error { r.Expel(slot); return nil },
		"given to another": func(r *ring.Ring, slot int) error {
			return errors.Join(r.ReleaseSubscriber(slot), r.AdmitSubscriber(slot, ring.SubscriberConfig{Policy: ring.Lossy}))
		},
	} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, its client comes back: %v", name, back), func(t *testing.T) {
				c := kept(t)
				s := start(t, c)
				p, secret := s.secretive(t)
				p.create("orders", small)
				v, _ := p.subscriber("orders")
				if err := change(s.topics.get("orders").ring, v.Slot); err != nil {
					t.Fatal(err)
				}
				s.end(t)
				s = start(t, c)
				q, _ := s.secretive(t)
				if info := q.show("orders"); info.SubscriberCount != 1 || info.Violations != 0 {
					t.Errorf("%d subscribers, %d violations", info.SubscriberCount, info.Violations)
				}
				ids, want := []uint64(nil), uint64(0)
				if back { // then the memory was written over while no broker was there to see it
					ids, want = append(ids, v.Attachment), 1
				}
				if r := q.reattach(secret, false, ids...); len(r.Attachments) != len(ids) {
					t.Errorf("given back: %+v", r)
				}
				if back {
					var told control.Expelled
					q.await(control.EventExpelled, &told)
					if told.Attachment != v.Attachment {
						t.Errorf("%+v", told)
					}
				}
				if info := q.show("orders"); info.SubscriberCount != len(ids) || info.Violations != want {
					t.Errorf("%d subscribers, %d violations", info.SubscriberCount, info.Violations)
				}
			})
		}
	}
}

// TestIDsGrowInTheOrderOfTheSlotsOwners is what docs/model/adopt.pml found (IDFIRST): a request that was overtaken must not have the
// lower id. Else, of two records that name one slot, the next broker believes that of the client that had left.
func TestIDsGrowInTheOrderOfTheSlotsOwners(t *testing.T) {
	c := kept(t)
	s := start(t, c)
	slow, secret := s.secretive(t)
	_, theirs := s.secretive(t)
	one := small
	one.Publishers = 1
	slow.create("orders", one)
	topic := s.topics.get("orders")

	// The slow one's request is on its way to the slot.
	topic.mu.Lock()
	got := make(chan *view, 1)
	go func() {
		got <- slow.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true})
	}()
	h := s.holderOf(secret)
	testutil.Eventually(t, "the slow one waits for the topic", func() bool {
		if h.mu.TryLock() {
			h.mu.Unlock()
			return false
		}
		return true
	})
	// The fast one is given the slot, and gives it back, and the broker dies before it has forgotten that.
	other := s.holderOf(theirs)
	other.mu.Lock()
	a := &attachment{topic: topic, holder: other, kind: control.KindPublisher}
	err := topic.admitPublisher(a)
	topic.attached(a)
	other.held[a.id] = a
	err = errors.Join(err, other.keep(), topic.ring.CondemnPublisher(a.slot))
	_, repairErr := topic.ring.RepairPublisher(a.slot)
	topic.publishers[a.slot] = nil
	topic.settled(a)
	topic.mu.Unlock()
	other.mu.Unlock()
	if err = errors.Join(err, repairErr); err != nil {
		t.Fatal(err)
	}
	v := <-got
	if v.Slot != a.slot || v.Attachment <= a.id {
		t.Errorf("the second owner of slot %d has id %d, the first had %d", v.Slot, v.Attachment, a.id)
	}
	s.end(t)

	s = start(t, c)
	q, _ := s.secretive(t)
	if r := q.reattach(secret, false, v.Attachment); !slices.Equal(r.Attachments, []uint64{v.Attachment}) {
		t.Errorf("who lives was given back %+v", r)
	}
	r, _ := s.secretive(t)
	if r := r.reattach(theirs, false); len(r.Attachments) != 0 {
		t.Errorf("who had left was given back %+v", r)
	}
	if info := q.show("orders"); info.PublisherCount != 1 {
		t.Errorf("%d publishers", info.PublisherCount)
	}
}
