package client_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// stuckTopic is a client of a broker for which a claim is stuck soon, and the topic t.
func stuckTopic(t *testing.T, o client.TopicOptions) *client.Client {
	t.Helper()
	if o.Capacity == 0 {
		o.Capacity = 4 << 10
	}
	c := dial(t, newBroker(t, broker.Config{StuckClaim: 20 * time.Millisecond}))
	if _, err := c.CreateTopic(t.Context(), "t", o); err != nil {
		t.Fatal(err)
	}
	return c
}

func lane(t testing.TB, c *client.Client) *client.Lane {
	t.Helper()
	l, err := c.Lane(t.Context(), "t", client.PublisherOptions{Name: "stuck"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func claim(t testing.TB, l *client.Lane, n int) client.Claim {
	t.Helper()
	c, err := l.TryClaim(n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stuck waits until the broker names n claims.
func stuck(t testing.TB, c *client.Client, n int) (info client.TopicInfo) {
	t.Helper()
	testutil.Eventually(t, "the broker names the claims", func() bool {
		var err error
		if info, err = c.Topic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		return info.StuckClaims == n
	})
	return info
}

func unstick(t testing.TB, c *client.Client, o client.UnstickOptions) []client.UnstuckClaim {
	t.Helper()
	claims, err := c.Unstick(t.Context(), "t", o)
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

// TestRevokedClaimFailsCleanly: while its user still writes to it, it is taken away, others go around the ring many times over
// its memory, and find every byte of theirs as they wrote it.
func TestRevokedClaimFailsCleanly(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		c := stuckTopic(t, client.TopicOptions{Exclusive: exclusive})
		s := subscriber(t, c, client.SubscriberOptions{})
		l := lane(t, c)
		open := claim(t, l, 500)
		var stop atomic.Bool
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			for i := byte(0); !stop.Load(); i++ {
				for k := range open.Payload {
					open.Payload[k] = i
				}
			}
		}()
		info := stuck(t, c, 1)
		p := info.Publishers[0]
		if p.StuckFor < 20*time.Millisecond || p.Stage != "claim" || p.ClaimedBytes != 576 || p.Name != "stuck" || p.PID != int32(os.Getpid()) {
			t.Errorf("%+v", p)
		}
		got := unstick(t, c, client.UnstickOptions{Publisher: &p.Slot})
		if len(got) != 1 || got[0].Outcome != "revoked" || got[0].SkippedBytes != 576 || got[0].Position != p.Position || got[0].PID != p.PID {
			t.Fatalf("%+v", got)
		}
		other := lane(t, c) // in the same slot
		for i := range uint64(500) {
			b := number(i, 500)
			if err := other.TryPublish(b); err != nil {
				t.Fatal(err)
			}
			f, err := s.Next(t.Context())
			if err != nil || string(f.Payload) != string(b) {
				t.Fatalf("frame %d: %v, or other bytes", i, err)
			}
		}
		stop.Store(true)
		<-wrote
		if err := open.Commit(); err != client.ErrClaimRevoked {
			t.Errorf("Commit: %v", err)
		}
		for _, again := range []func() error{open.Commit, open.Abort} {
			if err := again(); err != client.ErrNotClaimed {
				t.Errorf("once more: %v", err)
			}
		}
		if err := l.TryPublish(nil); err != client.ErrClaimRevoked {
			t.Errorf("TryPublish: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := other.TryPublish(nil); err != nil { // its slot was not freed once more
			t.Error(err)
		}
		if info := stuck(t, c, 0); info.RevokedClaims != 1 || info.Repairs != 1 || info.PublisherCount != 1 {
			t.Errorf("%+v", info)
		}
	}
}

func TestRevokedAbort(t *testing.T) {
	c := stuckTopic(t, client.TopicOptions{})
	p := publisher(t, c)
	open, err := p.Claim(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	stuck(t, c, 1)
	unstick(t, c, client.UnstickOptions{PID: os.Getpid()})
	if err := open.Abort(); err != client.ErrClaimRevoked {
		t.Errorf("Abort: %v", err)
	}
	if err := p.Publish(t.Context(), nil); err != client.ErrClaimRevoked {
		t.Errorf("Publish: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	again := publisher(t, c)
	if err := again.Publish(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestOtherLanesOfTheProcessGoOn: only the window of the one claim is taken away.
func TestOtherLanesOfTheProcessGoOn(t *testing.T) {
	c := stuckTopic(t, client.TopicOptions{})
	l, other := lane(t, c), lane(t, c)
	held := claim(t, l, 48)
	next := claim(t, other, 48) // on the same page
	copy(next.Payload, "hello")
	stuck(t, c, 2)
	slot := 0
	if got := unstick(t, c, client.UnstickOptions{Publisher: &slot}); len(got) != 1 || got[0].Outcome != "revoked" {
		t.Fatalf("%+v", got)
	}
	copy(next.Payload[5:], " again")
	if err := next.Commit(); err != nil {
		t.Fatal(err)
	}
	s := subscriber(t, c, client.SubscriberOptions{Start: client.Earliest()})
	if f, err := s.Next(t.Context()); err != nil || !strings.HasPrefix(string(f.Payload), "hello again") {
		t.Errorf("%q, %v", f.Payload, err)
	}
	if err := held.Commit(); err != client.ErrClaimRevoked {
		t.Error(err)
	}
}

func TestUnstickRefusesWhatIsNotStuck(t *testing.T) {
	c := dial(t, newBroker(t, broker.Config{StuckClaim: time.Hour}))
	if _, err := c.CreateTopic(t.Context(), "t", client.TopicOptions{Capacity: 4 << 10}); err != nil {
		t.Fatal(err)
	}
	open := claim(t, lane(t, c), 1)
	three := 3
	for want, o := range map[string]client.UnstickOptions{
		"no publisher has held":              {},
		"no publisher in slot 3 has held":    {Publisher: &three},
		"no publisher of process 7 has held": {PID: 7},
	} {
		if _, err := c.Unstick(t.Context(), "t", o); !errors.Is(err, client.ErrNotFound) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "1h0m0s") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, pid := range []int{-1, 1<<32 + os.Getpid()} {
		if _, err := c.Unstick(t.Context(), "t", client.UnstickOptions{PID: pid}); err == nil || !strings.Contains(err.Error(), "is no process: give a number from 1 to 2147483647") {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if _, err := c.Unstick(t.Context(), "none", client.UnstickOptions{}); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	if err := open.Commit(); err != nil {
		t.Error(err)
	}
}

// TestRevokeAgainstCommit: both at the same moment, many times: the frame is there exactly if Commit says so.
func TestRevokeAgainstCommit(t *testing.T) {
	c := dial(t, newBroker(t, broker.Config{StuckClaim: time.Nanosecond}))
	if _, err := c.CreateTopic(t.Context(), "t", client.TopicOptions{Capacity: 4 << 10}); err != nil {
		t.Fatal(err)
	}
	s := subscriber(t, c, client.SubscriberOptions{})
	revoked, committed := 0, 0
	random := rand.New(rand.NewPCG(uint64(testutil.Seed(t)), 1))
	for i := uint64(0); i < 200; i++ {
		l := lane(t, c)
		open := claim(t, l, 8)
		copy(open.Payload, number(i, 8))
		var done sync.WaitGroup
		unstick := func() {
			for range 2 { // the first look only sees it
				// It may be committed already.
				if _, err := c.Unstick(t.Context(), "t", client.UnstickOptions{}); err != nil && !errors.Is(err, client.ErrNotFound) {
					t.Error(err)
				}
			}
		}
		switch i % 10 {
		case 0: // this one is revoked for certain
			unstick()
		case 1: // and this one committed
		default:
			done.Go(unstick)
			for range random.IntN(3000) {
				runtime.Gosched()
			}
		}
		err := open.Commit()
		done.Wait()
		if cerr := l.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		// A frame of ours behind it, so that there is something to read in any case.
		behind := lane(t, c)
		if err := behind.TryPublish(number(1<<32, 8)); err != nil {
			t.Fatal(err)
		}
		if err := behind.Close(); err != nil {
			t.Fatal(err)
		}
		f, ferr := s.Next(t.Context())
		if ferr != nil {
			t.Fatal(ferr)
		}
		switch {
		case err == nil && numberOf(f) == i:
			committed++
			if f, ferr = s.Next(t.Context()); ferr != nil || numberOf(f) != 1<<32 {
				t.Fatal(numberOf(f), ferr)
			}
		case err == client.ErrClaimRevoked && numberOf(f) == 1<<32:
			revoked++
		default:
			t.Fatalf("Commit of %d says %v, and the frame there is %d", i, err, numberOf(f))
		}
	}
	t.Logf("%d revoked, %d committed", revoked, committed)
	if revoked == 0 || committed == 0 {
		t.Error("one of the two never won")
	}
}
