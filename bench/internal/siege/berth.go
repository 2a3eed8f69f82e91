package siege

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
)

// Kinds of berths.
const (
	kindAnchor     = "anchor"
	kindSubscriber = "subscriber"
	kindMember     = "member"
	kindJoiner     = "joiner"
	kindPublisher  = "publisher"
	kindIngress    = "ingress"
	kindEgress     = "egress"
	kindBroker     = "broker"
)

// A berth is a place for one process at a time.
type berth struct {
	name   string
	kind   string
	arena  *arena // nil: the broker's
	points []string
	// prepare says what the next process runs: its role, its specification, and a descriptor for it, which is closed when it
	// has it.
	prepare func() (role string, spec any, file *os.File, err error)
	place   int // of a publisher, in the progress

	p       *process // nil: none
	armed   []*arming
	diedAt  string // the point at which it said that it would kill itself
	ready   bool
	term    bool // it was told to end: it may
	kill    bool // it was sent SIGKILL
	stopped bool
	since   time.Time      // when it last was stopped, went on, became ready, or got on
	got     uint64         // how far it had come then
	queued  *Action        // a start that waits for the death of the one before
	id      uint32         // number of the publisher that runs
	feed    *feed          // of an ingress
	census  chaos.Holdings // of a process that lives all the time, before
}

// An arming is a failpoint of one process, and what happens there.
type arming struct {
	point, action string
	at            int
}

// String is what HUGEBUS_FAILPOINTS says.
func (a *arming) String() string { return fmt.Sprintf("%s=%s@%d", a.point, a.action, a.at) }

// formatArmings and parseArmings are what HUGEBUS_FAILPOINTS says of several.
func formatArmings(all []*arming) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ";")
}

func parseArmings(text string) (all []*arming) {
	for entry := range strings.SplitSeq(text, ";") {
		name, rest, ok := strings.Cut(entry, "=")
		if !ok {
			continue
		}
		a := &arming{point: name, at: 1}
		var at string
		a.action, at, _ = strings.Cut(rest, "@")
		_, _ = fmt.Sscan(at, &a.at)
		all = append(all, a)
	}
	return all
}

// armedAt is the arming of a point, or nil.
func (b *berth) armedAt(point string) *arming {
	for _, a := range b.armed {
		if a.point == point {
			return a
		}
	}
	return nil
}

// A crew makes berths. It only describes; the director starts.
type crew struct {
	socket string
	events chan<- event
	all    []*berth
}

func (c *crew) add(b *berth) *berth {
	c.all = append(c.all, b)
	return b
}

func (c *crew) common(a *arena, name string, wait client.Wait) chaos.Common {
	return chaos.Common{Socket: c.socket, Topic: a.name, Name: name, Wait: wait}
}

// anchor reads everything from the beginning to the end.
func (c *crew) anchor(a *arena, nap time.Duration) {
	name := a.name + "/anchor"
	spec := chaos.ReaderSpec{Common: c.common(a, name, client.WaitAdaptive), Policy: client.Reliable, Earliest: true, Limit: 64, Nap: nap}
	c.add(&berth{name: name, kind: kindAnchor, arena: a, prepare: func() (string, any, *os.File, error) {
		w, err := a.consume(a.ledger.Anchor(name), c.events)
		return roleReader, spec, w, err
	}})
}

// subscriber reads for itself.
func (c *crew) subscriber(a *arena, short string, spec chaos.ReaderSpec) {
	name := a.name + "/" + short
	spec.Common = c.common(a, name, spec.Wait)
	points := joined(pollPoints, joinPoints, sleepPoints, attachPoints)
	switch spec.Policy {
	case client.Lossy:
		points = joined(lossyPoints, joinPoints[:1], sleepPoints, attachPoints)
	case client.Evict:
		a.evicts = true
		spec.EvictLag = a.options.Capacity / 2
		points = joined(lossyPoints, evictPoints, joinPoints, sleepPoints, attachPoints)
	}
	b := c.add(&berth{name: name, kind: kindSubscriber, arena: a, points: points})
	b.prepare = func() (string, any, *os.File, error) {
		s := a.ledger.Follow(name, spec.Policy == client.Lossy)
		c.sleeps(b, s)
		w, err := a.consume(s, c.events)
		return roleReader, spec, w, err
	}
}

