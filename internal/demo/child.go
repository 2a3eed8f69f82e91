package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// childPatience is how long a reader process may take to read what is left and end, before it is killed.
const childPatience = 30 * time.Second

// A child is a reader process.
type child struct {
	name  string
	tally *tally
	cmd   *exec.Cmd
	in    io.Closer // closing it tells the process to finish
	out   *os.File
	said  tail

	done chan struct{} // closed when the process has ended
	err  error         // how; valid after done
}

// tail keeps the last of what was written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if len(t.text) > most {
		t.text = append(t.text[:0], t.text[len(t.text)-most:]...)
	}
	return len(b), nil
}

// lastLine is the last line, which is where an error stands.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.text))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// startChild starts a reader process. Its end, if nobody asked for it, is told to ended.
func startChild(command func(kind, arg string) *exec.Cmd, s Spec, ended func(*child)) (_ *child, err error) {
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &child{name: s.Name, cmd: command(KindReader, string(spec)), done: make(chan struct{})}
	if c.tally, err = newTally(s.Name, s.Frames); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.tally.close() // the first error says what went wrong
		}
	}()
	c.cmd.ExtraFiles = []*os.File{c.tally.segment.File()} // becomes descriptor 3, tallyFile
	c.cmd.Stderr = &c.said
	c.cmd.WaitDelay = 10 * time.Second // for what holds on to standard error beyond the process's end
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	c.in = in
	out, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", s.Name, err), in.Close())
	}
	c.out, c.cmd.Stdout = out, write
	err = c.cmd.Start()
	_ = write.Close() // the process has its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", s.Name, err), in.Close(), out.Close())
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
		ended(c)
	}()
	return c, nil
}

// ready waits until the process is attached.
func (c *child) ready(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = c.out.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(c.out).ReadString('\n')
	switch {
	case strings.TrimSpace(line) == readyLine:
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err == nil:
		return fmt.Errorf("%s said %q instead of %q", c.name, strings.TrimSpace(line), readyLine)
	}
	<-c.done
	return c.death()
}

// death says how a process ended that should not have.
func (c *child) death() error {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	if said := c.said.lastLine(); said != "" {
		how += ": " + said
	}
	return fmt.Errorf("%s (pid %d) ended in the middle: %s", c.name, c.cmd.Process.Pid, how)
}

// alive reports whether the process runs.
func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// finish lets the process read what is left and end, and waits for that.
func (c *child) finish() error {
	if err := c.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	timer := time.NewTimer(childPatience)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		return fmt.Errorf("%s (pid %d) did not end within %v", c.name, c.cmd.Process.Pid, childPatience)
	}
	if c.err != nil {
		return c.death()
	}
	return nil
}

// close ends the process, by force if it runs, and frees what belongs to it.
func (c *child) close() error {
	if c.alive() {
		if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill %s: %w", c.name, err)
		}
	}
	<-c.done
	_ = c.in.Close() // closed before, or nobody reads it
	return errors.Join(c.out.Close(), c.tally.close())
}
