//go:build failpoint

package failpoint_test

import (
	"sync"
	"testing"

	"github.com/hugebus/hugebus/internal/failpoint"
)

func TestOnCountsEveryHit(t *testing.T) {
	if !failpoint.Enabled {
		t.Error("says that it is off")
	}
	before := failpoint.Hits("counted")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				failpoint.Hit("counted")
			}
		})
	}
	all.Wait()
	if got := failpoint.Hits("counted") - before; got != 400 {
		t.Errorf("%d hits counted of 400", got)
	}
}

func TestDo(t *testing.T) {
	calls := 0
	undo := failpoint.Do("done", func() { calls++ })
	failpoint.Hit("done")
	failpoint.Hit("another")
	failpoint.Hit("done")
	undo()
	failpoint.Hit("done")
	if calls != 2 || failpoint.Hits("done") != 3 {
		t.Errorf("%d calls in %d hits", calls, failpoint.Hits("done"))
	}
}
