package siege

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/failpoint"
)

// An event is something that the director hears of.
type event struct {
	berth *berth
	p     *process
	line  string           // it said this
	point string           // it has stopped at this failpoint
	died  *os.ProcessState // how it ended
	err   error            // a violation
	late  string           // it was not woken
	seen  *sighting        // what the broker says
	fed   *published       // what a feeder had sent when its connection ended
}

// A process is one that the siege has started.
type process struct {
	cmd     *exec.Cmd
	in      *os.File
	started time.Time
	last    lastLines // of its standard error
}

// lastLines keeps the end of what a process says on standard error.
type lastLines struct {
	mu   sync.Mutex
	text []string
}

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text = append(l.text, line); len(l.text) > 40 {
		l.text = l.text[1:]
	}
}

// String is all of it.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text, "\n")
}

// A launch says how to start a process.
type launch struct {
	program string
	args    []string
	arm     string   // what HUGEBUS_FAILPOINTS says
	file    *os.File // descriptor 3; nil: none
	log     io.Writer
}

// start starts a process. Its death closes its standard input, so that it goes with this process, and it is in a process group of
// its own: one that is stopped when this process dies is hung up by the kernel.
func start(l launch, b *berth, events chan<- event) (*process, error) {
	in, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("siege: %w", err)
	}
	outR, out, err := os.Pipe()
	if err != nil {
		closeAll(in, inW)
		return nil, fmt.Errorf("siege: %w", err)
	}
	errR, stderr, err := os.Pipe()
	if err != nil {
		closeAll(in, inW, outR, out)
		return nil, fmt.Errorf("siege: %w", err)
	}
	p := &process{cmd: exec.Command(l.program, l.args...), in: inW, started: time.Now()}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, stderr
	if l.file != nil {
		p.cmd.ExtraFiles = []*os.File{l.file}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Env = append(os.Environ(), failpoint.Env+"="+l.arm)
	err = p.cmd.Start()
	closeAll(in, out, stderr)
	if err != nil {
		closeAll(inW, outR, errR)
		return nil, fmt.Errorf("siege: start %s: %w", b.name, err)
	}
	fmt.Fprintf(l.log, "--- %s: process %d of %s, armed with %q\n", time.Now().Format("15:04:05.000000"), p.pid(), b.name, l.arm)
	go p.watch(b, outR, errR, l.log, events)
	return p, nil
}

// watch passes on what the process says, and then its death.
func (p *process) watch(b *berth, outR, errR *os.File, log io.Writer, events chan<- event) {
	var said sync.WaitGroup
	said.Go(func() {
		for lines := bufio.NewScanner(outR); lines.Scan(); {
			events <- event{berth: b, p: p, line: lines.Text()}
		}
		closeAll(outR)
	})
	said.Go(func() {
		for lines := bufio.NewScanner(errR); lines.Scan(); {
			p.last.add(lines.Text())
			fmt.Fprintln(log, lines.Text())
			if b.kind == kindBroker && strings.Contains(lines.Text(), "another keeper has everything") {
				events <- event{berth: b, p: p, line: "refilled"}
			}
			if point, ok := strings.CutPrefix(lines.Text(), "failpoint "); ok {
				events <- event{berth: b, p: p, point: point}
			}
		}
		closeAll(errR)
	})
	said.Wait()
	_ = p.cmd.Wait() // the state says how it ended
	closeAll(p.in)
	events <- event{berth: b, p: p, died: p.cmd.ProcessState}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal. One that has just died is heard of in another way.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// tell sends a line.
func (p *process) tell(line string) { _, _ = fmt.Fprintln(p.in, line) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was buffered
	}
}
