package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// SocketSuffix makes the path of the keeper's socket of that of its broker.
const SocketSuffix = ".keeper"

// startTime is how long Start waits for a keeper that has its socket's lock and does not listen.
const startTime = 30 * time.Second

// Options say which keeper process to use, and how to start it if there is none.
type Options struct {
	// Socket is the path of the keeper's socket: the broker's, and SocketSuffix.
	Socket string
	// Exec is the program and first arguments of a keeper process. Default: this program with Subcommand.
	Exec []string
	// LogFile gets what the keeper process logs, at its end; empty: nothing is logged.
	LogFile string
	// Limits bound a keeper that is started. One that runs already has its own.
	Limits Limits
	// Idle is how long a started keeper without broker and entries lives; 0: for ever.
	Idle time.Duration
	// Log gets what this side has to say; nil: nothing is said.
	Log *slog.Logger
}

// Start returns the Store of a keeper process: of the one that listens on the socket, with all that it has, or of
// a new one. A new one is a session of its own (setsid), without a terminal, in the root directory, with /dev/null or
// the log file for standard descriptors, and lives until Shutdown.
//
// If another broker holds the lease, the error is a *HeldError. ErrVersion means a keeper of another release.
func Start(ctx context.Context, o Options) (Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	for wait, since := time.Millisecond, time.Now(); ; wait = min(2*wait, 100*time.Millisecond) {
		r, err := connect(ctx, o)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, ErrNotRunning) {
			return nil, err
		}
		child, err := spawn(ctx, o)
		if err == nil {
			if r, err = connect(ctx, o); err == nil {
				r.adopt(child)
				return r, nil
			}
			_ = child.Release() // it may serve another broker now
			if !errors.Is(err, ErrNotRunning) {
				return nil, err
			}
		}
		if !errors.Is(err, errLocked) && !errors.Is(err, ErrNotRunning) {
			return nil, err
		}
		// Another process has started one, or is about to end one.
		if time.Since(since) > startTime {
			return nil, fmt.Errorf("%w, and does not listen on it: if it hangs, end it; its topics are lost then", err)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

func (o Options) withDefaults() (Options, error) {
	if err := control.CheckSocketPath(o.Socket); err != nil {
		return o, fmt.Errorf("keeper: %w", err)
	}
	var err error
	if o.Socket, err = filepath.Abs(o.Socket); err != nil {
		return o, fmt.Errorf("keeper: %w", err)
	}
	if err := control.CheckSocketPath(o.Socket); err != nil {
		return o, fmt.Errorf("keeper: %w", err)
	}
	if len(o.Exec) == 0 {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("keeper: where is this program? %w", err)
		}
		o.Exec = []string{self, Subcommand}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// spawn starts a keeper process and waits until it listens.
func spawn(ctx context.Context, o Options) (*os.Process, error) {
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	defer ready.Close()
	cmd, err := command(o, tell)
	if err == nil {
		err = cmd.Start()
	}
	if log, ok := cmd.Stdout.(*os.File); ok {
		_ = log.Close() // the child has it
	}
	_ = tell.Close()
	if err != nil {
		return nil, fmt.Errorf("keeper: start %s: %w", strings.Join(o.Exec, " "), err)
	}
	if err := awaitReady(ctx, ready); err != nil {
		// It has ended, or must: nobody knows of it.
		_ = cmd.Process.Kill()
		state, waitErr := cmd.Process.Wait()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.Join(fmt.Errorf("keeper: %s: %v before it was ready; it logs to %s",
				strings.Join(o.Exec, " "), state, orNowhere(o.LogFile)), waitErr)
		}
		return nil, err
	}
	o.Log.Info("keeper process started", "pid", cmd.Process.Pid, "socket", o.Socket)
	return cmd.Process, nil
}

// command is a keeper process, with descriptor 3 to say that it is ready.
func command(o Options, tell *os.File) (*exec.Cmd, error) {
	const readyFD = 3 // the first of ExtraFiles
	f := flags{ServeOptions: ServeOptions{Socket: o.Socket, Limits: o.Limits, Idle: o.Idle}, ready: readyFD}
	cmd := exec.Command(o.Exec[0], slices.Concat(o.Exec[1:], f.args())...)
	cmd.Dir = "/"
	cmd.Env = keeperEnv(os.Environ())
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.LogFile == "" {
		return cmd, nil
	}
	log, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return cmd, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, nil
}

// keeperEnv leaves out what systemd said to the broker alone.
func keeperEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_") || name == "NOTIFY_SOCKET" || name == "FDSTORE"
	})
}

// awaitReady reads what the keeper process says about its start.
func awaitReady(ctx context.Context, ready *os.File) error {
	var line string
	err := interruptible(ctx, ready.SetReadDeadline, func() (err error) {
		line, err = bufio.NewReader(ready).ReadString('\n')
		return err
	})
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("keeper: wait for its process: %w", err)
	}
	what, why, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
	switch what {
	case sayReady:
		return nil
	case sayLocked:
		return fmt.Errorf("%w (%s)", errLocked, why)
	}
	return fmt.Errorf("keeper: its process cannot run: %s", why)
}

func orNowhere(file string) string {
	if file == "" {
		return "nowhere"
	}
	return file
}

// notThere reports whether an error of connect(2) means that no keeper runs.
func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
