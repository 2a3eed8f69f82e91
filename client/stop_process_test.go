package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// TestStoppedLossySubscriberIsToldTheExactGap, and publishers do not wait for it.
func TestStoppedLossySubscriberIsToldTheExactGap(t *testing.T) {
	w := newWorld(t)
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	p := w.puppet(t, topic, "")
	p.do("sub lossy", "ok")
	publish(t, l, "f1", "f2")
	p.do("poll 1", "f1")
	p.Halt()
	all := lap(t, l, reader, 300)
	p.Signal(contSignal)
	told(t, p, all, "f2")
}

// TestStoppedEvictSubscriberIsEvicted: publishers pass it when it is beyond its bound, and it is told so, and what it
// missed.
func TestStoppedEvictSubscriberIsEvicted(t *testing.T) {
	w := newWorld(t)
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	p := w.puppet(t, topic, "")
	p.do("sub evict 4096", "ok")
	publish(t, l, "f1", "f2")
	p.do("poll 1", "f1")
	p.Halt()
	all := lap(t, l, reader, 300)
	if s := w.info(t, topic).Subscribers; len(s) != 2 || !s[1].Evicted {
		t.Errorf("the broker does not see the eviction: %+v", s)
	}
	p.Signal(contSignal)
	p.do("poll 8", "evicted")
	told(t, p, all, "f2")
}

// A placed word is a frame and its position.
type placed struct {
	word string
	at   client.Position
}

