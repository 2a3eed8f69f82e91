package siege

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
)

// An arena is one topic with everything on it.
type arena struct {
	name     string
	options  client.TopicOptions
	payload  int // most bytes
	ledger   *chaos.Ledger
	progress *chaos.Progress
	evicts   bool        // a reader may be evicted: describe it before the publishers
	places   int         // of progress, that are taken
	numbers  uint32      // of publishers so far
	ended    []published // publishers that have ended, and are not checked yet
	stopped  time.Time   // when a process of this arena was stopped last, or went on
	repairs  counter
	bytes    counter       // repaired
	pushed   atomic.Uint64 // frames that receivers of an egress got
}

// published is what a publisher that has ended had tried and done.
type published struct {
	arena       *arena
	id          uint32
	tried, done uint64
	tail        uint64 // all of it lies below; 0: not known yet
	settled     bool   // tail is known
	at          time.Time
}

// A counter adds up a figure of the broker's, which begins anew when it does.
type counter struct{ sum, last uint64 }

func (c *counter) see(now uint64) {
	if now >= c.last {
		c.sum += now - c.last
	} else {
		c.sum += now
	}
	c.last = now
}

// group is the name of each arena's group.
const group = "workers"

func newArena(name string, o client.TopicOptions, payload, publishers int) (*arena, error) {
	o.MaxRedeliveries = -1
	a := &arena{name: name, options: o, payload: payload}
	a.ledger = chaos.NewLedger(chaos.Config{MaxPayload: payload, Redelivery: true, Keep: uint64(2 * o.Capacity)})
	var err error
	a.progress, err = chaos.NewProgress(max(publishers, 1))
	return a, err
}

// place reserves a place of the progress.
func (a *arena) place() int {
	a.places++
	return a.places - 1
}

// number is the next publisher's.
func (a *arena) number() uint32 {
	a.numbers++
	return a.numbers - 1
}

// consume reads what a reader says to s, and returns the end of the pipe to hand over. Violations become events.
func (a *arena) consume(s *chaos.Stream, events chan<- event) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("siege: %w", err)
	}
	go func() {
		if err := s.Consume(r); err != nil {
			events <- event{err: fmt.Errorf("topic %s: %w", a.name, err)}
		}
		closeAll(r)
	}()
	return w, nil
}

// receive is a client of an egress, until that ends. Violations become events.
func (a *arena) receive(address string, events chan<- event) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return // it is dead already
	}
	err = chaos.Drain(conn, a.payload, func() { a.pushed.Add(1) })
	_ = conn.Close() // nothing was written to it
	if err != nil {
		events <- event{err: fmt.Errorf("topic %s: %w", a.name, err)}
	}
}

// check looks at publishers that have ended, once all that they can have published is in the order.
func (a *arena) check() error {
	covered := a.ledger.Covered()
	kept := a.ended[:0]
	for _, p := range a.ended {
		if !p.settled || covered < p.tail {
			kept = append(kept, p)
			continue
		}
		if err := a.ledger.Published(p.id, p.tried, p.done); err != nil {
			return fmt.Errorf("topic %s: %w", a.name, err)
		}
	}
	a.ended = kept
	return nil
}

// A sighting is what the broker said about a topic when it was asked at a certain time.
type sighting struct {
	arena *arena
	asked time.Time
	info  client.TopicInfo
	err   error
}

// saw notes what the broker says about the topic. All that publishers which had ended before can have published lies below the
// tail.
func (a *arena) saw(asked time.Time, info client.TopicInfo) {
	a.repairs.see(info.Repairs)
	a.bytes.see(info.RepairedBytes)
	for i := range a.ended {
		if p := &a.ended[i]; !p.settled && p.at.Before(asked) {
			p.tail, p.settled = info.Tail, true
		}
	}
}
