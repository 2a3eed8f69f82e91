package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// noted is a case that notes its rounds.
type noted struct {
	name  string
	log   *[]string
	fails int // round that fails; -1: none
}

var errBroken = errors.New("broken")

func (c noted) Name() string { return c.name }

func (c noted) Round(_ context.Context, _ *worker.Team, n int) error {
	*c.log = append(*c.log, fmt.Sprint(c.name, n))
	if n == c.fails {
		return errBroken
	}
	return nil
}

func TestCasesTakeTurnsInEveryRound(t *testing.T) {
	var log []string
	cases := []Case{noted{"a", &log, -1}, noted{"b", &log, -1}}
	if err := Run(t.Context(), nil, 3, cases, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a0", "b0", "a1", "b1", "a2", "b2"}; !slices.Equal(log, want) {
		t.Errorf("got %v, want %v", log, want)
	}
}

func TestTheFirstErrorNamesItsCaseAndRound(t *testing.T) {
	var log []string
	err := Run(t.Context(), nil, 3, []Case{noted{"a", &log, -1}, noted{"b", &log, 1}}, nil)
	if !errors.Is(err, errBroken) || err.Error() != "b, round 2: broken" {
		t.Errorf("got %v", err)
	}
	if len(log) != 4 {
		t.Errorf("went on after the error: %v", log)
	}
}

func TestProgressIsOneLineThatGoes(t *testing.T) {
	var out strings.Builder
	var log []string
	if err := Run(t.Context(), nil, 2, []Case{noted{"a", &log, -1}}, NewProgress(&out)); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"  0% round 1 of 2: a", " 50% round 2 of 2: a", strings.Repeat("━", 12) + strings.Repeat("·", 12)} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if strings.Contains(text, "\n") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("the line does not go: %q", text)
	}
}
