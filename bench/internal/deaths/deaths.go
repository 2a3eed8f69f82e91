// Package deaths measures how long the death of a publisher holds subscribers up.
//
// A victim, a process of its own, publishes until it stops at a failpoint between claim and commit. A living publisher
// publishes a frame behind the open claim, which the subscriber cannot pass. Then the victim is killed. The time is from just
// before the signal until the subscriber has that frame: it holds the end of the process, the broker's notice of it, the repair,
// and the way of the frame.
package deaths

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/ring"
)

// Points are where victims die, in the order in which they are passed.
var Points = []string{
	ring.FailAfterIntent, ring.FailAfterClaim, ring.FailMidCopy, ring.FailMidBatch, ring.FailBeforeCommit, ring.FailMidWrap,
	ring.FailAfterCommit, ring.FailBeforeRing,
}

// open reports whether a claim is open at a point.
func open(point string) bool {
	return point != ring.FailAfterIntent && point != ring.FailAfterCommit && point != ring.FailBeforeRing
}

// Options say what Run does.
type Options struct {
	// Kills is how many victims die, at all points together.
	Kills int
	// Program is what the victims and the broker run, with these arguments; a victim's are followed by socket and point.
	Program    string
	VictimArgs []string
	BrokerArgs func(socket string) []string
	Say        func(done int)
	Patience   time.Duration
}

// A Result is what was measured at one point, in nanoseconds.
type Result struct {
	Point   string        `json:"point"`
	Kills   int           `json:"kills"`
	HeldUp  int           `json:"held_up"` // how many deaths held the subscriber up; the times are of those
	Median  time.Duration `json:"median_ns"`
	P99     time.Duration `json:"p99_ns"`
	Worst   time.Duration `json:"worst_ns"`
	Repairs uint64        `json:"repairs"`
}

const topic = "deaths"

// marker is what the living publisher's frames begin with.
const marker = "living"

// bench is a run.
type bench struct {
	o        Options
	dir      string
	broker   *child
	bus      *client.Client
	living   *client.Lane
	heard    chan time.Time // when the subscriber had a frame of the living, or (asleep) any frame
	asleep   bool           // see heard
	failed   chan error
	stop     context.CancelFunc
	finished chan struct{}
}

// Run kills publishers. Results come in the order of Points; the last is all that held the subscriber up.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	var all []time.Duration
	total := Result{Point: "all"}
	for i, point := range Points {
		n := o.Kills / len(Points)
		if i < o.Kills%len(Points) {
			n++
		}
		if n == 0 {
			continue
		}
		times, repairs, err := measure(ctx, o, point, n, total.Kills)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", point, err)
		}
		r := summary(point, n, times, repairs)
		results = append(results, r)
		all = append(all, times...)
		total.Kills, total.Repairs = total.Kills+n, total.Repairs+repairs
	}
	return append(results, summary(total.Point, total.Kills, all, total.Repairs)), nil
}

func summary(point string, kills int, times []time.Duration, repairs uint64) Result {
	r := Result{Point: point, Kills: kills, HeldUp: len(times), Repairs: repairs}
	if len(times) > 0 {
		slices.Sort(times)
		r.Median, r.P99, r.Worst = times[len(times)/2], times[len(times)*99/100], times[len(times)-1]
	}
	return r
}

// measure kills n victims at one point.
func measure(ctx context.Context, o Options, point string, n, before int) (times []time.Duration, repairs uint64, err error) {
	b := &bench{o: o, heard: make(chan time.Time, 64), failed: make(chan error, 1), finished: make(chan struct{}), asleep: point == ring.FailBeforeRing}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return nil, 0, err
	}
	next, err := b.victim(point)
	if err != nil {
		return nil, 0, err
	}
	defer func() { next.end() }()
	for i := range n {
		v := next
		// The next one starts meanwhile: most of the time of a death is the start of a process.
		if next, err = b.victim(point); err != nil {
			return nil, 0, errors.Join(err, v.end())
		}
		took, held, err := b.kill(v, point)
		if err := errors.Join(err, v.end()); err != nil {
			return nil, 0, err
		}
		if held {
			times = append(times, took)
		}
		o.Say(before + i + 1)
	}
	info, err := b.bus.Topic(ctx, topic)
	if err == nil && open(point) && info.Repairs != uint64(n) {
		err = fmt.Errorf("%d claims were left open, and %d repaired", n, info.Repairs)
	}
	return times, info.Repairs, err
}

