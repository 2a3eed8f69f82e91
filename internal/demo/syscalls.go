package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/hugebus/hugebus/internal/sys"
)

// Syscalls is how many system calls the workers made.
type Syscalls struct {
	// Calls is their number, and Frames how many frames the workers handled meanwhile. Frames is 0 if nothing could be
	// counted.
	Calls  int64  `json:"calls"`
	Frames uint64 `json:"frames"`
	// PerFrame is Calls / Frames.
	PerFrame float64 `json:"per_frame"`
	// Counted says exactly what was counted, and how.
	Counted string `json:"counted"`
}

// What Counted says.
const (
	countedAll  = "all system calls of the worker processes, those of the Go runtime included, at full speed, by ptrace"
	countedSome = "only the read and write calls of the worker processes (/proc/PID/io), at full speed, because ptrace is not allowed here"
	countedNone = "nothing: neither ptrace nor /proc/PID/io is allowed here"
	countedDead = "nothing: a worker died"
)

// callCounter counts the system calls of workers by the best means that there is.
type callCounter struct {
	workers []*child
	tracer  *counterProcess
	before  int64 // read and write calls, without a tracer; negative if unknown
	frames  uint64
}

// countCalls begins to count for those that are alive.
func countCalls(ctx context.Context, command func(kind, arg string) *exec.Cmd, all []*child) callCounter {
	k := callCounter{before: -1}
	for _, c := range all {
		if c.alive() {
			k.workers = append(k.workers, c)
		}
	}
	k.frames = k.handled()
	var err error
	if k.tracer, err = startCounter(ctx, command, k.pids()); err != nil {
		k.tracer = nil
		if k.before, err = ioCalls(k.pids()); err != nil {
			k.before = -1
		}
	}
	return k
}

func (k callCounter) pids() []int {
	var pids []int
	for _, c := range k.workers {
		pids = append(pids, c.cmd.Process.Pid)
	}
	return pids
}

func (k callCounter) handled() (frames uint64) {
	for _, c := range k.workers {
		frames += c.tally.get(tallyFrames)
	}
	return frames
}

func (k callCounter) stop() Syscalls {
	s := Syscalls{Counted: countedNone}
	err := error(nil)
	switch {
	case k.tracer != nil:
		s.Counted = countedAll
		s.Calls, err = k.tracer.stop()
	case k.before >= 0:
		s.Counted = countedSome
		s.Calls, err = ioCalls(k.pids())
		s.Calls -= k.before
	default:
		err = errors.ErrUnsupported
	}
	s.Frames = k.handled() - k.frames
	for _, c := range k.workers {
		if !c.alive() {
			s.Counted, err = countedDead, os.ErrProcessDone
		}
	}
	if err != nil || s.Frames == 0 {
		return Syscalls{Counted: s.Counted}
	}
	s.PerFrame = float64(s.Calls) / float64(s.Frames)
	return s
}

// A counterProcess traces workers. It is a process of its own because this one waits for their ends: see
// sys.SyscallCounter.
type counterProcess struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	free func() bool
}

// countFor is the life of a counter process: it says when it counts, and how many there were when in ends. arg is one
// or more pids.
func countFor(arg string, in io.Reader, out io.Writer) error {
	var counters []*sys.SyscallCounter
	for word := range strings.SplitSeq(arg, ",") {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("demo: which process to count: %w", err)
		}
		c, err := sys.CountSyscalls(pid)
		if err != nil {
			return err // the end of this process releases the others
		}
		counters = append(counters, c)
	}
	_, err := fmt.Fprintln(out, readyLine)
	_, _ = io.Copy(io.Discard, in) // only its end says anything
	var all int64
	for _, c := range counters {
		n, stopErr := c.Stop()
		err = errors.Join(err, stopErr)
		all += n
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, all)
	return err
}

func startCounter(ctx context.Context, command func(kind, arg string) *exec.Cmd, pids []int) (_ *counterProcess, err error) {
	words := strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ",")
	k := &counterProcess{cmd: command(KindCounter, words)}
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	k.out = bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	k.free = context.AfterFunc(ctx, func() { _ = k.cmd.Process.Kill() }) // an error: it has ended by itself
	if line, err := k.out.ReadString('\n'); strings.TrimSpace(line) != readyLine {
		return nil, errors.Join(err, k.end())
	}
	return k, nil
}

// stop ends the counting and returns how many calls there were.
func (k *counterProcess) stop() (int64, error) {
	if err := k.in.Close(); err != nil {
		return 0, errors.Join(err, k.end())
	}
	line, err := k.out.ReadString('\n')
	if err := errors.Join(err, k.end()); err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(line), 10, 64)
}

// end waits for the process's end, for which it needs no more than the end of its input. A worker that it still holds
// is released by its end, whatever that is.
func (k *counterProcess) end() error {
	_ = k.in.Close() // closed before, or nobody reads it
	defer k.free()
	return k.cmd.Wait()
}

// ioCalls is how many read and write calls the kernel has counted for some processes.
func ioCalls(pids []int) (calls int64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			return 0, err
		}
		n, err := readIOCalls(string(text))
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/io: %w", pid, err)
		}
		calls += n
	}
	return calls, nil
}

// readIOCalls adds up syscr and syscw of proc_pid_io(5).
func readIOCalls(text string) (calls int64, err error) {
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name != "syscr" && name != "syscw" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, err
		}
		calls += n
		found++
	}
	if found != 2 {
		return 0, errors.New("no syscr and syscw")
	}
	return calls, nil
}
