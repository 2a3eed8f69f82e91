package chaos

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"
)

// A Config says what a Ledger checks against.
type Config struct {
	// MaxPayload is the most bytes of a payload; that of the publishers.
	MaxPayload int
	// Redelivery allows group members to be handed frames again, marked. Without it, which is for runs in which no
	// member dies, that is a violation.
	Redelivery bool
	// Keep is how many bytes of positions are remembered behind what the slowest reader has told: the topic's capacity,
	// where readers join at earlier positions.
	Keep uint64
}

// A Ledger compares what all readers of a topic say, while they say it, and remembers only as much as the slowest of
// them has not told yet. One reader, the anchor, defines the order: it is reliable, begins before the first frame is
// published, and lives to the end. Against it is checked:
//
//   - each publisher's frames are all there, once, in their order, and are what was published
//   - every reliable reader sees the same frames at the same positions: one total order for all
//   - a reader that may miss frames is told exactly which: what lies in its gaps, and nothing else, is missing
//   - a group is handed each frame at least once, and more than once only when marked as redelivered
//   - what a publisher was told is published, is (Published)
//
// It is safe for concurrent use. The first violation ends every Consume.
type Ledger struct {
	config Config

	mu        sync.Mutex
	progress  sync.Cond // the order has grown, or there is a violation
	violation error
	anchored  bool // there is an anchor
	ended     bool // it has told everything

	base    int     // number of entries that were forgotten
	kept    uint64  // position behind the last of those
	order   []entry // those that were not
	covered uint64  // the order is complete up to this position

	next      map[uint32]uint64 // by publisher: the sequence number to come
	owner     map[uint16]uint32 // by slot: who publishes from there
	followers map[*Stream]struct{}
	groups    map[string]*group
	report    Report
	scratch   []byte
}

// An entry is one frame of the total order.
type entry struct {
	position  uint64
	sequence  uint64
	publisher uint32
	sum       uint32
	length    uint32
	source    uint16
	arrived   time.Time // when the anchor told it
}

// end is the position behind the frame.
func (e entry) end() uint64 { return e.position + (uint64(e.length)+16+63)&^63 }

// A Report counts what was checked.
type Report struct {
	Frames      uint64 // in the total order
	Bytes       uint64 // of their payloads
	Publishers  int    // that published at least one
	Compared    uint64 // frames that other readers were handed
	Gaps        uint64
	Missed      uint64 // frames in gaps
	Evictions   uint64
	Redelivered uint64 // frames handed out again, by groups
}

// NewLedger makes one without streams.
func NewLedger(c Config) *Ledger {
	l := &Ledger{
		config: c, next: map[uint32]uint64{}, owner: map[uint16]uint32{}, followers: map[*Stream]struct{}{},
		groups: map[string]*group{}, scratch: make([]byte, c.MaxPayload),
	}
	l.progress.L = &l.mu
	return l
}

// fail notes the first violation and wakes everybody. The caller holds mu.
func (l *Ledger) fail(err error) error {
	if l.violation == nil {
		l.violation = err
	}
	l.progress.Broadcast()
	return l.violation
}

// extend adds a frame of the anchor to the order. The caller holds mu.
func (l *Ledger) extend(r Record) error {
	if r.Position < l.covered {
		return fmt.Errorf("position %d is not behind what came before, which ends at %d", r.Position, l.covered)
	}
	e := entry{
		position: r.Position, sequence: r.Sequence, publisher: r.Publisher, sum: r.Sum, length: r.Length, source: r.Source,
		arrived: time.Now(),
	}
	if err := l.identify(&e); err != nil {
		return err
	}
	l.next[e.publisher]++
	l.owner[e.source] = e.publisher
	l.order = append(l.order, e)
	l.covered = e.end()
	l.report.Frames++
	l.report.Bytes += uint64(e.length)
	return nil
}

