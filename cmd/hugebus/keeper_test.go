package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["upgrade"] = upgrade
	scenarios["kill and shutdown"] = killAndShutdown
	scenarios["shutdown without a broker"] = shutdownOfAKeeper
	scenarios["no keeper"] = noKeeper
}

// endKeeper ends what a failed scenario leaves.
func (w *world) endKeeper() {
	w.Cleanup(func() {
		testutil.Eventually(w, "the keeper is gone", func() bool {
			return errors.Is(keeper.Shutdown(context.Background(), w.socket+keeper.SocketSuffix), keeper.ErrNotRunning)
		})
	})
}

// upgrade stops the broker by SIGTERM while a subscriber listens, and starts another.
func upgrade(w *world) {
	w.endKeeper()
	first := w.keptBroker()
	w.ok("topic", "create", "orders", "--capacity", "64KiB", "--pages", "4KiB")
	sub, file := w.into("out", "sub", "orders", "--count", "2")
	w.attached("orders", "a subscriber", func(t client.TopicInfo) bool { return t.SubscriberCount == 1 && !t.Subscribers[0].Joining })
	w.publish("one")
	before, _ := w.show("orders")
	first.terminate()
	second := w.keptBroker()
	after, ok := w.show("orders")
	if !ok || before.ID != after.ID || after.SubscriberCount != 1 || after.Subscribers[0].PID != before.Subscribers[0].PID {
		w.Errorf("before %+v, after %+v", before, after)
	}
	w.publish("two")
	sub.succeed()
	if got := w.read(file); got != "one\ntwo\n" {
		w.Errorf("the subscriber read %q", got)
	}
	w.ok("shutdown")
	second.succeed()
}

func (w *world) publish(line string) {
	w.Helper()
	if r := w.run(line+"\n", "pub", "orders"); r.code != 0 {
		w.Fatalf("pub: %+v", r)
	}
}

// killAndShutdown kills the broker, and ends the next one with everything.
func killAndShutdown(w *world) {
	w.endKeeper()
	first := w.keptBroker()
	w.ok("topic", "create", "orders", "--capacity", "64KiB", "--pages", "4KiB")
	if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		w.Fatal(err)
	}
	first.wait()
	// Without a keeper of its own the next broker must not take the socket from the one that there is.
	if r := w.run("", "broker", "--no-keeper"); r.code != 1 || !strings.Contains(r.err, "hugebus shutdown") {
		w.Errorf("a broker without keeper beside a keeper: %+v", r)
	}
	second := w.keptBroker()
	if _, ok := w.show("orders"); !ok {
		w.Error("the topic is gone")
	}
	w.ok("shutdown")
	second.succeed()
	w.nothingKept()
	third := w.keptBroker()
	if got := w.ok("topic", "ls"); strings.Contains(got, "orders") {
		w.Errorf("after the shutdown: %s", got)
	}
	w.ok("shutdown")
	third.succeed()
}

func shutdownOfAKeeper(w *world) {
	w.endKeeper()
	b := w.keptBroker()
	w.ok("topic", "create", "orders", "--capacity", "64KiB", "--pages", "4KiB")
	b.terminate()
	w.ok("shutdown")
	w.nothingKept()
	if r := w.run("", "shutdown"); r.code != 1 || !strings.Contains(r.err, "no broker and no keeper at "+w.socket) {
		w.Errorf("nothing to shut down: %+v", r)
	}
}

// nothingKept looks for a keeper, and for its socket and the broker's.
func (w *world) nothingKept() {
	w.Helper()
	if err := keeper.Shutdown(context.Background(), w.socket+keeper.SocketSuffix); !errors.Is(err, keeper.ErrNotRunning) {
		w.Errorf("the keeper: %v", err)
	}
	for _, file := range []string{w.socket, w.socket + keeper.SocketSuffix} {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			w.Errorf("%s: %v", file, err)
		}
	}
}

func noKeeper(w *world) {
	b := w.broker()
	w.ok("topic", "create", "orders", "--capacity", "64KiB", "--pages", "4KiB")
	b.terminate()
	w.nothingKept()
	b = w.broker()
	if _, ok := w.show("orders"); ok {
		w.Error("the topic is there still")
	}
	w.ok("shutdown")
	b.succeed()
}