// open starts a broker, a living publisher and a subscriber.
func (b *bench) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "hb-deaths-"); err != nil {
		return err
	}
	if b.broker, err = start(b.o.Program, b.o.BrokerArgs(b.socket()), ""); err != nil {
		return err
	}
	if err := b.broker.expect("ready"); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, b.broker.err) }() // its log
	if b.bus, err = client.Dial(ctx, client.Options{Socket: b.socket(), Name: "deaths", Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	if _, err := b.bus.CreateTopic(ctx, topic, client.TopicOptions{Capacity: 64 << 10}); err != nil {
		return err
	}
	if b.living, err = b.bus.Lane(ctx, topic, client.PublisherOptions{Name: "living"}); err != nil {
		return err
	}
	how := client.WaitAdaptive
	if b.asleep {
		how = client.WaitSleep
	}
	sub, err := b.bus.Subscriber(ctx, topic, client.SubscriberOptions{Name: "subscriber", Wait: how})
	if err != nil {
		return err
	}
	ctx, b.stop = context.WithCancel(context.Background())
	go func() {
		defer close(b.finished)
		err := sub.Run(ctx, func(f client.Frame) error {
			if b.asleep || strings.HasPrefix(string(f.Payload), marker) {
				b.heard <- time.Now()
			}
			return nil
		})
		if ctx.Err() == nil {
			b.failed <- err
		}
	}()
	return nil
}

func (b *bench) socket() string { return filepath.Join(b.dir, "s") }

// kill lets a victim run to its point, and kills it there. held is false if its death held nobody up.
func (b *bench) kill(v *child, point string) (took time.Duration, held bool, err error) {
	if _, err := fmt.Fprintln(v.in, "go"); err != nil {
		return 0, false, err
	}
	if err := v.stopped(point, b.o.Patience); err != nil {
		return 0, false, err
	}
	if !b.asleep { // else the victim's own frame is there, and nobody was woken for it
		if err := b.living.TryPublish([]byte(marker)); err != nil {
			return 0, false, err
		}
	}
	if !open(point) && !b.asleep {
		_, err := b.hear() // nothing is in the way
		return 0, false, errors.Join(err, v.cmd.Process.Kill())
	}
	select {
	case <-b.heard:
		if b.asleep { // it looked just then: the machine is busy
			return 0, false, v.cmd.Process.Kill()
		}
		return 0, false, errors.New("a subscriber passed an open claim")
	default:
	}
	began := time.Now()
	if err := v.cmd.Process.Kill(); err != nil {
		return 0, false, err
	}
	at, err := b.hear()
	return at.Sub(began), true, err
}

func (b *bench) hear() (time.Time, error) {
	select {
	case at := <-b.heard:
		return at, nil
	case err := <-b.failed:
		return time.Time{}, err
	case <-time.After(b.o.Patience):
		return time.Time{}, fmt.Errorf("subscribers do not go on within %v", b.o.Patience)
	}
}

func (b *bench) close() (err error) {
	if b.stop != nil {
		b.stop()
		<-b.finished
	}
	if b.bus != nil {
		err = b.bus.Close()
	}
	if b.broker != nil {
		err = errors.Join(err, b.broker.end())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// A child is a process that has a pipe to its standard input, and ends with this process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *bufio.Reader
}

func start(program string, args []string, arm string) (*child, error) {
	c := &child{cmd: exec.Command(program, args...)}
	c.cmd.Env = append(os.Environ(), failpoint.Env+"="+arm)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out, c.err = in, bufio.NewReader(out), bufio.NewReader(said)
	return c, c.cmd.Start()
}

// expect reads a line.
func (c *child) expect(want string) error {
	line, err := c.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		rest, _ := io.ReadAll(c.err)
		return fmt.Errorf("process %d said %q instead of %q (%v): %s", c.cmd.Process.Pid, line, want, err, rest)
	}
	return nil
}

// stopped waits until the process has stopped at a failpoint.
func (c *child) stopped(point string, patience time.Duration) error {
	line, err := c.err.ReadString('\n')
	if want := "failpoint " + point; strings.TrimSpace(line) != want {
		return fmt.Errorf("process %d said %q instead of %q (%v)", c.cmd.Process.Pid, line, want, err)
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Microsecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			return err
		}
		if strings.Contains(string(stat), ") T ") {
			return nil
		}
	}
	return fmt.Errorf("process %d does not stop", c.cmd.Process.Pid)
}

// end kills the process, if it lives, and waits for its end.
func (c *child) end() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var killed *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &killed) {
		return err
	}
	return nil
}

// victim starts one that is attached, and waits to be told.
func (b *bench) victim(point string) (*child, error) {
	v, err := start(b.o.Program, append(slices.Clone(b.o.VictimArgs), b.socket(), point), point+"=stop")
	if err != nil {
		return nil, err
	}
	if err := v.expect("ready"); err != nil {
		return nil, errors.Join(err, v.end())
	}
	return v, nil
}
