//go:build invariants

package invariants_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hugebus/hugebus/internal/invariants"
)

func TestOn(t *testing.T) {
	if !invariants.Enabled {
		t.Error("says that it is off")
	}
	b := []byte{1, 2, 3}
	if invariants.Poison(b[:2]); !bytes.Equal(b, []byte{0xDB, 0xDB, 3}) {
		t.Errorf("poisoned: %v", b)
	}
	invariants.Check(true, "fine")
	defer func() {
		if got := fmt.Sprint(recover()); got != "invariant violated: water is wet" {
			t.Errorf("%q", got)
		}
	}()
	invariants.Check(false, "water is wet")
}
