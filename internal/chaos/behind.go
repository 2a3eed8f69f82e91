package chaos

import (
	"fmt"
	"io"
	"time"
)

// Covered is the position up to which the anchor has told everything.
func (l *Ledger) Covered() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.covered
}

// Violation is the first one, or nil.
func (l *Ledger) Violation() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.violation
}

// Counts is what has been checked so far.
func (l *Ledger) Counts() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.report
	r.Publishers = len(l.next)
	return r
}

// A Laggard is a stream or a group that has not told a frame which the anchor told a while ago.
type Laggard struct {
	Name string // of the stream, or of the group
	Late time.Duration
	Of   string // the frame
}

// Behind names those that have not told a frame which the anchor told longer ago than age.
func (l *Ledger) Behind(age time.Duration) (late []Laggard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	look := func(name string, number int) {
		if e, ok := l.entry(number); ok && time.Since(e.arrived) > age {
			late = append(late, Laggard{Name: name, Late: time.Since(e.arrived), Of: e.String()})
		}
	}
	for s := range l.followers {
		if s.begun && !s.away {
			look(s.name, s.number)
		}
	}
	for name, g := range l.groups {
		n := 0
		for n < len(g.counts) && g.counts[n] != 0 {
			n++
		}
		look(name, g.low+n)
	}
	return late
}

// Dump writes what the ledger remembers, for people: the order's last frames, and how far each reader has told.
func (l *Ledger) Dump(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := func(format string, args ...any) error {
		_, err := fmt.Fprintf(w, format, args...)
		return err
	}
	if err := out("covered %d, frames %d, remembered from number %d on\nviolation: %v\n", l.covered, l.report.Frames, l.base, l.violation); err != nil {
		return err
	}
	for s := range l.followers {
		if err := out("\n%s: to come is number %d; its last records:\n%s", s.name, s.number, s.dump()); err != nil {
			return err
		}
	}
	for name, g := range l.groups {
		if err := out("\ngroup %s: from number %d on: %v\n", name, g.low, g.counts[:min(len(g.counts), 256)]); err != nil {
			return err
		}
	}
	const most = 2000 // frames
	for i := max(0, len(l.order)-most); i < len(l.order); i++ {
		if err := out("%d\t%s\t%v\n", l.base+i, l.order[i].arrived.Format("15:04:05.000000"), l.order[i]); err != nil {
			return err
		}
	}
	return nil
}
