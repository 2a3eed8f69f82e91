package testutil_test

import (
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestSeedIsRandomUnlessSaid(t *testing.T) {
	t.Setenv(testutil.SeedEnv, "")
	if a, b := testutil.Seed(t), testutil.Seed(t); a == b {
		t.Errorf("twice the same seed: %d", a)
	}
	for s, want := range map[string]int64{"42": 42, "-7": -7, "0x10": 16} {
		t.Setenv(testutil.SeedEnv, s)
		if got := testutil.Seed(t); got != want {
			t.Errorf("%s: seed %d", s, got)
		}
	}
	t.Setenv(testutil.SeedEnv, "green")
	if got := told(t, func(t testing.TB) { testutil.Seed(t) }); !strings.Contains(got, `is "green": use a whole number`) {
		t.Error(got)
	}
}