// identify finds out which frame of which publisher e is, and checks that it is the one to come.
func (l *Ledger) identify(e *entry) error {
	if e.publisher == Unknown {
		who, ok := l.owner[e.source]
		if !ok {
			return fmt.Errorf("a frame of %d bytes from slot %d, from which nobody has published", e.length, e.source)
		}
		e.publisher, e.sequence = who, l.next[who]
	}
	want := l.next[e.publisher]
	switch {
	case e.sequence < want:
		return fmt.Errorf("frame %d of publisher %d came twice, or out of order: %d was to come", e.sequence, e.publisher, want)
	case e.sequence > want:
		return fmt.Errorf("frames of publisher %d are lost, or out of order: %d came, and %d was to come", e.publisher, e.sequence, want)
	}
	n := Length(e.publisher, e.sequence, l.config.MaxPayload)
	if int(e.length) != n {
		return fmt.Errorf("frame %d of publisher %d has %d bytes, was published with %d: it is another one, or cut",
			e.sequence, e.publisher, e.length, n)
	}
	if n >= HeaderSize {
		return nil // it has a checksum of its own, which its reader has checked
	}
	Fill(l.scratch[:n], e.publisher, e.sequence)
	if _, _, sum, _ := Inspect(l.scratch[:n]); sum != e.sum {
		return fmt.Errorf("frame %d of publisher %d, %d bytes, has other bytes than were published", e.sequence, e.publisher, n)
	}
	return nil
}

// at is the number of the first frame of the order at or behind position. The caller holds mu.
func (l *Ledger) at(position uint64) int {
	return l.base + sort.Search(len(l.order), func(i int) bool { return l.order[i].position >= position })
}

// entry is frame number i of the order, if it is known and not forgotten.
func (l *Ledger) entry(i int) (entry, bool) {
	if i < l.base || i >= l.base+len(l.order) {
		return entry{}, false
	}
	return l.order[i-l.base], true
}

// await waits until the order is complete up to position. The caller holds mu.
func (l *Ledger) await(position uint64) error {
	for l.violation == nil && l.covered < position {
		if l.ended {
			return fmt.Errorf("position %d is behind the end of what the anchor was handed, %d", position, l.covered)
		}
		l.progress.Wait()
	}
	return l.violation
}

// forget drops the part of the order that everybody has told. The caller holds mu.
func (l *Ledger) forget() {
	const enough = 4096 // entries, so that copying the rest down is rare
	low := l.base + len(l.order)
	for s := range l.followers {
		low = min(low, s.number)
	}
	for _, g := range l.groups {
		low = min(low, g.settle(l))
	}
	if e, ok := l.entry(low); ok && l.config.Keep > 0 {
		low = l.at(e.position - min(l.config.Keep, e.position))
	} else if l.config.Keep > 0 {
		low = l.at(l.covered - min(l.config.Keep, l.covered))
	}
	if n := low - l.base; n >= enough && n >= len(l.order)/2 {
		l.kept = l.order[n-1].end()
		l.order = slices.Delete(l.order, 0, n)
		l.base = low
	}
}

// Published checks a publisher that has ended: tried and done are what its Progress says. Call it when the anchor has
// told everything.
func (l *Ledger) Published(publisher uint32, tried, done uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.next[publisher]
	switch {
	case got < done:
		return l.fail(fmt.Errorf("publisher %d: publishing returned for %d frames, and only %d arrived", publisher, done, got))
	case got > tried:
		return l.fail(fmt.Errorf("publisher %d: %d frames arrived, and it tried only %d", publisher, got, tried))
	}
	return nil
}

// Finish checks what can be checked only at the end, and returns what was found. Call it when every Consume has
// returned.
func (l *Ledger) Finish() (Report, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Publishers = len(l.next)
	if l.violation != nil {
		return l.report, l.violation
	}
	if !l.ended {
		return l.report, errors.New("chaos: Finish before the anchor has ended")
	}
	for name, g := range l.groups {
		if err := g.finish(l); err != nil {
			return l.report, l.fail(fmt.Errorf("group %s: %w", name, err))
		}
	}
	return l.report, nil
}
