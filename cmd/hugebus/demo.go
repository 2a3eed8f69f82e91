package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hugebus/hugebus/internal/demo"
	"github.com/hugebus/hugebus/shm"
)

// childCommand is the hidden command of the demo's processes.
const childCommand = "demo-process"

type demoFlags struct {
	frames          uint64
	capacity, pages string
	listen          string
	json, keepGoing bool
}

func (a *app) demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the bus at work: TCP in, shared memory, worker processes out",
		Long: `Run everything at once, with nothing set up: a broker on a temporary socket, an ingress on
loopback, a feeder that sends a million frames of mixed size over TCP, a group of two worker
processes that share them, and a subscriber process that sees them all. Each frame has a number,
a checksum and the time of its sending.

At the end a table says how fast it was, and what was lost, duplicated or corrupted. Exit status
0 only if every frame arrived exactly where it should: at one worker, and, in order, at the
subscriber.

With --keep-going you may kill -9 a worker in the middle: what it had not finished goes to the
other one, marked. A frame that the dead one had begun is then delivered twice, which the table
says, and the exit status is 1.`,
		Example: "  hugebus demo\n  hugebus demo --frames 10000000 --json\n  hugebus demo --capacity 256MiB --pages 2MiB",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd, f) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.frames, "frames", demo.DefaultFrames, "how many frames are sent")
	flags.StringVar(&f.capacity, "capacity", shm.FormatSize(demo.DefaultCapacity), "memory of the topic, a power of two")
	flags.StringVar(&f.pages, "pages", "auto", "pages of that memory: auto, 1GiB, 2MiB, thp or 4KiB")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "address of the ingress, as HOST:PORT; port 0 takes a free one")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "go on when a worker dies")
	jsonFlag(cmd, &f.json)
	completeWords(cmd, "pages", "auto", "1GiB", "2MiB", "thp", "4KiB")
	return cmd
}

// demoChildCommand is what the processes run that the demo starts.
func (a *app) demoChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: childCommand + " KIND ARGUMENT", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A Ctrl-C goes to all processes of the terminal; the demo's own one ends the others in order.
			signal.Ignore(syscall.SIGINT)
			return demo.Child(cmd.Context(), args[0], args[1], a.in, a.out)
		},
	}
}

func (f demoFlags) options(cmd *cobra.Command) (demo.Options, error) {
	o := demo.Options{Frames: f.frames, Pages: f.pages, Listen: f.listen, KeepGoing: f.keepGoing}
	var err error
	if o.Capacity, err = size(cmd, "capacity", f.capacity); err != nil {
		return o, err
	}
	if _, err := shm.ParsePages(f.pages); err != nil {
		return o, usage(cmd, "--pages: %w", err)
	}
	if err := o.Check(); err != nil {
		return o, usage(cmd, "%w", err)
	}
	return o, nil
}

func (a *app) demo(cmd *cobra.Command, f demoFlags) error {
	o, err := f.options(cmd)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it again as a worker: %w", err)
	}
	o.Child = func(kind, arg string) *exec.Cmd { return exec.Command(program, childCommand, kind, arg) }
	o.Logger = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	bar := a.newBar()
	o.Progress = bar.show
	if f.keepGoing {
		o.Began = func(pids []int) {
			bar.clear()
			a.say("workers: pids %s; subscriber: pid %d", strings.Trim(fmt.Sprint(pids[:len(pids)-1]), "[]"), pids[len(pids)-1])
		}
	}
	e := untilSignal(cmd.Context())
	defer e.close()
	result, err := demo.Run(e.stop, o)
	bar.clear()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if f.json {
		err = a.printJSON(result)
	} else {
		err = a.print(demoPage(result))
	}
	if err == nil && !result.OK {
		err = errors.New("demo: not every frame arrived exactly where it should")
	}
	return err
}

