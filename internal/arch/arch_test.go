package arch

import (
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestStoreReleaseIsOneInstruction looks at what the compiler makes of StoreRelease: on
// amd64 one MOVQ to memory and no locked instruction.
func TestStoreReleaseIsOneInstruction(t *testing.T) {
	if runtime.GOARCH != "amd64" || !Assembly {
		t.Skip("this build stores by sync/atomic")
	}
	out, err := exec.Command("go", "build", "-gcflags=-S", "./testdata/storeprobe").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	_, body, ok := strings.Cut(string(out), "storeprobe.Store STEXT")
	if !ok {
		t.Fatalf("no code of Store in:\n%s", out)
	}
	body, _, _ = strings.Cut(body, "STEXT")
	stores := regexp.MustCompile(`\tMOVQ\t[A-Z0-9]+, \(`).FindAllString(body, -1)
	if len(stores) != 1 || strings.Contains(body, "XCHGQ") || strings.Contains(body, "LOCK") {
		t.Errorf("Store has %d stores, or a locked instruction:\n%s", len(stores), body)
	}
}

func TestHintsChangeNothing(t *testing.T) {
	var w words
	w.x.Store(7)
	PrefetchRead(&w.x)
	PrefetchWrite(&w.x)
	Pause(0)
	Pause(3)
	if w.x.Load() != 7 {
		t.Errorf("x is %d after hints, want 7", w.x.Load())
	}
	if CacheLine != 64 || FalseSharing != 2*CacheLine {
		t.Errorf("lines of %d, apart by %d: the layout is pinned to 64 and 128", CacheLine, FalseSharing)
	}
}
