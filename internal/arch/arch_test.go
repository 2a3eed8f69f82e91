package arch

import (
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A litmus test runs two threads on two words, many times over, and counts outcomes.
// The words are lines apart, as those that publishers and readers share.
type words struct {
	x atomic.Uint64
	_ [FalseSharing]byte
	y atomic.Uint64
	_ [FalseSharing]byte
}

const rounds = 200_000

// litmus runs left and right at the same time, rounds times, each time on fresh words, and
// returns how often each pair of results was seen.
func litmus(left, right func(w *words) uint64) map[[2]uint64]int {
	ws := make([]words, 1024)
	results := make([][2]uint64, len(ws))
	seen := map[[2]uint64]int{}
	for range rounds / len(ws) {
		var start, done sync.WaitGroup
		var reached [2]struct {
			atomic.Int64
			_ [FalseSharing]byte
		}
		start.Add(1)
		run := func(side int, fn func(w *words) uint64) {
			defer done.Done()
			start.Wait()
			for i := range ws {
				// In step, or one side would be through before the other has begun.
				reached[side].Store(int64(i + 1))
				for reached[1-side].Load() < int64(i+1) {
					runtime.Gosched()
				}
				results[i][side] = fn(&ws[i])
			}
		}
		done.Add(2)
		go run(0, left)
		go run(1, right)
		start.Done()
		done.Wait()
		for i := range ws {
			seen[results[i]]++
			ws[i].x.Store(0)
			ws[i].y.Store(0)
		}
	}
	return seen
}

// TestMessagePassing: who sees the second store sees the first. That is what a commit
// is: the payload, then the stamp (SYNC(commit)).
func TestMessagePassing(t *testing.T) {
	var sawSecondOnly atomic.Int64
	seen := litmus(
		func(w *words) uint64 {
			StoreRelease(&w.x, 1)
			StoreStore()
			StoreRelease(&w.y, 1)
			return 0
		},
		func(w *words) uint64 {
			y := w.y.Load()
			LoadLoad()
			x := w.x.Load()
			if y == 1 && x == 0 {
				sawSecondOnly.Add(1)
			}
			return y<<1 | x
		})
	t.Logf("outcomes (reader's y and x): %v", seen)
	if n := sawSecondOnly.Load(); n != 0 {
		t.Errorf("the second store was seen without the first %d times", n)
	}
}

// TestStoreBuffering: with full fences no two threads both miss the other's store, which
// the joiner and the refreshing publisher rely on (SYNC(join-limit)). With release
// stores they may, which is why sleeping needs more than that (SYNC(sleep)): how often is
// logged, not asserted, since a processor need not show it.
func TestStoreBuffering(t *testing.T) {
	side := func(store func(p *atomic.Uint64, v uint64), mine, other func(w *words) *atomic.Uint64) func(w *words) uint64 {
		return func(w *words) uint64 {
			store(mine(w), 1)
			return other(w).Load()
		}
	}
	x := func(w *words) *atomic.Uint64 { return &w.x }
	y := func(w *words) *atomic.Uint64 { return &w.y }
	fenced := func(p *atomic.Uint64, v uint64) { p.Store(v) }
	if n := litmus(side(fenced, x, y), side(fenced, y, x))[[2]uint64{0, 0}]; n != 0 {
		t.Errorf("fenced stores: both sides missed the other's %d times", n)
	}
	n := litmus(side(StoreRelease, x, y), side(StoreRelease, y, x))[[2]uint64{0, 0}]
	t.Logf("release stores: both sides missed the other's %d of %d times (allowed)", n, rounds)
}

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
