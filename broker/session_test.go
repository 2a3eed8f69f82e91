package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// greet says an arbitrary hello and returns how the broker took it.
func (s *server) greet(t *testing.T, h control.Hello) (control.Hello, error) {
	t.Helper()
	conn, err := control.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.SayHello(h)
}

func TestHelloMismatchIsReadableOnBothSides(t *testing.T) {
	s := start(t, Config{})
	mine := control.NewHello(ring.LayoutVersion)
	old := mine
	old.Protocol--
	_, err := s.greet(t, old)
	wantError(t, err, control.CodeVersion, fmt.Sprintf("protocol %d and layout %d", old.Protocol, old.Layout), "upgrade the client")
	s.log.await(t, "client was refused")
	s.log.await(t, "upgrade the client")
	young := mine
	young.Layout++
	_, err = s.greet(t, young)
	wantError(t, err, control.CodeVersion, "upgrade the broker")
	bad := mine
	bad.Name = "a\nb"
	_, err = s.greet(t, bad)
	wantError(t, err, control.CodeInvalid, "printable")
	theirs, err := s.greet(t, mine)
	if err != nil || theirs.PID != os.Getpid() || theirs.Epoch != s.epoch || theirs.Layout != ring.LayoutVersion {
		t.Errorf("hello: %+v, %v", theirs, err)
	}
}

// sendRaw sends anything as a request, and returns the broker's answer.
func (p *peer) sendRaw(v any, files ...*os.File) control.Message {
	p.t.Helper()
	if err := p.conn.Send(v, files...); err != nil {
		p.t.Fatal(err)
	}
	m, got, err := p.receive()
	if err != nil {
		p.t.Fatal(err)
	}
	if len(got) != 0 {
		p.t.Errorf("%d descriptors came", len(got))
	}
	return m
}

