// Package server runs the servers that some of the systems compared need, each in a
// process of its own: a copy of this program, which is the server (NATS) or starts it
// (Redis, iceoryx). It ends when its parent does, however that went: it reads the end of
// its input.
package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Command is the name of the hidden subcommand that calls Serve with its two arguments.
const Command = "server"

// Kinds of servers.
const (
	NATS  = "nats"
	Redis = "redis"
	RouDi = "iceoryx"
	// RedisTCP is Redis on a port of loopback, for thousands of connections.
	RedisTCP = "redis-tcp"
)

// runners run a server until ctx ends. They call ready with its address when it takes
// connections.
var runners = map[string]func(ctx context.Context, dir string, ready func(address string)) error{
	NATS:  runNATS,
	Redis: runRedis,
	RouDi: runRouDi,

	RedisTCP: runRedisTCP,
}

// patience is how long a server may take until it takes connections.
const patience = 30 * time.Second

// readyWord begins the line that says where the server listens.
const readyWord = "ready "

// A Server is one that runs.
type Server struct {
	// Address is where it listens.
	Address string

	cmd   *exec.Cmd
	in    io.WriteCloser
	close sync.Once
	err   error
}

// Start starts a server with dir, an empty folder, as its own. It ends when ctx does.
func Start(ctx context.Context, kind, dir string) (*Server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("server: where is this program: %w", err)
	}
	s := &Server{cmd: exec.CommandContext(ctx, self, Command, kind, dir)}
	s.cmd.Stderr = os.Stderr
	// Not killed: it has a child to end, and files to remove.
	s.cmd.Cancel, s.cmd.WaitDelay = func() error { return s.in.Close() }, patience
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("server: pipe: %w", err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server: pipe: %w", err), s.in.Close())
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("server: start %s: %w", self, err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), readyWord)
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("server: %s did not start: it said %q", kind, line), s.Close())
	}
	s.Address = address
	return s, nil
}

// Close ends the server and waits for its end.
func (s *Server) Close() error {
	s.close.Do(func() {
		_ = s.in.Close() // which it sees as the end
		s.err = s.cmd.Wait()
	})
	return s.err
}

// Serve is the hidden subcommand's main: it runs a server until in ends.
func Serve(ctx context.Context, kind, dir string, in io.Reader, out io.Writer) error {
	run, ok := runners[kind]
	if !ok {
		return fmt.Errorf("server: unknown kind %q", kind)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // the parent says nothing: this waits for its end
		stop()
	}()
	return run(ctx, dir, func(address string) { fmt.Fprintln(out, readyWord+address) })
}

// runProgram runs a foreign server until ctx ends. up says whether it takes connections.
func runProgram(ctx context.Context, cmd *exec.Cmd, up func() bool, ready func()) error {
	// Asked to end, they remove what they leave in the file system.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = patience
	var complaints bytes.Buffer // some talk much on their standard error when all is well
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("server: start %s: %w", cmd.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.After(patience)
	for waiting := true; waiting; {
		select {
		case err := <-ended:
			return fmt.Errorf("server: %s ended at once: %w: %s", cmd.Path, err, complaints.String())
		case <-late:
			return errors.Join(fmt.Errorf("server: %s takes no connections after %v", cmd.Path, patience), cmd.Process.Kill(), <-ended)
		case <-look.C:
			waiting = !up()
		}
	}
	ready()
	<-ctx.Done()
	<-ended // by SIGTERM, most likely: that is how it is to end
	return nil
}
