package demo

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestSystemCallsOfAWorkerAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		command func(kind, arg string) *exec.Cmd
		want    []string
	}{
		"by ptrace":     {self, []string{countedAll, countedSome}}, // where it is allowed
		"without":       {func(string, string) *exec.Cmd { return exec.Command("false") }, []string{countedSome}},
		"wrong counter": {func(_, _ string) *exec.Cmd { return self(KindCounter, "me") }, []string{countedSome}},
	} {
		worker := exec.Command("sh", "-c", "while read line; do echo $line; done")
		in, err := worker.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := worker.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		tally := fresh(t, 100)
		w := &child{tally: tally, cmd: worker, done: make(chan struct{})}
		k := countCalls(t.Context(), c.command, []*child{w})
		for range 50 {
			if _, err := in.Write([]byte("x\n")); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 2)); err != nil {
				t.Fatal(err)
			}
			tally.add(tallyFrames, 1)
		}
		s := k.stop()
		if s.Frames != 50 || s.Calls < 100 || s.PerFrame != float64(s.Calls)/50 || !strings.Contains(strings.Join(c.want, "|"), s.Counted) {
			t.Errorf("%s: %+v", name, s)
		}
		k = countCalls(t.Context(), c.command, []*child{w})
		if s := k.stop(); s.Frames != 0 || s.PerFrame != 0 {
			t.Errorf("%s: without a frame: %+v", name, s)
		}
		_ = in.Close()
		if err := worker.Wait(); err != nil {
			t.Error(err)
		}
		close(w.done)
		if s := k.stopAfterDeath(); s.Counted != countedDead {
			t.Errorf("%s: after its death: %+v", name, s)
		}
	}
}

// stopAfterDeath is stop of a counter that has no process any more.
func (k callCounter) stopAfterDeath() Syscalls {
	k.tracer, k.before = nil, -1
	return k.stop()
}

func TestReadAndWriteCallsOfTheKernel(t *testing.T) {
	n, err := readIOCalls("rchar: 6976\nwchar: 1\nsyscr: 10\nsyscw: 5\n")
	if n != 15 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "syscr: 10\n", "syscr: x\nsyscw: 5\n"} {
		if _, err := readIOCalls(text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	if _, err := ioCalls([]int{os.Getpid(), 1 << 30}); err == nil {
		t.Error("a process that is not there has made calls")
	}
}

func TestAClockAgreesWithAnother(t *testing.T) {
	a, err := newClock()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newClock()
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := a.now(), b.now(), a.now()
	// Each is known to some 100 ns; a millisecond is far above what a wrong one would differ by, which is seconds.
	if second < first-1e6 || second > third+1e6 || third < first {
		t.Errorf("%v, %v, %v", first, second, third)
	}
}
