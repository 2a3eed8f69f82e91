// Package worker runs the two or more processes of a measurement: copies of this
// program, one on each core, that stay for the whole run and do one task after another.
//
// Parent and worker speak JSON lines over the worker's standard input and output:
//
//	worker              parent
//	hello      ─────▶              once: on which core it is
//	           ◀─────   task       a role and its parameters
//	ready      ─────▶              set up: attached, memory mapped
//	           ◀─────   go         when all workers of the task are ready
//	done       ─────▶              with the result; or failed, instead of ready or done
//
// A worker whose parent is gone reads the end of its input and exits, whatever it is
// doing. A parent whose worker is gone reads the end of its output and says so.
package worker

import "encoding/json"

// A message is one line, either way.
type message struct {
	Kind   kind            `json:"kind"`
	Role   string          `json:"role,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	// Error says why it failed, or, in a hello, why the worker is not pinned.
	Error string `json:"error,omitempty"`
}

type kind string

const (
	kindHello  kind = "hello"
	kindTask   kind = "task"
	kindReady  kind = "ready"
	kindGo     kind = "go"
	kindDone   kind = "done"
	kindFailed kind = "failed"
)