// lap publishes n frames, which a subscriber in this process reads at once, and returns all that it was handed.
func lap(t *testing.T, l *client.Lane, reader *client.Subscriber, n int) (all []placed) {
	t.Helper()
	for i := range n {
		publish(t, l, fmt.Sprint("n", i))
		for {
			n, err := reader.Poll(8, func(f client.Frame) error {
				all = append(all, placed{word(f.Payload), f.Position})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
	}
	return all
}

// told checks that p is told of a gap which begins with the frame named first, and is handed everything behind it.
func told(t *testing.T, p *puppet, all []placed, first string) {
	t.Helper()
	p.Send("poll 8")
	var from, to client.Position
	if line := p.Line(); !scan(line, "gap %d %d", &from, &to) {
		t.Fatalf("%q is not a gap", line)
	}
	var behind []string
	for _, f := range all {
		if f.word == first && f.at != from {
			t.Errorf("the gap begins at %d, and %s is at %d", from, first, f.at)
		}
		if !f.at.Before(to) {
			behind = append(behind, f.word)
		}
	}
	if len(behind) == 0 || len(behind) > 128 {
		t.Errorf("%d frames are behind the gap, which ends at %d, in a topic that holds 128", len(behind), to)
	}
	var got []string
	for {
		p.Send("poll 8")
		line := p.Line()
		if line == "" {
			break
		}
		got = append(got, strings.Fields(line)...)
	}
	want(t, "behind the gap", got, behind...)
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// TestPublisherStoppedInAClaim: others get on to within one lap of it, its memory stays its own, and all goes on when
// it goes on, with subscribers that wait in front of its claim and without any.
func TestPublisherStoppedInAClaim(t *testing.T) {
	w := newWorld(t)
	for _, policy := range []string{"", "lossy", "reliable"} {
		for _, end := range []string{"commit 0", "abort 0"} {
			t.Run(policy+" "+end, func(t *testing.T) {
				topic := w.topic(t, client.TopicOptions{})
				l := w.lane(t, topic)
				p := w.puppet(t, topic, "")
				p.do("lane", "ok")
				publish(t, l, "f1")
				var reader *client.Subscriber
				if policy != "" {
					reader = w.subscriber(t, topic, client.SubscriberOptions{
						Start: client.Earliest(), Policy: map[string]client.Policy{"lossy": client.Lossy, "reliable": client.Reliable}[policy],
					})
				}
				if reader != nil {
					want(t, "before the claim", drain(t, reader), "f1")
				}
				p.do("claim 0 mine 500", "ok")
				p.Halt()
				n := fill(t, l)
				if room := 8192/64 - 1 - 9; n < room || n > room+1 {
					t.Errorf("%d frames of a cell went beside a claim of 9, want %d", n, room)
				}
				published := make(chan error)
				go func() { published <- l.Publish(t.Context(), text("through", 0)) }()
				if reader != nil {
					want(t, "in front of the claim", drain(t, reader))
				}
				// Not to wait for anything: so that it sleeps without a bound, and not for the first 10 ms.
				time.Sleep(30 * time.Millisecond)
				p.Signal(contSignal)
				p.do(end, "ok")
				var got []string
				var gap *client.GapError
				for reader != nil && (len(got) == 0 || got[len(got)-1] != "through") {
					f, err := reader.Next(t.Context())
					if policy == "lossy" && gap == nil && errors.As(err, &gap) {
						// "through" was one frame more than the ring holds beside the one that is to be read.
						if len(got) != 0 || gap.From != 64 {
							t.Errorf("%v, behind %d frames", err, len(got))
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, word(f.Payload))
				}
				if err := <-published; err != nil {
					t.Error(err)
				}
				if reader == nil || gap != nil {
					return
				}
				if end == "commit 0" {
					n++
				}
				if len(got) != n+1 || (got[0] == "mine") != (end == "commit 0") {
					t.Errorf("%d frames came behind the claim, the first is %q; want %d", len(got), got[0], n+1)
				}
			})
		}
	}
}

// TestDeadBrokersClientsGoOn: its own process is killed; who is attached does not notice, and nothing new is attached.
func TestDeadBrokersClientsGoOn(t *testing.T) {
	w, b := brokerProcess(t)
	topic := w.topic(t, client.TopicOptions{Capacity: 4096})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	g := w.member(t, topic, "g")
	far, farReader := w.puppet(t, topic, ""), w.puppet(t, topic, "")
	far.do("lane", "ok")
	farReader.do("sub reliable", "ok")
	b.Kill()
	testutil.Eventually(t, "the client notices", func() bool {
		_, err := w.c.Topic(t.Context(), topic)
		return errors.Is(err, client.ErrBrokerUnavailable)
	})
	for i := range 300 { // some laps, with back pressure both ways
		name := fmt.Sprint("n", i)
		farReader.Send("wait")
		if i%2 == 0 {
			publish(t, l, name)
		} else {
			far.do("publish 0 "+name+" 40", "ok")
		}
		farReader.Expect("ok")
		farReader.do("poll 1", name)
		want(t, "subscriber", drain(t, reader), name)
		want(t, "member", drain(t, g), name)
	}
	n := fill(t, l)
	published := make(chan error)
	go func() { published <- l.Publish(t.Context(), text("through", 0)) }()
	farReader.do("poll 1", "full")
	if got := drain(t, reader); len(got) < n {
		t.Errorf("%d frames came, %d were published", len(got), n)
	}
	drain(t, g)
	if err := <-published; err != nil {
		t.Error(err)
	}
	attachFails(t, w, topic)
}

// TestRefusedFramesComeBackWithoutABroker: nobody can make them dead letters, so they stay with the group's members,
// and hold nobody back in the end.
func TestRefusedFramesComeBackWithoutABroker(t *testing.T) {
	w, b := brokerProcess(t)
	topic := w.topic(t, client.TopicOptions{MaxRedeliveries: 1})
	l, g := w.lane(t, topic), w.member(t, topic, "g")
	publish(t, l, "f1")
	b.Kill()
	refused := errors.New("refused")
	for _, name := range []string{"f1", "f1+1", "f1+1", "f1+1"} {
		testutil.Eventually(t, "the frame comes again", func() bool {
			_, err := g.Poll(1, func(f client.Frame) error {
				if marked(f) != name {
					t.Errorf("%s came, want %s", marked(f), name)
				}
				return refused
			})
			return err == refused
		})
	}
	testutil.Eventually(t, "the frame comes for the last time", func() bool { return len(drain(t, g)) == 1 })
}

// attachFails tries everything that needs a broker.
func attachFails(t *testing.T, w *world, topic string) {
	t.Helper()
	_, err := w.c.Lane(t.Context(), topic, client.PublisherOptions{})
	isUnavailable(t, "Lane", err)
	_, err = w.c.Publisher(t.Context(), topic, client.PublisherOptions{})
	isUnavailable(t, "Publisher", err)
	_, err = w.c.Subscriber(t.Context(), topic, client.SubscriberOptions{})
	isUnavailable(t, "Subscriber", err)
	_, err = w.c.Group(t.Context(), topic, "g", client.GroupOptions{})
	isUnavailable(t, "Group", err)
	_, err = client.Dial(t.Context(), client.Options{Socket: w.socket})
	isUnavailable(t, "Dial", err)
}

func isUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, client.ErrBrokerUnavailable) {
		t.Errorf("%s without a broker: %v, want ErrBrokerUnavailable", what, err)
	}
}
