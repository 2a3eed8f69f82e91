package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/pump"
)

const (
	// brokerPatience is how long a command waits for a broker that is not there yet, so that a script can start one in
	// the background and go on.
	brokerPatience = 2 * time.Second
	// completionPatience bounds the time that the shell waits for names.
	completionPatience = time.Second
)

// dial connects to the broker. A socket that is not there yet, or not served yet, gets a little time.
func (a *app) dial(ctx context.Context, cmd *cobra.Command) (*client.Client, error) {
	if err := control.CheckSocketPath(a.socket); err != nil {
		return nil, usage(cmd, "%w", err)
	}
	o := client.Options{Socket: a.socket, Name: cmd.CommandPath(), Logger: a.logger()}
	for end := time.Now().Add(brokerPatience); ; {
		c, err := client.Dial(ctx, o)
		if err == nil || !a.mayCome(err) || time.Now().After(end) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// mayCome reports whether a broker that is being started would explain the error.
func (a *app) mayCome(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return true
	}
	_, statErr := os.Stat(filepath.Dir(a.socket))
	return errors.Is(err, fs.ErrNotExist) && (statErr == nil || a.socket == control.DefaultSocket())
}

// logger logs to standard error, for people.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.err, nil))
}

// ending are the contexts of a command that goes on until it is told to stop.
type ending struct {
	stop  context.Context // the first signal: read no more, finish what was read
	abort context.Context // the second: do not wait any longer
	close func()
}

var errAborted = errors.New("a second signal came before all was done")

// untilSignal returns contexts that SIGINT and SIGTERM end. Call close when they are not used any more.
func untilSignal(ctx context.Context) ending {
	stop, cancelStop := context.WithCancel(ctx)
	abort, cancelAbort := context.WithCancelCause(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-done:
				return
			case <-signals:
			}
			if stop.Err() != nil {
				cancelAbort(errAborted)
			}
			cancelStop()
		}
	}()
	return ending{stop: stop, abort: abort, close: func() {
		signal.Stop(signals)
		close(done)
		cancelStop()
		cancelAbort(nil)
	}}
}

// reminder tells people, a moment after the first signal, what the command still waits for. Call the function that it
// returns when it does not wait any more.
func (a *app) reminder(e ending, topic string) func() bool {
	const moment = time.Second
	return context.AfterFunc(e.stop, func() {
		select {
		case <-time.After(moment):
			a.say("hugebus: topic %q is full: waiting for its subscribers to make room; signal again to give up", topic)
		case <-e.abort.Done():
		}
	})
}

// completeTopics completes the first argument with the broker's topics.
func (a *app) completeTopics(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.topicNames(cmd), cobra.ShellCompDirectiveNoFileComp
}

// completeTopic completes a flag that names a topic.
func (a *app) completeTopic(cmd *cobra.Command, flag string) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.topicNames(cmd), cobra.ShellCompDirectiveNoFileComp
	}))
}

func (a *app) topicNames(cmd *cobra.Command) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Socket: a.socket, Name: cmd.CommandPath(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil // a shell that completes has no place for an error
	}
	defer func() { _ = c.Close() }() // nothing is attached
	topics, err := c.Topics(ctx)
	if err != nil {
		return nil
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return names
}

// completeWords makes a flag complete a fixed set of words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

func completeWait(cmd *cobra.Command) {
	completeWords(cmd, "wait", "adaptive", "spin", "yield", "sleep")
}

func completeCodec(cmd *cobra.Command) { completeWords(cmd, "codec", codec.Names()...) }

func completeFormat(cmd *cobra.Command) {
	var words []string
	for _, f := range pump.Formats {
		words = append(words, string(f))
	}
	completeWords(cmd, "format", words...)
}

// must is for errors that only a mistake in this program can cause, such as a flag that is not there.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// waitFlag adds --wait.
func waitFlag(cmd *cobra.Command, into *string, what string) {
	cmd.Flags().StringVar(into, "wait", "adaptive", "how to wait "+what+": adaptive, spin, yield or sleep")
	completeWait(cmd)
}

// printJSON writes a value as indented JSON.
func (a *app) printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return a.print(string(text) + "\n")
}
