package broker

import (
	"io"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestLedgerSaysWhichQuotaItsLimitAndKey(t *testing.T) {
	l := newLedger(Quotas{Limits: Limits{Topics: 3, Bytes: 10 << 20, Clients: 2}, PerUser: Limits{Topics: 2, Bytes: 6 << 20, Clients: 1}, Attachments: 2})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.takeTopic(1, 1<<20))
	wantError(t, l.takeTopic(1, 6<<20), control.CodeQuota, "quotas.per_user.bytes", "6MiB more would make 7MiB of uid 1, above the limit of 6MiB", "--capacity", "raise quotas.per_user.bytes")
	must(l.takeTopic(1, 1<<20))
	wantError(t, l.takeTopic(1, 1), control.CodeQuota, "quotas.per_user.topics", "2 topics of uid 1 are the limit")
	wantError(t, l.takeTopic(2, 9<<20), control.CodeQuota, "quotas.bytes: 9MiB more would make 11MiB, above the limit of 10MiB")
	must(l.takeTopic(2, 1<<20))
	wantError(t, l.takeTopic(3, 1), control.CodeQuota, "quotas.topics: 3 topics are the limit")
	must(l.takeClient(1))
	wantError(t, l.takeClient(1), control.CodeQuota, "quotas.per_user.clients: 1 clients of uid 1 are the limit")
	must(l.takeClient(2))
	wantError(t, l.takeClient(3), control.CodeQuota, "quotas.clients: 2 clients are the limit")
	must(l.checkAttachments(1))
	wantError(t, l.checkAttachments(2), control.CodeQuota, "quotas.attachments_per_client: 2 attachments of one client are the limit")

	// What is given back can be taken again, and nobody is remembered for nothing.
	l.giveTopic(1, 1<<20)
	must(l.takeTopic(1, 2<<20))
	for uid, bytes := range map[uint32][]int64{1: {1 << 20, 2 << 20}, 2: {1 << 20}} {
		for _, n := range bytes {
			l.giveTopic(uid, n)
		}
		l.giveClient(uid)
	}
	if total := l.total(); !total.empty() || len(l.users) != 0 {
		t.Errorf("left: %+v, %v", total, l.users)
	}
	for _, key := range []string{"quotas.topics", "quotas.bytes", "quotas.clients", "quotas.per_user.topics", "quotas.per_user.bytes", "quotas.per_user.clients", "quotas.attachments_per_client"} {
		if l.refusals()[key] != 1 {
			t.Errorf("refusals by %s: %d, want 1", key, l.refusals()[key])
		}
	}
}

func TestNegativeQuotasDoNotBound(t *testing.T) {
	l := newLedger(Quotas{Limits: Limits{-1, -1, -1}, PerUser: Limits{-1, -1, -1}, Attachments: -1})
	for range 10_000 {
		if err := l.takeTopic(1, 1<<40); err != nil {
			t.Fatal(err)
		}
		if err := l.takeClient(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.checkAttachments(1 << 30); err != nil {
		t.Fatal(err)
	}
}

func TestQuotasOverTheSocket(t *testing.T) {
	s := start(t, Config{Quotas: Quotas{Limits: Limits{Topics: 2, Bytes: 300 << 10, Clients: 2}, Attachments: 1}})
	p := s.connect(t)
	p.create("a", small)
	p.refused(control.CodeQuota, control.OpCreate, control.CreateRequest{Name: "b", Options: TopicOptions{Capacity: 1 << 20}}, "quotas.bytes", `topic "b"`)
	p.create("b", small)
	p.refused(control.CodeQuota, control.OpCreate, control.CreateRequest{Name: "c", Options: small}, "quotas.topics: 2 topics")
	p.publisher("a")
	p.refused(control.CodeQuota, control.OpAttach, control.AttachRequest{Topic: "a", Kind: control.KindPublisher}, "attachments_per_client")

	// Removing gives back what is not in use; what is, when it is let go.
	p.must(control.OpRemove, control.RemoveRequest{Name: "b"}, nil)
	p.create("c", small)
	p.must(control.OpRemove, control.RemoveRequest{Name: "a"}, nil)
	p.refused(control.CodeQuota, control.OpCreate, control.CreateRequest{Name: "d", Options: small}, "quotas.topics: 2 topics")
	p.must(control.OpDetach, control.DetachRequest{Attachment: 1}, nil)
	p.create("d", small)

	s.connect(t)
	conn, err := control.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.SayHello(s.hello)
	wantError(t, err, control.CodeQuota, "quotas.clients: 2 clients are the limit")
}

func TestCrowdBeyondAQuotaIsNotListenedTo(t *testing.T) {
	s := start(t, Config{Quotas: Quotas{Limits: Limits{Clients: 1}}})
	p := s.connect(t)
	s.refusing.Add(maxRefusing) // so many are being told already
	c, err := control.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Receive(); err != io.EOF {
		t.Errorf("one too many: the connection ended with %v", err)
	}
	s.log.await(t, "too many others are being told so")
	testutil.Eventually(t, "it is not counted any more", func() bool { return s.refusing.Load() == maxRefusing })
	p.must(control.OpPing, control.Empty{}, nil)
}
