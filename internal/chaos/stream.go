package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Stream is what one reader tells a Ledger. Make it with Anchor, Follow or Member before the reader begins.
type Stream struct {
	ledger *Ledger
	name   string
	kind   streamKind
	group  *group // members only

	number  int  // of the frame to come, in the order
	begun   bool // KindReached or KindJoin has come, and number is known
	away    bool // between two subscriptions
	mayMiss bool // gaps are no violation
	atStart bool // one is not, before the first frame

	overslept func(frame Record, old time.Duration) // nil: a violation

	recent [16]Record // the last ones, for a violation's dump
	told   int
}

type streamKind uint8

const (
	anchor streamKind = iota
	follower
	member
)

// Anchor is the stream of the reader that defines the order. There is one.
func (l *Ledger) Anchor(name string) *Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.anchored {
		panic("chaos: a ledger has one anchor, and " + name + " would be the second")
	}
	l.anchored = true
	return &Stream{ledger: l, name: name, kind: anchor}
}

// Follow is the stream of any other subscriber: one that may miss frames (lossy) or not. One that is told of its
// eviction may miss frames from then on.
func (l *Ledger) Follow(name string, lossy bool) *Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Stream{ledger: l, name: name, kind: follower, mayMiss: lossy, number: l.base}
	l.followers[s] = struct{}{}
	return s
}

// Member is the stream of one member of a group. The group must have been opened before the first frame was
// published, or its first member must have begun before.
func (l *Ledger) Member(groupName, name string) *Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[groupName]
	if g == nil {
		g = &group{low: l.base}
		l.groups[groupName] = g
	}
	return &Stream{ledger: l, name: groupName + "/" + name, kind: member, group: g}
}

// Consume reads what the reader of s tells, until its end, and checks it. The error is the first violation of any
// stream, with the last records of the stream that it was found in; or that of r. A last record that is cut short, as
// a killed process leaves it, does not count.
func (s *Stream) Consume(r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	defer s.end()
	var buf [recordSize]byte
	for {
		if _, err := io.ReadFull(in, buf[:]); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return s.violation()
			}
			return fmt.Errorf("chaos: %s: %w", s.name, err)
		}
		if err := s.take(parseRecord(buf[:])); err != nil {
			// Drain it, or the reader would wait for us, and others for it.
			_, _ = io.Copy(io.Discard, in)
			return err
		}
	}
}

func (s *Stream) violation() error {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.violation
}

// end notes that there is no more to come.
func (s *Stream) end() {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, s)
	if s.kind == anchor {
		l.ended = true
	}
	l.forget()
	l.progress.Broadcast()
}

// take checks one record.
func (s *Stream) take(r Record) error {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.violation != nil {
		return l.violation
	}
	s.recent[s.told%len(s.recent)] = r
	s.told++
	if s.told%1024 == 0 {
		l.forget()
	}
	err := s.check(r)
	if err == nil || err == l.violation {
		return err
	}
	return l.fail(fmt.Errorf("%s: %w\nits last records:\n%s", s.name, err, s.dump()))
}

func (s *Stream) dump() string {
	var b strings.Builder
	for i := max(0, s.told-len(s.recent)); i < s.told; i++ {
		fmt.Fprintf(&b, "\t%v\n", s.recent[i%len(s.recent)])
	}
	return b.String()
}

func (s *Stream) check(r Record) error {
	switch {
	case r.Kind == KindCorrupt:
		return errors.New("a payload contradicts its own length or checksum")
	case r.Kind < KindFrame || r.Kind > KindOverslept:
		return fmt.Errorf("record of unknown kind %d", r.Kind)
	case !s.begun && r.Kind != KindReached && r.Kind != KindJoin:
		return errors.New("its first record does not say where it begins")
	}
	switch s.kind {
	case anchor:
		return s.checkAnchor(r)
	case member:
		return s.checkMember(r)
	}
	return s.checkFollower(r)
}

func (s *Stream) checkAnchor(r Record) error {
	l := s.ledger
	s.begun = true
	var err error
	switch r.Kind {
	case KindFrame:
		err = l.extend(r)
	case KindReached:
		l.covered = max(l.covered, r.Position)
	case KindOverslept:
		return nil // it looks more often than it sleeps, and is never late
	default:
		err = errors.New("the anchor is reliable, and must miss nothing")
	}
	if err != nil {
		return err
	}
	l.progress.Broadcast()
	return nil
}