// demoPage is the table at the end.
func demoPage(r demo.Result) string {
	full, paced := r.FullSpeed, r.Paced
	lines := []string{
		row("", "full speed", fmt.Sprintf("%s frames/s", humanize.Comma(int64(paced.FramesPerSecond)))),
		row("frames", count(full.Frames), count(paced.Frames)),
		row("frames/s", count(uint64(full.FramesPerSecond)), count(uint64(paced.FramesPerSecond))),
		row("MB/s", fmt.Sprintf("%.1f", full.BytesPerSecond/1e6), fmt.Sprintf("%.1f", paced.BytesPerSecond/1e6)),
		row("latency p50", micros(full.P50), micros(paced.P50)),
		row("latency p90", micros(full.P90), micros(paced.P90)),
		row("latency p99", micros(full.P99), micros(paced.P99)),
		row("latency p99.9", micros(full.P999), micros(paced.P999)),
		row("latency max", micros(full.Max), micros(paced.Max)),
	}
	lines[0] = strings.Replace(lines[0], "-", "", 1)
	var b strings.Builder
	fmt.Fprintf(&b, "%s frames, %s of payload, from TCP through %s of shared memory on %s pages, to 2 workers and 1 subscriber, in %.1f s\n\n",
		count(r.Frames), humanize.Bytes(r.Bytes), shm.FormatSize(r.Capacity), r.Pages, r.Seconds)
	b.WriteString(table(lines))
	b.WriteString("(latency from the TCP send to the worker; at full speed it is the queues')\n\n")
	if r.Syscalls.Frames > 0 {
		fmt.Fprintf(&b, "system calls per frame in a worker: %.4f (%s in %s frames: %s)\n\n", r.Syscalls.PerFrame,
			count(uint64(r.Syscalls.Calls)), count(r.Syscalls.Frames), r.Syscalls.Counted)
	} else {
		fmt.Fprintf(&b, "system calls per frame in a worker: not known (counted: %s)\n\n", r.Syscalls.Counted)
	}
	b.WriteString(table([]string{
		row("arrived", "as they should", "lost", "duplicated", "corrupted", "out of order", "redelivered"),
		arrivalRow("at one of the workers ("+shares(r.Group.Shares)+")", r.Group),
		arrivalRow("at the subscriber", r.Broadcast),
	}))
	for _, d := range r.Died {
		b.WriteString("\n" + d + "\n")
	}
	if r.OK {
		b.WriteString("\nevery frame arrived exactly where it should\n")
	}
	return b.String()
}

func arrivalRow(where string, a demo.Arrival) string {
	return row(where, count(a.Once), count(a.Lost), count(a.Duplicated), count(a.Corrupted), count(a.Disordered), count(a.Redelivered))
}

func shares(n []uint64) string {
	words := make([]string, len(n))
	for i, v := range n {
		words[i] = count(v)
	}
	return strings.Join(words, " + ")
}

func count(n uint64) string { return humanize.Comma(int64(n)) }

func micros(ns int64) string {
	return fmt.Sprintf("%s µs", humanize.CommafWithDigits(float64(ns)/1e3, 1))
}

// bar is the progress bar. Without a terminal it does nothing.
type bar struct {
	a     *app
	began time.Time
	width int // of what stands there now; negative: no terminal
}

func (a *app) newBar() *bar {
	b := &bar{a: a, began: time.Now()}
	if !term.IsTerminal(int(a.err.Fd())) {
		b.width = -1
	}
	return b
}

func (b *bar) show(done, all uint64) {
	if b.width < 0 {
		return
	}
	const cells = 40
	n := int(done * cells / max(all, 1))
	line := fmt.Sprintf("[%s%s] %3d%%  %s of %s frames  %.0f s", strings.Repeat("#", n), strings.Repeat(".", cells-n),
		done*100/max(all, 1), count(done), count(all), time.Since(b.began).Seconds())
	fmt.Fprintf(b.a.err, "\r%-*s", b.width, line)
	b.width = len(line)
}

// clear takes the bar away.
func (b *bar) clear() {
	if b.width > 0 {
		fmt.Fprintf(b.a.err, "\r%*s\r", b.width, "")
		b.width = 0
	}
}
