package invariants_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// TestBothBuilds runs this package's tests in the other build as well: TestOn is in that one.
func TestBothBuilds(t *testing.T) {
	program := testutil.BuildTagged(t, "github.com/hugebus/hugebus/internal/invariants", "invariants")
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{"-test.run=^TestOn$", "-test.v"}})
	p.Succeed()
	if !strings.Contains(p.Stdout(), "--- PASS: TestOn") {
		t.Errorf("TestOn did not run:\n%s", p.Stdout())
	}
}

// TestOffCostsNothing asks the compiler: a call of an inlined empty function is no code.
func TestOffCostsNothing(t *testing.T) {
	out, err := exec.Command("go", "build", "-gcflags=-m=2", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"can inline Check with cost 0", "can inline Poison with cost 0"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
