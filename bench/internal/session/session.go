// Package session runs the cases of an invocation in interleaved rounds, so that what
// disturbs the machine for a while disturbs all of them alike, and their medians can
// be compared.
package session

import (
	"context"
	"fmt"
	"io"

	"github.com/hugebus/hugebus/bench/internal/worker"
)

// A Case is one workload over one system with one set of parameters.
type Case interface {
	// Name says in a few words what it is, for the progress line and errors.
	Name() string
	// Round measures once and keeps the outcome. n counts rounds from 0.
	Round(ctx context.Context, team *worker.Team, n int) error
}

// Run runs every case once in each round. The first error ends it.
func Run(ctx context.Context, team *worker.Team, rounds int, cases []Case, p *Progress) error {
	defer p.Clear()
	for n := range rounds {
		for i, c := range cases {
			p.Show(n*len(cases)+i, rounds*len(cases), fmt.Sprintf("round %d of %d: %s", n+1, rounds, c.Name()))
			if err := c.Round(ctx, team, n); err != nil {
				return fmt.Errorf("%s, round %d: %w", c.Name(), n+1, err)
			}
		}
	}
	return nil
}

// Progress is a line on a terminal that says how far it is. A nil Progress shows
// nothing.
type Progress struct {
	w io.Writer
}

// NewProgress shows progress on w.
func NewProgress(w io.Writer) *Progress { return &Progress{w} }

// barWidth is the number of characters of the bar.
const barWidth = 24

// Show replaces the line by what is done of all, and text.
func (p *Progress) Show(done, all int, text string) {
	if p == nil {
		return
	}
	bar := []rune("························")
	for i := range barWidth * done / max(all, 1) {
		bar[i] = '━'
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s %3d%% %s", string(bar), 100*done/max(all, 1), text)
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
