//go:build !failpoint

package failpoint_test

import (
	"testing"

	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestOffDoesNothing(t *testing.T) {
	if failpoint.Enabled {
		t.Error("says that it is on")
	}
	p := testutil.Launch(t, testutil.Child{Role: "walk", Env: []string{failpoint.Env + "=here=kill;nonsense"}})
	p.Succeed()
	if want := "here 0\nthere 0\nhere 0\nthere 0\nhere 0\nthere 0\n"; p.Stdout() != want {
		t.Errorf("%q", p.Stdout())
	}
}
