package main

import (
	"context"
	"slices"

	"github.com/hugebus/hugebus/bench/internal/report"
)

// A gathered report is what "all" puts together of the subcommands that it runs.
type gathered struct {
	sections []report.Section
	warnings []string
}

func (g *gathered) add(s report.Section, warnings []string) {
	g.sections = append(g.sections, s)
	for _, w := range warnings {
		if !slices.Contains(g.warnings, w) {
			g.warnings = append(g.warnings, w)
		}
	}
}

type gatherKey struct{}

func gather(ctx context.Context, g *gathered) context.Context {
	return context.WithValue(ctx, gatherKey{}, g)
}

// gathering is the report that is being put together, or nil.
func gathering(ctx context.Context) *gathered {
	g, _ := ctx.Value(gatherKey{}).(*gathered)
	return g
}
