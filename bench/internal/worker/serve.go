package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/sys"
)

// Unpinned is the core of a worker that may run anywhere.
const Unpinned = -1

// firstFile is the descriptor of the first of the files that the parent handed over.
const firstFile = 3

// A Role is what a worker can do. It sets itself up, calls Await, does its work, and
// returns what is to be reported, as JSON. It runs locked to a thread, pinned to the
// worker's core, with the garbage collector off.
type Role func(*Task) (any, error)

// Join makes one set of roles of several.
func Join(sets ...map[string]Role) map[string]Role {
	all := map[string]Role{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}

// A Task is one call of a role, for the goroutine that runs it.
type Task struct {
	params json.RawMessage
	out    *json.Encoder
	start  <-chan message
}

// Decode reads the task's parameters into v.
func (t *Task) Decode(v any) error {
	if err := json.Unmarshal(t.params, v); err != nil {
		return fmt.Errorf("worker: parameters %s: %w", t.params, err)
	}
	return nil
}

// Await says that this worker is set up, and blocks until all are.
func (t *Task) Await() error {
	if err := t.out.Encode(message{Kind: kindReady}); err != nil {
		return fmt.Errorf("worker: say ready: %w", err)
	}
	if m, ok := <-t.start; !ok || m.Kind != kindGo {
		return fmt.Errorf("worker: got %q instead of %q", m.Kind, kindGo)
	}
	return nil
}

// File opens the i-th of the files that the parent handed over, which stay open for
// later tasks. The caller closes it.
func (t *Task) File(i int) (*os.File, error) {
	fd, err := sys.Dup(firstFile + i)
	if err != nil {
		return nil, fmt.Errorf("worker: file %d of the parent: %w", i, err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("file %d of the parent", i)), nil
}

// Serve is a worker's main: it does the tasks that come in, on the given core, until
// the input ends. If that happens in the middle of a task, the parent is gone, and the
// process exits with status 1.
func Serve(roles map[string]Role, core int, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	hello := message{Kind: kindHello}
	if core != Unpinned {
		if err := sys.PinThread(core); err != nil {
			hello.Error = err.Error()
		}
	}
	lines := json.NewEncoder(out)
	if err := lines.Encode(hello); err != nil {
		return fmt.Errorf("worker: say hello: %w", err)
	}
	var busy atomic.Bool
	incoming := listen(in, &busy)
	for m := range incoming {
		role, ok := roles[m.Role]
		if m.Kind != kindTask || !ok {
			return fmt.Errorf("worker: got %q for role %q instead of a task", m.Kind, m.Role)
		}
		busy.Store(true)
		reply := run(role, &Task{params: m.Params, out: lines, start: incoming})
		busy.Store(false)
		runtime.GC() // between tasks, so that none has to
		if err := lines.Encode(reply); err != nil {
			return fmt.Errorf("worker: reply: %w", err)
		}
	}
	return nil
}

// listen decodes lines until the input ends. It is a goroutine of its own, so that the
// end is noticed while a task spins.
func listen(in io.Reader, busy *atomic.Bool) <-chan message {
	incoming := make(chan message)
	go func() {
		defer close(incoming)
		d := json.NewDecoder(in)
		for {
			var m message
			if err := d.Decode(&m); err != nil {
				if !errors.Is(err, io.EOF) {
					fmt.Fprintf(os.Stderr, "bench: worker: read from the parent: %v\n", err)
				}
				if busy.Load() {
					os.Exit(1) // the parent is gone: nobody waits for the result
				}
				return
			}
			incoming <- m
		}
	}()
	return incoming
}

// run calls role and makes the reply.
func run(role Role, t *Task) message {
	result, err := role(t)
	if err != nil {
		return message{Kind: kindFailed, Error: err.Error()}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return message{Kind: kindFailed, Error: fmt.Sprintf("worker: encode the result: %v", err)}
	}
	return message{Kind: kindDone, Result: raw}
}
