package broker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

func TestCreateShowRemove(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	info := p.create("orders", small)
	if info.Name != "orders" || info.Capacity != 64<<10 || info.Pages != "4KiB" || info.CellSize != 64 || info.MaxPayload != 16<<10-16 ||
		info.MemoryBytes < 64<<10 || info.OwnerUID != uint32(os.Getuid()) || len(info.ID) != 32 || info.Created.IsZero() ||
		info.PublisherSlots != 4 || info.SubscriberSlots != 8 || info.GroupSlots != 2 {
		t.Errorf("created: %+v", info)
	}
	p.refused(control.CodeExists, control.OpCreate, control.CreateRequest{Name: "orders", Options: small}, `"orders" exists already`)
	if got := p.show("orders"); got.ID != info.ID || got.Publishers == nil || got.Subscribers == nil || got.Groups == nil {
		t.Errorf("shown: %+v", got)
	}
	p.must(control.OpRemove, control.RemoveRequest{Name: "orders"}, nil)
	for _, op := range []control.Op{control.OpShow, control.OpRemove} {
		p.refused(control.CodeNotFound, op, control.RemoveRequest{Name: "orders"}, "hugebus topic create orders")
	}
	if again := p.create("orders", small); again.ID == info.ID {
		t.Error("a new topic has the id of the old one")
	}
}

func TestCreateRefusesWhatCannotBe(t *testing.T) {
	p := start(t, Config{}).connect(t)
	node := -1
	cases := []struct {
		name string
		o    TopicOptions
		code control.Code
		want string
	}{
		{"a/b", small, control.CodeInvalid, `'/' at byte 1`},
		{"a b", small, control.CodeInvalid, `' ' at byte 1`},
		{strings.Repeat("x", 300), small, control.CodeInvalid, "300 bytes, above the limit of 128"},
		{"", small, control.CodeInvalid, "empty"},
		{"a", TopicOptions{Capacity: 100 << 20}, control.CodeInvalid, "the next one is 134217728 (128MiB)"},
		{"a", TopicOptions{Capacity: 100}, control.CodeInvalid, "not from 4096"},
		{"a", TopicOptions{Capacity: -4096}, control.CodeInvalid, "not from 4096"},
		{"a", TopicOptions{Capacity: 1 << 41}, control.CodeInvalid, "1TiB"},
		{"a", TopicOptions{Capacity: 4096, Pages: "huge"}, control.CodeInvalid, "auto, 1GiB, 2MiB, thp or 4KiB"},
		{"a", TopicOptions{Capacity: 4096, Pages: "2MiB"}, control.CodeInvalid, "multiple of the page size"},
		{"a", TopicOptions{Capacity: 4096, MaxPayload: 1009}, control.CodeInvalid, "use a capacity of 8192"},
		{"a", TopicOptions{Capacity: 4096, MaxPayload: -1}, control.CodeInvalid, "max_payload"},
		{"a", TopicOptions{Capacity: 4096, Publishers: 1025}, control.CodeInvalid, "1025 publisher slots"},
		{"a", TopicOptions{Capacity: 4096, Subscribers: -2}, control.CodeInvalid, "-2 subscriber slots"},
		{"a", TopicOptions{Capacity: 4096, Groups: 65}, control.CodeInvalid, "65 groups"},
		{"a", TopicOptions{Capacity: 4096, NUMANode: &node}, control.CodeInvalid, "numa_node"},
		{"a", TopicOptions{Capacity: 1 << 40, Pages: "4KiB"}, control.CodeMemory, "topic \"a\""},
		{"a", TopicOptions{Capacity: 1 << 40, Pages: "1GiB"}, control.CodeMemory, "topic \"a\""},
	}
	for _, c := range cases {
		p.refused(c.code, control.OpCreate, control.CreateRequest{Name: c.name, Options: c.o}, c.want)
	}
	var list control.ListReply
	p.must(control.OpList, control.ListRequest{}, &list)
	if len(list.Topics) != 0 {
		t.Errorf("left behind: %+v", list.Topics)
	}
	p.create("a", small)
}

