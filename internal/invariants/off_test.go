//go:build !invariants

package invariants_test

import (
	"testing"

	"github.com/hugebus/hugebus/internal/invariants"
)

func TestOff(t *testing.T) {
	b := []byte{1, 2}
	invariants.Check(false, "not looked at")
	if invariants.Poison(b); b[0] != 1 || b[1] != 2 || invariants.Enabled {
		t.Errorf("%v, enabled %v", b, invariants.Enabled)
	}
}
