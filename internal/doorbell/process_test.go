package doorbell_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() { testutil.Register("sleeper", sleeper) }

// sleeper waits args[0] times. It says "looked" when a ring is certain to be noticed, and "rung", or what went wrong,
// afterwards.
func sleeper(args []string) {
	b, err := doorbell.FromFile(testutil.File(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	n, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	for range n {
		rung, err := b.Wait(time.Time{}, func() bool { fmt.Println("looked"); return false })
		if err != nil || !rung {
			fmt.Println("got", rung, err)
			return
		}
		fmt.Println("rung")
	}
}

func startSleeper(t *testing.T, b *doorbell.Bell, waits int) *testutil.Proc {
	t.Helper()
	return testutil.Launch(t, testutil.Child{
		Role: "sleeper", Args: []string{strconv.Itoa(waits)}, Files: []*os.File{b.File()},
	})
}

func TestOneRingWakesSleepersInEveryProcess(t *testing.T) {
	b := newBell(t)
	const waits = 5
	sleepers := make([]*testutil.Proc, 4)
	for i := range sleepers {
		sleepers[i] = startSleeper(t, b, waits)
	}
	for range waits {
		for _, s := range sleepers {
			s.Expect("looked")
		}
		ring(t, b)
		for _, s := range sleepers {
			s.Expect("rung")
		}
	}
	for _, s := range sleepers {
		s.Succeed()
	}
}

// A dead process takes nothing along: those that are left are still woken.
func TestSleeperThatIsKilledDisturbsNobody(t *testing.T) {
	b := newBell(t)
	victim, survivor := startSleeper(t, b, 1), startSleeper(t, b, 2)
	victim.Expect("looked")
	survivor.Expect("looked")
	victim.Kill()
	ring(t, b)
	survivor.Expect("rung")
	survivor.Expect("looked")
	ring(t, b)
	survivor.Expect("rung")
	survivor.Succeed()
}