// member works in the arena's group.
func (c *crew) member(a *arena, short string, spec chaos.ReaderSpec) {
	name := a.name + "/" + short
	spec.Common, spec.Group, spec.Earliest = c.common(a, name, spec.Wait), group, true
	b := c.add(&berth{name: name, kind: kindMember, arena: a, points: joined(memberPoints, sleepPoints, attachPoints)})
	b.prepare = func() (string, any, *os.File, error) {
		s := a.ledger.Member(group, name)
		c.sleeps(b, s)
		w, err := a.consume(s, c.events)
		return roleReader, spec, w, err
	}
}

// sleeps makes a violation of a frame that a reader was not woken for, unless something on its topic was stopped: a
// publisher that is stopped between its commit and the doorbell leaves sleepers asleep until it goes on.
func (c *crew) sleeps(b *berth, s *chaos.Stream) {
	s.Overslept(func(frame chaos.Record, old time.Duration) {
		if old > tooLate {
			c.events <- event{berth: b, late: fmt.Sprintf("was not woken for the frame at %d, which had been there for %v", frame.Position, old)}
		}
	})
}

// joiner joins and leaves.
func (c *crew) joiner(a *arena, short string) {
	name, seed := a.name+"/"+short, uint64(0)
	c.add(&berth{name: name, kind: kindJoiner, arena: a, points: joined(joinPoints, pollPoints, lossyPoints, evictPoints, sleepPoints, attachPoints),
		prepare: func() (string, any, *os.File, error) {
			seed++
			w, err := a.consume(a.ledger.Follow(name, false), c.events)
			return roleJoiner, chaos.JoinerSpec{
				Common: c.common(a, name, client.WaitAdaptive), Seed: seed, EvictLag: a.options.Capacity / 2,
				Stay: 300 * time.Millisecond, Rest: 20 * time.Millisecond,
			}, w, err
		}})
}

// publisher publishes.
func (c *crew) publisher(a *arena, short string, spec chaos.PublisherSpec) {
	name := a.name + "/" + short
	spec.Common, spec.Place, spec.MaxPayload = c.common(a, name, spec.Wait), a.place(), a.payload
	b := c.add(&berth{name: name, kind: kindPublisher, arena: a, place: spec.Place})
	b.points = joined(publisherPoints, sleepPoints, attachPoints)
	if a.evicts {
		b.points = joined(b.points, evictingPoints)
	}
	switch spec.Style {
	case chaos.Batch:
		b.points = joined(b.points, batchPoints)
	case chaos.Claims:
		b.points = joined(b.points, claimPoints)
	case chaos.Mixed:
		b.points = joined(b.points, batchPoints, claimPoints)
	}
	b.prepare = func() (string, any, *os.File, error) {
		spec.Publisher = a.number()
		b.id, b.got = spec.Publisher, 0
		a.progress.Reset(spec.Place)
		return rolePublisher, spec, a.progress.File(), nil
	}
}

// ingress publishes what a feeder sends.
func (c *crew) ingress(a *arena, short string) {
	name := a.name + "/" + short
	c.add(&berth{name: name, kind: kindIngress, arena: a, points: joined(publisherPoints, batchPoints, sleepPoints, attachPoints),
		prepare: func() (string, any, *os.File, error) {
			return roleIngress, chaos.IngressSpec{Common: c.common(a, name, client.WaitAdaptive)}, nil, nil
		}})
}

// egress sends the arena's frames to a receiver.
func (c *crew) egress(a *arena, short string) {
	name := a.name + "/" + short
	c.add(&berth{name: name, kind: kindEgress, arena: a, points: joined(pollPoints, joinPoints, sleepPoints, attachPoints),
		prepare: func() (string, any, *os.File, error) {
			return roleEgress, chaos.EgressSpec{Common: c.common(a, name, client.WaitAdaptive)}, nil, nil
		}})
}

// keepsFile reports whether the descriptor that prepare returned stays open: it is the arena's.
func (b *berth) keepsFile() bool { return b.kind == kindPublisher }

// alive reports whether there is a process that is not stopped and was not told to end.
func (b *berth) alive() bool { return b.p != nil && !b.stopped && !b.term && !b.kill }