func (s *Stream) checkMember(r Record) error {
	s.begun = true
	switch r.Kind {
	case KindFrame:
		return s.group.handed(s.ledger, r)
	case KindReached:
		return nil
	case KindOverslept:
		return s.late(r)
	}
	return errors.New("a member of a group must not miss anything")
}

func (s *Stream) checkFollower(r Record) error {
	l := s.ledger
	switch r.Kind {
	case KindReached:
		if err := l.await(r.Position); err != nil {
			return err
		}
		if !s.begun {
			s.begun = true
			s.number = l.at(r.Position)
			return nil
		}
		return s.missedNothing(r.Position)
	case KindEvicted:
		s.mayMiss = true
		l.report.Evictions++
		return nil
	case KindGap:
		return s.checkGap(r)
	case KindJoin:
		return s.join(r)
	case KindLeft:
		s.away = true
		return nil
	case KindOverslept:
		return s.late(r)
	}
	s.atStart = false
	if err := l.await(r.Position + 1); err != nil {
		return err
	}
	e, ok := l.entry(s.number)
	if !ok || e.position != r.Position {
		return fmt.Errorf("the frame to come is %v, and not the one at %d", e, r.Position)
	}
	if err := e.same(r); err != nil {
		return err
	}
	s.number++
	l.report.Compared++
	return nil
}

// join begins a subscription.
func (s *Stream) join(r Record) error {
	if s.begun && !s.away {
		return errors.New("it joins, and has not left")
	}
	if err := s.ledger.await(r.Position); err != nil {
		return err
	}
	s.begun, s.away = true, false
	s.mayMiss, s.atStart = r.Sequence == uint64(MissAny), r.Sequence == uint64(MissAtStart)
	s.number = s.ledger.at(r.Position)
	return nil
}

// late tells of a frame that its reader was not woken for, with how long ago the anchor was handed it.
func (s *Stream) late(r Record) error {
	if err := s.ledger.await(r.Position + 1); err != nil {
		return err
	}
	e, ok := s.ledger.entry(s.ledger.at(r.Position))
	if !ok || e.position != r.Position {
		return nil // it was settled long ago: a frame that was put back
	}
	old := time.Since(e.arrived)
	if s.overslept == nil {
		return fmt.Errorf("it was not woken for %v, which has been there for %v", e, old)
	}
	s.overslept(r, old)
	return nil
}

// Overslept has fn hear of each frame that the reader was not woken for, and of how long ago the anchor had told it. Call it
// before Consume. fn must not call the Ledger.
func (s *Stream) Overslept(fn func(frame Record, old time.Duration)) { s.overslept = fn }

// missedNothing checks that no frame before position is still to come.
func (s *Stream) missedNothing(position uint64) error {
	if e, ok := s.ledger.entry(s.number); ok && e.position < position {
		return fmt.Errorf("the reader has passed %d, and was not handed %v", position, e)
	}
	return nil
}

// checkGap checks that a gap begins behind the last frame that was handed out, with no other frame in between, and
// steps over the frames in it.
func (s *Stream) checkGap(r Record) error {
	l := s.ledger
	if !s.mayMiss && !s.atStart {
		return errors.New("a reliable reader must miss nothing")
	}
	s.atStart = false
	if int64(r.To-r.Position) <= 0 {
		return fmt.Errorf("a gap of %d bytes", int64(r.To-r.Position))
	}
	if err := l.await(r.To); err != nil {
		return err
	}
	if err := s.missedNothing(r.Position); err != nil {
		return fmt.Errorf("the gap begins too late: %w", err)
	}
	if before, ok := l.entry(s.number - 1); ok && r.Position < before.end() {
		return fmt.Errorf("the gap begins inside %v, which was handed out or missed before", before)
	}
	end := l.at(r.To)
	if last, ok := l.entry(end - 1); ok && last.end() > r.To {
		return fmt.Errorf("the gap ends inside %v", last)
	}
	l.report.Gaps++
	l.report.Missed += uint64(end - s.number)
	s.number = end
	return nil
}

// same compares what a reader was handed with the order.
func (e entry) same(r Record) error {
	if r.Sum != e.sum || r.Length != e.length || r.Source != e.source ||
		r.Publisher != Unknown && (r.Publisher != e.publisher || r.Sequence != e.sequence) {
		return fmt.Errorf("this position holds %v for the anchor, and another frame for this reader", e)
	}
	return nil
}

// String is the frame for people.
func (e entry) String() string {
	return fmt.Sprintf("frame %d of publisher %d at %d (%d bytes from slot %d, sum %08x)", e.sequence, e.publisher, e.position,
		e.length, e.source, e.sum)
}