func TestThousandTopicsArePagedInOrder(t *testing.T) {
	s := start(t, Config{Defaults: TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 1, Subscribers: 1, Groups: 1}})
	p := s.connect(t)
	var want []string
	for i := range 1000 {
		name := fmt.Sprintf("topic-%04d", i)
		want = append(want, name)
		p.create(name, TopicOptions{})
	}
	for _, limit := range []int{0, 7} {
		var got []string
		pages := 0
		for after, more := "", true; more; pages++ {
			var page control.ListReply
			p.must(control.OpList, control.ListRequest{After: after, Limit: limit}, &page)
			for _, topic := range page.Topics {
				got = append(got, topic.Name)
			}
			if more = page.More; more {
				after = got[len(got)-1]
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %d names came, or not in order", limit, len(got))
		}
		if pages < 2 {
			t.Errorf("limit %d: %d pages", limit, pages)
		}
	}
	for _, name := range want {
		p.must(control.OpRemove, control.RemoveRequest{Name: name}, nil)
	}
	if total := s.ledger.total(); total.topics != 0 || total.bytes != 0 {
		t.Errorf("left in the ledger: %+v", total)
	}
}

func TestShowPagesManyAttachments(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("wide", TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 200, Subscribers: 300, Groups: 3})
	long := strings.Repeat("<", 128) // six bytes each in JSON
	for i := range 200 {
		if p.attach(control.AttachRequest{Topic: "wide", Kind: control.KindPublisher, Name: long, LaneOnly: true}).Slot != i {
			t.Fatal("slots are not given in order")
		}
	}
	for range 100 {
		p.attach(control.AttachRequest{Topic: "wide", Kind: control.KindSubscriber, Name: long, LaneOnly: true})
	}
	for _, g := range []string{"a", "b", "c"} {
		for range 60 {
			p.attach(control.AttachRequest{Topic: "wide", Kind: control.KindMember, Group: g, Name: long, LaneOnly: true})
		}
	}
	var all control.TopicInfo
	pages := 0
	for after := ""; ; pages++ {
		var page control.TopicReply
		p.must(control.OpShow, control.ShowRequest{Name: "wide", After: after}, &page)
		if after == "" {
			all = page.Topic
		} else {
			all.Merge(page.Topic)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if pages < 5 || len(all.Publishers) != 200 || len(all.Subscribers) != 100 || len(all.Groups) != 3 {
		t.Errorf("%d pages, %d publishers, %d subscribers, %d groups", pages, len(all.Publishers), len(all.Subscribers), len(all.Groups))
	}
	for i, pub := range all.Publishers {
		if pub.Slot != i {
			t.Fatalf("publisher %d has slot %d", i, pub.Slot)
		}
	}
	for _, g := range all.Groups {
		if len(g.Members) != 60 {
			t.Errorf("group %s has %d members", g.Name, len(g.Members))
		}
	}
	for _, bad := range []string{"x", "1.2", "1.2.3.4", "01.2.3"} {
		p.refused(control.CodeInvalid, control.OpShow, control.ShowRequest{Name: "wide", After: bad}, "after")
	}
}

func TestShowTellsWhoDoesWhat(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, sub := p.subscriber("orders")
	p.member("orders", "workers")
	for range 10 {
		if err := pub.TryPublish([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sub.Poll(4, func(ring.Frame) error { return nil }); err != nil {
		t.Fatal(err)
	}
	open, err := pub.Claim(100)
	if err != nil {
		t.Fatal(err)
	}
	info := p.show("orders")
	if info.PublisherCount != 1 || info.SubscriberCount != 2 || info.GroupCount != 1 || info.Tail != 10*64+128 {
		t.Errorf("topic: %+v", info)
	}
	a := info.Publishers[0]
	if a.Name != "test" || int(a.PID) != os.Getpid() || int(a.UID) != os.Getuid() || a.Frames != 10 || a.Position != 640 || a.ClaimedBytes != 128 {
		t.Errorf("publisher: %+v", a)
	}
	b := info.Subscribers[0]
	if b.Policy != "reliable" || b.Position != 4*64 || b.LagBytes != 6*64+128 || b.Frames != 4 {
		t.Errorf("subscriber: %+v", b)
	}
	g := info.Groups[0]
	if g.Name != "workers" || g.Position != 0 || g.LagBytes != 10*64+128 || len(g.Members) != 1 || !g.Closes.IsZero() {
		t.Errorf("group: %+v", g)
	}
	if err := open.Abort(); err != nil {
		t.Fatal(err)
	}
}

func TestRatesAreMeasuredWhileFramesFlow(t *testing.T) {
	s := start(t, Config{})
	p, q := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, sub := p.subscriber("orders")
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := pub.TryPublish(make([]byte, 100)); err != nil {
				t.Error(err)
				return
			}
			if _, err := sub.Poll(10, func(ring.Frame) error { return nil }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var r control.TopicReply
	q.must(control.OpShow, control.ShowRequest{Name: "orders", Rates: true}, &r)
	close(stop)
	done.Wait()
	i := r.Topic
	if i.FramesPerSecond <= 0 || i.BytesPerSecond <= i.FramesPerSecond || i.Publishers[0].FramesPerSecond != i.FramesPerSecond ||
		i.Subscribers[0].FramesPerSecond <= 0 || i.Subscribers[0].BytesPerSecond <= 0 {
		t.Errorf("rates: %+v", i)
	}
}

func TestRemovalIsToldToWhoIsAttachedAndMemoryLivesOn(t *testing.T) {
	s := start(t, Config{})
	p, other, idle := s.connect(t), s.connect(t), s.connect(t)
	info := p.create("orders", small)
	_, pub := p.publisher("orders")
	v, sub := p.subscriber("orders")
	other.must(control.OpRemove, control.RemoveRequest{Name: "orders"}, nil)

	m, _, err := p.receive()
	if err != nil {
		t.Fatal(err)
	}
	var gone control.TopicRemoved
	if err := m.Decode(&gone); err != nil || m.Event != control.EventTopicRemoved || gone.Topic != "orders" || gone.TopicID != info.ID ||
		!strings.Contains(gone.Reason, fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("event: %+v, %+v, %v", m, gone, err)
	}
	if state, err := v.ring.State(); err != nil || !state.Removed {
		t.Errorf("state in memory: %+v, %v", state, err)
	}
	if err := pub.TryPublish([]byte("still")); err != nil {
		t.Errorf("publish after removal: %v", err)
	}
	if got := payloads(t, sub.Poll); !slices.Equal(got, []string{"still"}) {
		t.Errorf("read after removal: %q", got)
	}
	// One event each, and none for who is not attached.
	idle.must(control.OpPing, control.Empty{}, nil)
	p.must(control.OpPing, control.Empty{}, nil)
	if len(idle.events) != 0 || len(p.events) != 0 {
		t.Errorf("more events: %v, %v", idle.events, p.events)
	}
	// A topic of the same name is another one.
	p.create("orders", small)
	if v := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher, LaneOnly: true}); v.TopicID == info.ID {
		t.Error("attached to the removed topic")
	}
}

func TestOnDemand(t *testing.T) {
	s := start(t, Config{OnDemand: OnDemand{Topics: []string{"tmp.*"}}, Defaults: small})
	p := s.connect(t)
	p.refused(control.CodeNotFound, control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindPublisher}, "hugebus topic create orders")
	p.publisher("tmp.a")
	if got := p.show("tmp.a"); got.PublisherCount != 1 || got.Capacity != small.Capacity {
		t.Errorf("made on demand: %+v", got)
	}
	// Many at once make one topic.
	var all sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		q := s.connect(t)
		all.Go(func() {
			ids[i] = q.attach(control.AttachRequest{Topic: "tmp.b", Kind: control.KindSubscriber, LaneOnly: true}).TopicID
		})
	}
	all.Wait()
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("topics: %v", ids)
	}
}
