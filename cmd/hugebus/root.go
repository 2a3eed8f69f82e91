package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
)

// Exit statuses, as the help text lists them.
const (
	statusDone   = 0
	statusFailed = 1
	statusUsage  = 2
)

// socketEnv names the environment variable for --socket.
const socketEnv = "HUGEBUS_SOCKET"

// streams are the standard streams, so that tests can have others.
type streams struct {
	in       *os.File
	out, err *os.File
}

// app is what all commands share.
type app struct {
	streams
	socket string // --socket
}

// usageError is an error in how the command was called.
type usageError struct {
	err     error
	command string
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%v (see %s --help)", e.err, e.command)
}

func (e *usageError) Unwrap() error { return e.err }

// usage says that the command was called in a wrong way.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), command: cmd.CommandPath()}
}

// run runs a command line and returns the exit status.
func run(args []string, s streams) int {
	cmd := newRoot(&app{streams: s})
	cmd.SetArgs(args)
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	err := cmd.Execute()
	if err == nil {
		return statusDone
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(s.err, "hugebus: "+oneLine(err))
	}
	var wrong *usageError
	if errors.As(err, &wrong) {
		return statusUsage
	}
	return statusFailed
}

// errReported is an error of which the output has told everything already.
var errReported = errors.New("reported")

// oneLine is an error's text in one line, without the name of a package that who uses the command line does not import.
func oneLine(err error) string {
	text := strings.TrimPrefix(err.Error(), "client: ")
	return strings.NewReplacer(": client: ", ": ", "\n", "; ").Replace(strings.TrimSpace(text))
}

const rootLong = `hugebus is a message bus in shared memory for the processes of one host: a broker hands out
memory, and publishers and subscribers then exchange frames in it without a system call on
the way. An ingress feeds frames in from TCP.

To see it work, with nothing set up:

  hugebus demo

By hand, in a shell:

  hugebus broker &
  hugebus topic create orders --capacity 16MiB
  hugebus sub orders &
  echo hello | hugebus pub orders

Exit status: 0 done; 1 failed, and the last line of standard error says why and what to do;
2 called in a wrong way. An interrupt (Ctrl-C, SIGTERM) is the ordinary end of a command that
goes on until told, and gives 0.`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "hugebus",
		Short:         "A message bus in shared memory for the processes of one host",
		Long:          rootLong,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       strings.TrimPrefix(control.Software(), "hugebus "),
		Args:          cobra.ArbitraryArgs, // so that RunE can name an unknown command
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("hugebus {{.Version}}\n")
	root.PersistentFlags().StringVar(&a.socket, "socket", defaultSocket(),
		"path of the broker's control socket; also $"+socketEnv)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%w", err) })
	root.AddCommand(a.brokerCommand(), a.shutdownCommand(), keeperCommand(), a.topicCommand(), a.pubCommand(), a.subCommand(), a.ingressCommand(), a.egressCommand(), a.gatewayCommand(),
		a.doctorCommand(), a.demoCommand(), a.demoChildCommand())
	return root
}

func defaultSocket() string {
	if s := os.Getenv(socketEnv); s != "" {
		return s
	}
	return client.DefaultSocket()
}

// unknownCommand names the nearest commands that there are.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2 // letters
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return usage(cmd, "unknown command %q: did you mean %s?", name, strings.Join(near, " or "))
	}
	return usage(cmd, "unknown command %q", name)
}

// group is a command that only holds others.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

// topicArg wants one argument, the name of a topic, and checks the name.
func topicArg(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usage(cmd, "the name of a topic is missing")
	case len(args) > 1:
		return usage(cmd, "one topic, not %d: %q is one too many", len(args), args[1])
	}
	if err := control.CheckTopicName(args[0]); err != nil {
		return usage(cmd, "%w", err)
	}
	return nil
}

// print writes text to standard output, and says so if that fails.
func (a *app) print(text string) error {
	if _, err := io.WriteString(a.out, text); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

// say writes a line for people to standard error. That nobody reads it is no failure.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, format+"\n", args...)
}
