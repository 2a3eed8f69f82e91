package doorbell_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/doorbell"
)

// childEnv makes the test binary a sleeper: it says "looked" when a ring is certain to be noticed, and "rung" or what
// went wrong afterwards, as often as its value has characters.
const childEnv = "HUGEBUS_DOORBELL_SLEEPER"

// The descriptor that a child gets as its first extra file.
const childFD = 3

func child() int {
	b, err := doorbell.FromFile(os.NewFile(childFD, "inherited"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer b.Close()
	for range os.Getenv(childEnv) {
		rung, err := b.Wait(time.Now().Add(time.Minute), func() bool { fmt.Println("looked"); return false })
		if err != nil || !rung {
			fmt.Println("got", rung, err)
			return 1
		}
		fmt.Println("rung")
	}
	return 0
}

type sleeper struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	// killed: that it ended by a signal is as it should be.
	killed bool
}

// kill returns when the sleeper is gone.
func (s *sleeper) kill(t *testing.T) {
	t.Helper()
	s.killed = true
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for s.out.Scan() {
	}
}

// expect reads one line from the sleeper. A child that hangs ends itself by its deadline.
func (s *sleeper) expect(t *testing.T, want string) {
	t.Helper()
	if !s.out.Scan() {
		t.Fatalf("process %d ended, %v; want %q", s.cmd.Process.Pid, s.out.Err(), want)
	}
	if got := s.out.Text(); got != want {
		t.Fatalf("process %d says %q, want %q", s.cmd.Process.Pid, got, want)
	}
}

func startSleeper(t *testing.T, b *doorbell.Bell, sleeps string) *sleeper {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+sleeps)
	cmd.ExtraFiles = []*os.File{b.File()}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &sleeper{cmd: cmd, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if t.Failed() {
			cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil && !s.killed {
			t.Error(err)
		}
	})
	return s
}

func TestOneRingWakesSleepersInEveryProcess(t *testing.T) {
	b := newBell(t)
	const sleeps = "12345"
	sleepers := make([]*sleeper, 4)
	for i := range sleepers {
		sleepers[i] = startSleeper(t, b, sleeps)
	}
	for range sleeps {
		for _, s := range sleepers {
			s.expect(t, "looked")
		}
		ring(t, b)
		for _, s := range sleepers {
			s.expect(t, "rung")
		}
	}
}

// A dead process takes nothing along: those that are left are still woken.
func TestSleeperThatIsKilledDisturbsNobody(t *testing.T) {
	b := newBell(t)
	victim, survivor := startSleeper(t, b, "1"), startSleeper(t, b, "12")
	victim.expect(t, "looked")
	survivor.expect(t, "looked")
	victim.kill(t)
	ring(t, b)
	survivor.expect(t, "rung")
	survivor.expect(t, "looked")
	ring(t, b)
	survivor.expect(t, "rung")
}
