package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
)

// Options say how to start a Team.
type Options struct {
	// Args are the program's arguments that lead to Serve, for a worker on a core.
	Args func(core int) []string
	// Cores has one entry for each worker; Unpinned leaves it to the kernel.
	Cores []int
	// Files are handed over to every worker (Task.File). They still belong to the caller.
	Files []*os.File
	// Stderr receives what workers write to their standard error.
	Stderr io.Writer
}

// A Team is the workers of a run. It is for one goroutine. After an error from Run
// all workers are dead, and Close is all that is left to do.
type Team struct {
	members []*member
}

// A member is one worker process.
type member struct {
	number int
	core   int
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  *json.Encoder
	events chan message // closed when the process has ended; then died says how
	died   error
	stop   chan struct{} // closed when nobody takes events any more
	once   sync.Once
	hello  message
}

// Start starts the workers and waits until each has said hello. They are killed when
// ctx ends.
func Start(ctx context.Context, o Options) (*Team, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("worker: where is this program: %w", err)
	}
	t := &Team{}
	for i, core := range o.Cores {
		m, err := startMember(ctx, self, i, core, o)
		if err != nil {
			t.kill()
			return nil, err
		}
		t.members = append(t.members, m)
	}
	for _, m := range t.members {
		if m.hello, err = m.next(ctx, kindHello); err != nil {
			t.kill()
			return nil, err
		}
	}
	return t, nil
}

func startMember(ctx context.Context, program string, number, core int, o Options) (*member, error) {
	m := &member{
		number: number, core: core, events: make(chan message), stop: make(chan struct{}),
		cmd: exec.CommandContext(ctx, program, o.Args(core)...),
	}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("worker: pipe: %w", err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("worker: pipe: %w", err), in.Close())
	}
	m.in, m.lines = in, json.NewEncoder(in)
	m.cmd.ExtraFiles, m.cmd.Stderr = slices.Clip(o.Files), o.Stderr
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("worker: start %s: %w", program, err)
	}
	go m.read(out)
	return m, nil
}

// read passes messages on until the worker's output ends, and then waits for its end.
func (m *member) read(out io.Reader) {
	defer close(m.events)
	d := json.NewDecoder(out)
	for {
		var e message
		if err := d.Decode(&e); err != nil {
			break
		}
		select {
		case m.events <- e:
		case <-m.stop:
		}
	}
	state := "exit status 0"
	if err := m.cmd.Wait(); err != nil {
		state = err.Error()
	}
	m.died = fmt.Errorf("bench: %s ended in the middle of the measurement: %s", m, state)
}

// String names the worker for messages.
func (m *member) String() string {
	where := "on any core"
	if m.core != Unpinned {
		where = fmt.Sprintf("on core %d", m.core)
	}
	return fmt.Sprintf("worker %d (process %d, %s)", m.number, m.cmd.Process.Pid, where)
}

// next takes the next message, which must be of the wanted kind.
func (m *member) next(ctx context.Context, want kind) (message, error) {
	select {
	case e, ok := <-m.events:
		return m.check(e, ok, want)
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

func (m *member) check(e message, ok bool, want kind) (message, error) {
	switch {
	case !ok:
		return e, m.died
	case e.Kind == kindFailed:
		return e, fmt.Errorf("bench: %s: %s", m, e.Error)
	case e.Kind != want:
		return e, fmt.Errorf("bench: %s said %q instead of %q", m, e.Kind, want)
	}
	return e, nil
}

// send writes one message; a worker that has died is noticed by who reads from it.
func (m *member) send(e message) { _ = m.lines.Encode(e) }

// Unpinned says which workers could not be pinned to their cores, and why.
func (t *Team) Unpinned() []error {
	var problems []error
	for _, m := range t.members {
		if m.hello.Error != "" {
			problems = append(problems, fmt.Errorf("%s is not pinned: %s", m, m.hello.Error))
		}
	}
	return problems
}

// A Call is one worker's part of a task.
type Call struct {
	Role   string
	Params any // as JSON
	Into   any // takes the result, if not nil
}

// Run gives calls[i] to worker i and waits until all are done. They begin together,
// when each is set up. The first error ends all workers.
func (t *Team) Run(ctx context.Context, calls ...Call) error {
	err := t.run(ctx, calls)
	if err != nil {
		t.kill()
	}
	return err
}

func (t *Team) run(ctx context.Context, calls []Call) error {
	if len(calls) > len(t.members) {
		return fmt.Errorf("bench: %d calls for %d workers", len(calls), len(t.members))
	}
	members := t.members[:len(calls)]
	for i, c := range calls {
		params, err := json.Marshal(c.Params)
		if err != nil {
			return fmt.Errorf("bench: parameters of %s: %w", c.Role, err)
		}
		members[i].send(message{Kind: kindTask, Role: c.Role, Params: params})
	}
	if _, err := gather(ctx, members, kindReady); err != nil {
		return err
	}
	for _, m := range members {
		m.send(message{Kind: kindGo})
	}
	results, err := gather(ctx, members, kindDone)
	if err != nil {
		return err
	}
	for i, c := range calls {
		if c.Into == nil {
			continue
		}
		if err := json.Unmarshal(results[i].Result, c.Into); err != nil {
			return fmt.Errorf("bench: result of %s %s: %w", c.Role, results[i].Result, err)
		}
	}
	return nil
}

// gather takes one message of a kind from each, in whatever order they come: the
// first that fails is reported at once, while others may still spin.
func gather(ctx context.Context, members []*member, want kind) ([]message, error) {
	type outcome struct {
		i   int
		e   message
		err error
	}
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, len(members))
	for i, m := range members {
		go func() {
			e, err := m.next(all, want)
			outcomes <- outcome{i, e, err}
		}()
	}
	got := make([]message, len(members))
	var first error
	for range members {
		o := <-outcomes
		got[o.i] = o.e
		if o.err != nil && first == nil {
			first = o.err
			cancel()
		}
	}
	if ctx.Err() != nil {
		return got, ctx.Err() // that is why a worker died, if one did
	}
	return got, first
}

// Close ends the workers and waits for their end.
func (t *Team) Close() {
	for _, m := range t.members {
		_ = m.in.Close() // closed before by kill, or now
	}
	t.wait()
}

// kill ends workers in the middle of what they do.
func (t *Team) kill() {
	for _, m := range t.members {
		_ = m.in.Close()
		_ = m.cmd.Process.Kill() // it may have ended by itself
	}
	t.wait()
}

// wait waits for the end of every worker. What one still says interests nobody.
func (t *Team) wait() {
	for _, m := range t.members {
		m.once.Do(func() { close(m.stop) })
		for range m.events {
			continue
		}
	}
}
