package client_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	testutil.Register("stream-publisher", func(args []string) { streamRole(args, streamOut) })
	testutil.Register("stream-subscriber", func(args []string) { streamRole(args, streamIn) })
}

// streamRole moves args[2] frames of 48 bytes through the topic args[1] of the broker at args[0], says "ready" when it
// is attached, and "done" when they are through.
func streamRole(args []string, move func(c *client.Client, topic string, n uint64) error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	c, err := client.Dial(context.Background(), client.Options{Socket: args[0], Logger: quiet})
	if err == nil {
		n, _ := strconv.ParseUint(args[2], 10, 64)
		if err = move(c, args[1], n); err == nil {
			err = c.Close()
		}
	}
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("done")
}

func streamOut(c *client.Client, topic string, n uint64) error {
	l, err := c.Lane(context.Background(), topic, client.PublisherOptions{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var payload [48]byte
	for i := range n {
		binary.LittleEndian.PutUint64(payload[:], i)
		if err := l.Publish(context.Background(), payload[:]); err != nil {
			return err
		}
	}
	return nil
}

func streamIn(c *client.Client, topic string, n uint64) error {
	s, err := c.Subscriber(context.Background(), topic, client.SubscriberOptions{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	next := uint64(0)
	return s.Run(context.Background(), func(f client.Frame) error {
		if got := binary.LittleEndian.Uint64(f.Payload); got != next || len(f.Payload) != 48 {
			return fmt.Errorf("frame %d of %d bytes, want %d", got, len(f.Payload), next)
		}
		if next++; next == n {
			return client.ErrStop
		}
		return nil
	})
}

// TestNoSystemCallForAFrame counts what a publisher and a subscriber process do in the kernel, from their start to
// their end, Go's runtime included, while they move frames one at a time.
//
// Each has a core to itself, as far as the machine is not busy with other things. Where two share one, each wake-up
// takes it from who rings: what falls asleep and is woken at once costs some calls, though not for each frame. A traced
// process that rings loses some 100 µs, in which the other one may fall asleep again; so there are three tries. If the machine was busy with other
// things in all of them, more is allowed: still far less than a call for each frame, or for each batch of them.
func TestNoSystemCallForAFrame(t *testing.T) {
	const frames, tries, quiet, busy = 4_000_000, 3, 0.001, 0.02
	if raceEnabled {
		t.Skip("the race detector's runtime makes system calls of its own; the plain build counts")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	if out, err := exec.Command(strace, "-f", "-c", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace cannot trace here (ptrace is not permitted?): %v: %s", err, out)
	}
	w := newWorld(t)
	var reports []string
	most, least := quiet, 1.0
	for range tries {
		var calls []int
		before := busyTime(t)
		calls, reports = traced(t, w, strace, frames)
		others := busyTime(t) - before
		each := float64(max(calls[0], calls[1])) / frames
		t.Logf("%d frames: %d system calls in the subscriber, %d in the publisher; at most %.6f a frame; others used %v of processor time",
			frames, calls[0], calls[1], each, others)
		if each < quiet {
			return
		}
		least = min(least, each)
		if others > 200*time.Millisecond {
			most = busy
		}
	}
	if least >= most {
		t.Errorf("%g system calls a frame or more in each of %d tries; the last:\n%s", most, tries, strings.Join(reports, "\n"))
	}
}

// busyTime is the processor time that others than this process, and those of its children that were waited for, have used.
func busyTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n") // cpu, user, nice, system, idle, iowait, irq, softirq, steal: in hundredths of a second
	var all time.Duration
	for i, word := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if i != 3 && i != 4 {
			all += time.Duration(n) * 10 * time.Millisecond
		}
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		all -= time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}

// traced moves frames from one traced process to another, and returns how often each called the kernel.
func traced(t *testing.T, w *world, strace string, frames int) (calls []int, reports []string) {
	t.Helper()
	cpus, err := sys.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	topic := w.topic(t, client.TopicOptions{Capacity: 16 << 20})
	var procs []*testutil.Proc
	var files []string
	for i, role := range []string{"stream-subscriber", "stream-publisher"} {
		file := filepath.Join(t.TempDir(), role)
		p := launchOn(t, cpus[i%len(cpus)], testutil.Child{
			Binary: strace, Role: role, Args: []string{"-f", "-c", "-o", file, self, w.socket, topic, strconv.Itoa(frames)},
		})
		p.Expect("ready")
		procs, files = append(procs, p), append(files, file)
	}
	for i, p := range procs {
		p.Expect("done")
		p.Succeed()
		n, report := countCalls(t, files[i])
		calls, reports = append(calls, n), append(reports, report)
	}
	return calls, reports
}

// launchOn starts a child on one processor: a process begins with the affinity of the thread that makes it. That thread
// is not used for anything else, and ends.
func launchOn(t *testing.T, cpu int, c testutil.Child) *testutil.Proc {
	t.Helper()
	launched := make(chan *testutil.Proc)
	go func() {
		defer close(launched)
		runtime.LockOSThread()
		if err := sys.PinThread(cpu); err != nil {
			t.Error(err)
			return
		}
		launched <- testutil.Launch(t, c)
	}()
	p := <-launched
	if p == nil {
		t.FailNow()
	}
	return p
}

// countCalls reads the total of a report of strace -c.
func countCalls(t *testing.T, name string) (calls int, report string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		// % time, seconds, µs per call, calls, perhaps errors, name
		if words := strings.Fields(line); len(words) >= 5 && words[len(words)-1] == "total" {
			if calls, err = strconv.Atoi(words[3]); err == nil && calls > 0 {
				return calls, string(text)
			}
		}
	}
	t.Fatalf("no total in the report of strace:\n%s", text)
	return 0, ""
}
