package keeper

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/hugebus/hugebus/internal/sys"
)

// Subcommand is the hidden subcommand of hugebus that runs Main.
const Subcommand = "keeper"

// What a keeper process says on its ready descriptor: one of these, and after a colon what went wrong.
const (
	sayReady  = "ready"
	sayLocked = "locked"
	sayFailed = "failed"
)

// flags are the arguments of a keeper process.
type flags struct {
	ServeOptions
	ready int // descriptor that is told how the start went; -1: none
}

// args makes the arguments that parseFlags understands.
func (f flags) args() []string {
	return []string{
		"--socket=" + f.Socket,
		"--entries=" + strconv.Itoa(f.Limits.Entries),
		"--bytes=" + strconv.FormatInt(f.Limits.Bytes, 10),
		"--descriptors=" + strconv.Itoa(f.Limits.Descriptors),
		"--idle=" + f.Idle.String(),
		"--ready=" + strconv.Itoa(f.ready),
	}
}

func parseFlags(args []string, usage io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet(Subcommand, flag.ContinueOnError)
	set.SetOutput(usage)
	set.StringVar(&f.Socket, "socket", "", "path of the keeper's socket")
	set.IntVar(&f.Limits.Entries, "entries", 0, "most entries; 0: default")
	set.Int64Var(&f.Limits.Bytes, "bytes", 0, "most bytes; 0: default")
	set.IntVar(&f.Limits.Descriptors, "descriptors", 0, "most descriptors; 0: as many as the limit of open files allows")
	set.DurationVar(&f.Idle, "idle", 0, "end after so long without a broker and without entries; 0: never")
	set.IntVar(&f.ready, "ready", -1, "descriptor that is told when the keeper listens")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("argument %q is not known", set.Arg(0))
	}
	return f, nil
}

// Main is the body of the hidden subcommand: a keeper process, from its arguments (without the program's name and the
// subcommand's) to its exit status. It logs to standard error. Start is what runs it.
//
// Signals that a terminal or a supervisor sends by habit (SIGHUP, SIGINT, SIGTERM) are ignored: with this process go
// all topics, so it ends only when Shutdown says so.
func Main(args []string) int {
	f, err := parseFlags(args, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "hugebus %s: %v\n", Subcommand, err)
		return 2
	}
	if err := sys.CloseInherited(f.ready); err != nil {
		fmt.Fprintf(os.Stderr, "hugebus %s: %v\n", Subcommand, err)
		return 1
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	// It handles a message now and then: one thread and a small heap will do.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)

	f.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	said := false
	say := func(text string) {
		if f.ready >= 0 && !said {
			said = true
			tell(f.ready, text)
		}
	}
	f.Ready = func() { say(sayReady) }
	if err := Serve(context.Background(), f.ServeOptions); err != nil {
		f.Log.Error("keeper cannot run", "error", err)
		if errors.Is(err, errLocked) {
			say(sayLocked + ": " + err.Error())
		} else {
			say(sayFailed + ": " + err.Error())
		}
		return 1
	}
	return 0
}

// tell writes a line to whoever started this process, and closes the descriptor.
func tell(fd int, text string) {
	f := os.NewFile(uintptr(fd), "ready")
	// Nobody may listen any more; the keeper runs on without.
	_, _ = io.WriteString(f, text+"\n")
	_ = f.Close()
}
