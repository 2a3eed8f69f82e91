package restart

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A child is a process of the measurement. It ends with its standard input.
type child struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	patience time.Duration
}

// launch starts this program with args, and waits until it says that it is ready.
func launch(args []string, patience time.Duration) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, args...), patience: patience}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<16)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := c.line()
	if err != nil || line != "ready\n" {
		c.kill()
		return nil, fmt.Errorf("%s said %q: %w", strings.Join(args, " "), line, err)
	}
	return c, nil
}

// line reads a line. A child that hangs is killed, which ends the read.
func (c *child) line() (string, error) {
	watchdog := time.AfterFunc(c.patience, func() { _ = c.cmd.Process.Kill() }) // it may have ended
	defer watchdog.Stop()
	return c.out.ReadString('\n')
}

// lap asks the load for what it did.
func (c *child) lap() (lap, error) {
	l := lap{Pauses: nil}
	if _, err := c.in.Write([]byte{'l'}); err != nil {
		return l, fmt.Errorf("restart: the load has ended: %w", err)
	}
	line, err := c.line()
	if err != nil {
		return l, fmt.Errorf("restart: the load has ended: %w", err)
	}
	return l, json.Unmarshal([]byte(line), &l)
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	_ = c.cmd.Wait()         // by the signal
}

// end ends the child in the ordinary way.
func (c *child) end() error {
	watchdog := time.AfterFunc(c.patience, func() { _ = c.cmd.Process.Kill() }) // it may have ended
	defer watchdog.Stop()
	_ = c.in.Close() // it may have ended
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("restart: %s: %w", strings.Join(c.cmd.Args[1:], " "), err)
	}
	return nil
}

// A usage is what a process has of its own.
type usage struct {
	bytes int64 // anonymous memory that is resident
	files int
}

func (c *child) usage() (u usage, err error) {
	dir := fmt.Sprintf("/proc/%d/", c.cmd.Process.Pid)
	text, err := os.ReadFile(dir + "status")
	if err != nil {
		return u, fmt.Errorf("restart: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &u.bytes); n == 1 {
			u.bytes <<= 10
		}
	}
	files, err := os.ReadDir(dir + "fd")
	u.files = len(files)
	return u, err
}
