package chaos

import (
	"errors"
	"fmt"
)

// A group checks that its members, together, were handed every frame.
type group struct {
	low    int       // number of the first frame of the order that is not settled
	counts []handing // from low on
	early  map[uint64]struct{}
}

// A handing says how often one frame was handed out, as far as it matters.
type handing uint8

const (
	first  handing = 1 << iota // without a mark
	marked                     // marked as redelivered
)

// handed checks one frame that a member was handed. The caller holds the ledger's mu.
func (g *group) handed(l *Ledger, r Record) error {
	if err := l.await(r.Position + 1); err != nil {
		return err
	}
	if r.Redelivered > 0 {
		if !l.config.Redelivery {
			return errors.New("a frame is marked as redelivered, and no member has died")
		}
		l.report.Redelivered++
	}
	l.report.Compared++
	i := l.at(r.Position)
	if r.Position < l.kept || i < g.low {
		return g.handedBefore(r)
	}
	e, ok := l.entry(i)
	if !ok || e.position != r.Position {
		return fmt.Errorf("the anchor was handed no frame at %d", r.Position)
	}
	if err := e.same(r); err != nil {
		return err
	}
	for len(g.counts) <= i-g.low {
		g.counts = append(g.counts, 0)
	}
	how := &g.counts[i-g.low]
	if r.Redelivered > 0 {
		*how |= marked
		return nil
	}
	if *how&first != 0 {
		return fmt.Errorf("%v was handed out twice without a mark", e)
	}
	*how |= first
	return nil
}

// handedBefore is handed for a frame that was settled: it may come again with a mark, and once without if it came
// only with one so far, because its first reader's record was on the way.
func (g *group) handedBefore(r Record) error {
	if r.Redelivered > 0 {
		return nil
	}
	if _, ok := g.early[r.Position]; ok {
		delete(g.early, r.Position)
		return nil
	}
	return fmt.Errorf("the frame at %d was handed out twice without a mark", r.Position)
}

// settle moves low over the frames that were handed out, and returns it.
func (g *group) settle(l *Ledger) int {
	n := 0
	for n < len(g.counts) && g.counts[n] != 0 {
		if g.counts[n]&first == 0 {
			if g.early == nil {
				g.early = map[uint64]struct{}{}
			}
			if e, ok := l.entry(g.low + n); ok {
				g.early[e.position] = struct{}{}
			}
		}
		n++
	}
	const enough = 1024 // so that copying the rest down is rare
	if n < enough {
		return g.low
	}
	g.counts = append(g.counts[:0], g.counts[n:]...)
	g.low += n
	return g.low
}

// finish checks that nothing is missing.
func (g *group) finish(l *Ledger) error {
	for i := g.low; i < l.base+len(l.order); i++ {
		if n := i - g.low; n < len(g.counts) && g.counts[n] != 0 {
			continue
		}
		e, _ := l.entry(i)
		return fmt.Errorf("%v was handed to no member", e)
	}
	return nil
}