func TestBadMessagesAreAnsweredAndTheConnectionGoesOn(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	body := func(text string) json.RawMessage { return json.RawMessage(text) }
	cases := []struct {
		send any
		id   uint64
		code control.Code
		want string
	}{
		{"just a text", 0, control.CodeMalformed, "a JSON object is expected"},
		{[]int{1, 2}, 0, control.CodeMalformed, "a JSON object is expected"},
		{map[string]any{"id": "x", "op": "ping"}, 0, control.CodeMalformed, "id cannot be a JSON string"},
		{map[string]any{"id": 5, "op": "ping", "extra": 1}, 5, control.CodeMalformed, `unknown field "extra"`},
		{map[string]any{"op": "ping"}, 0, control.CodeMalformed, "id is missing"},
		{control.Request{ID: 6}, 6, control.CodeMalformed, "op is missing"},
		{control.Request{ID: 7, Op: "dance"}, 7, control.CodeUnknownOp, `"dance" is not one of ping, create`},
		{control.Request{ID: 8, Op: control.OpHello}, 8, control.CodeMalformed, "hello was said before"},
		{control.Request{ID: 9, Op: control.OpPing, Body: body(`{"x":1}`)}, 9, control.CodeMalformed, "ping"},
		{control.Request{ID: 10, Op: control.OpCreate, Body: body(`{"name":7}`)}, 10, control.CodeMalformed, "name cannot be a JSON number"},
		{control.Request{ID: 11, Op: control.OpCreate, Body: body(`{"name":"a","options":{"capcity":1}}`)}, 11, control.CodeMalformed, "capcity"},
		{control.Request{ID: 12, Op: control.OpPing, Body: body(`"` + strings.Repeat("x", control.MaxRequest) + `"`)}, 0, control.CodeTooLarge, "above the limit of 8192 bytes"},
		{control.Request{ID: 13, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"owner"}`)}, 13, control.CodeInvalid, "publisher, subscriber, member"},
		{control.Request{ID: 14, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"publisher","policy":"lossy"}`)}, 14, control.CodeInvalid, "belong to kind subscriber"},
		{control.Request{ID: 15, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"subscriber","group":"g"}`)}, 15, control.CodeInvalid, "belong to kind member"},
		{control.Request{ID: 16, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"member"}`)}, 16, control.CodeInvalid, "group name is empty"},
		{control.Request{ID: 17, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"subscriber","policy":"maybe"}`)}, 17, control.CodeInvalid, "reliable, lossy, evict"},
		{control.Request{ID: 18, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"subscriber","policy":"evict"}`)}, 18, control.CodeInvalid, "needs a bound"},
		{control.Request{ID: 19, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"subscriber","policy":"evict","evict_lag":-1}`)}, 19, control.CodeInvalid, "negative"},
		{control.Request{ID: 20, Op: control.OpAttach, Body: body(`{"topic":"orders","kind":"publisher","name":"a\u0000"}`)}, 20, control.CodeInvalid, "printable"},
		{control.Request{ID: 21, Op: control.OpAttach, Body: body(`{"topic":"a/b","kind":"publisher"}`)}, 21, control.CodeInvalid, "'/'"},
		{control.Request{ID: 22, Op: control.OpNote, Body: body(`{"attachment":7,"text":"x"}`)}, 22, control.CodeNotFound, "no attachment 7"},
		{control.Request{ID: 23, Op: control.OpNote, Body: body(`{"attachment":7,"text":"` + strings.Repeat("x", 513) + `"}`)}, 23, control.CodeInvalid, "note of 513 bytes is above the limit of 512"},
		{control.Request{ID: 24, Op: control.OpNote, Body: body(`{"attachment":7,"text":"a\u001b[2J"}`)}, 24, control.CodeInvalid, "printable"},
	}
	for _, c := range cases {
		m := p.sendRaw(c.send)
		if m.ID != c.id || m.Error == nil {
			t.Errorf("%+v: reply %+v", c.send, m)
			continue
		}
		wantError(t, m.Error, c.code, c.want)
	}
	if info := p.show("orders"); info.PublisherCount+info.SubscriberCount+info.GroupCount != 0 {
		t.Errorf("a refused attach left something: %+v", info)
	}
}

func TestRefusalsLeakNoDescriptors(t *testing.T) {
	s := start(t, Config{Quotas: Quotas{Attachments: 2}, OnDemand: OnDemand{Disabled: true}})
	p := s.connect(t)
	p.create("orders", TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 1, Subscribers: 1, Groups: 1})
	v := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindPublisher})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := openFDs(t)
	for range 3 {
		m := p.sendRaw(control.Request{ID: 100, Op: control.OpPing}, null, null)
		wantError(t, m.Error, control.CodeDescriptors, "2 descriptors came with a request")
		m = p.sendRaw("nonsense", null)
		wantError(t, m.Error, control.CodeDescriptors)
		attach := func(kind control.Kind, topic, group string) control.AttachRequest {
			return control.AttachRequest{Kind: kind, Topic: topic, Group: group}
		}
		p.refused(control.CodeNoSlot, control.OpAttach, attach(control.KindPublisher, "orders", ""))
		p.refused(control.CodeNotFound, control.OpAttach, attach(control.KindPublisher, "nothing", ""))
		p.refused(control.CodeInvalid, control.OpAttach, attach(control.KindMember, "orders", "a b"))
		p.refused(control.CodeExists, control.OpCreate, control.CreateRequest{Name: "orders"})
		p.refused(control.CodeMemory, control.OpCreate, control.CreateRequest{Name: "big", Options: TopicOptions{Capacity: 1 << 40, Pages: "4KiB"}})
		w := p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber})
		p.refused(control.CodeQuota, control.OpAttach, attach(control.KindMember, "orders", "g"))
		p.must(control.OpDetach, control.DetachRequest{Attachment: w.Attachment}, nil)
		w.close()
		p.refused(control.CodeNotFound, control.OpDetach, control.DetachRequest{Attachment: w.Attachment})
		if _, err := s.greet(t, control.Hello{Protocol: 99}); err == nil {
			t.Fatal("protocol 99 was accepted")
		}
	}
	v.close()
	testutil.Eventually(t, "as many descriptors are open as before", func() bool { return openFDs(t) == before-control.MaxDescriptors })
}

func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestSubscribersMemoryCannotBeWritten(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	for _, r := range []control.AttachRequest{
		{Topic: "orders", Kind: control.KindSubscriber},
		{Topic: "orders", Kind: control.KindMember, Group: "g"},
	} {
		files, err := p.ask(control.OpAttach, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			if i != control.FileCtl && i != control.FileData {
				f.Close()
				continue
			}
			if seg, err := shm.Open(f, true); !errors.Is(err, os.ErrPermission) {
				t.Errorf("%s, descriptor %d: writable mapping: %v", r.Kind, i, err)
				if err == nil {
					seg.Close()
				}
			}
		}
	}
}

func TestCleanStopTellsClientsWhoGoOn(t *testing.T) {
	s := start(t, Config{})
	p := s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, sub := p.subscriber("orders")
	claim, err := pub.Claim(5)
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	m, _, err := p.receive()
	if err != nil || m.Event != control.EventShutdown {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, _, err := p.receive(); err != io.EOF {
		t.Errorf("after the event: %v", err)
	}
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	// The broker's end is nobody's death: an open claim is not repaired behind its owner.
	copy(claim.Payload, "alive")
	if err := claim.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, sub.Poll); len(got) != 1 || got[0] != "alive" {
		t.Errorf("read after the broker's end: %q", got)
	}
	if strings.Contains(s.log.String(), "died") {
		t.Error("the log speaks of a death")
	}
}

func TestClientThatDoesNotReadHoldsUpNobody(t *testing.T) {
	s := start(t, Config{})
	deaf, p := s.connect(t), s.connect(t)
	// It fills its own socket with replies to pings, until its session waits for it.
	for full := false; !full; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := deaf.conn.SendContext(ctx, control.Request{ID: 2, Op: control.OpPing})
		cancel()
		if full = errors.Is(err, context.DeadlineExceeded); !full && err != nil {
			t.Fatal(err)
		}
	}
	p.create("orders", small)
	p.must(control.OpRemove, control.RemoveRequest{Name: "orders"}, nil)
	p.must(control.OpPing, control.Empty{}, nil)
}

func TestEventsForWhoDoesNotReadAreBounded(t *testing.T) {
	s := start(t, Config{Defaults: TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 1, Subscribers: 1, Groups: 1}})
	deaf, p := s.connect(t), s.connect(t)
	const topics = 1000
	for i := range topics {
		name := fmt.Sprintf("t%d", i)
		p.create(name, TopicOptions{})
		deaf.attach(control.AttachRequest{Topic: name, Kind: control.KindPublisher, LaneOnly: true})
	}
	for i := range topics {
		p.must(control.OpRemove, control.RemoveRequest{Name: fmt.Sprintf("t%d", i)}, nil)
	}
	s.log.await(t, "event is dropped")
	// What was sent arrives when it reads, and it is still connected.
	deaf.must(control.OpPing, control.Empty{}, nil)
	if n := len(deaf.events); n == 0 || n > topics {
		t.Errorf("%d events", n)
	}
}

func TestConnectionWithoutHelloIsEnded(t *testing.T) {
	t.Parallel() // it waits for seconds
	s := start(t, Config{})
	conn, err := control.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Receive(); err != io.EOF {
		t.Errorf("a silent client's connection ended with %v", err)
	}
}

func TestTopicOfManyKindsAtOnceSurvivesChurn(t *testing.T) {
	s := start(t, Config{GroupLinger: time.Millisecond})
	p := s.connect(t)
	p.create("orders", TopicOptions{Capacity: 64 << 10, Pages: "4KiB", Publishers: 32, Subscribers: 64})
	seeds := rand.New(rand.NewPCG(uint64(testutil.Seed(t)), 0))
	done := make(chan struct{})
	const clients = 8
	for range clients {
		seed := seeds.Uint64()
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 20 {
				q := s.connect(t)
				_, pub := q.publisher("orders")
				q.member("orders", fmt.Sprintf("g%d", (seed>>i)%3))
				q.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber, Policy: control.PolicyLossy, LaneOnly: true})
				_ = pub.TryPublish([]byte("x"))
				if (seed>>i)&1 == 0 {
					_, _ = pub.Claim(64)
				}
				q.die()
			}
		}()
	}
	for range clients {
		<-done
	}
	testutil.Eventually(t, "everything is given back", func() bool {
		info := p.show("orders")
		return info.PublisherCount+info.SubscriberCount+info.GroupCount == 0
	})
	testutil.Eventually(t, "all clients but one are gone", func() bool { return s.ledger.total().clients == 1 })
}

func TestBrokerSocketIsUsableFromItsDefaultDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root's is /run/hugebus, which may be in real use.
		if control.DefaultSocket() != "/run/hugebus/control.sock" {
			t.Errorf("default socket: %s", control.DefaultSocket())
		}
		return
	}
	t.Setenv("XDG_RUNTIME_DIR", shortDir(t))
	s := start(t, Config{Socket: control.DefaultSocket()})
	s.connect(t)
	if info, err := os.Stat(filepath.Dir(s.Addr())); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info, err)
	}
}
