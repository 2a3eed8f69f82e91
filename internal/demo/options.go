package demo

import (
	"fmt"
	"log/slog"
	"math/bits"
	"os/exec"

	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// Options say what a run is to do.
type Options struct {
	// Frames is how many are sent, MinFrames to MaxFrames.
	Frames uint64
	// Capacity and Pages are the topic's; see client.TopicOptions.
	Capacity int64
	Pages    string
	// Listen is where the ingress listens; port 0 takes a free one.
	Listen string
	// Child makes the command of a process that calls Child with these two words.
	Child func(kind, arg string) *exec.Cmd
	// KeepGoing lets a run go on without a worker that died, as long as there is another.
	KeepGoing bool
	// Progress hears some ten times a second how many frames of all have arrived everywhere; nil: nobody does.
	Progress func(done, all uint64)
	// Began hears the pids of the readers, the workers first, when frames begin to flow; nil: nobody does.
	Began func(pids []int)
	// Logger hears warnings of the broker and the ingress.
	Logger *slog.Logger
}

const (
	// DefaultFrames is what the README promises.
	DefaultFrames = 1_000_000
	// MinFrames is enough for each part to have some.
	MinFrames = 100
	// MaxFrames bounds the memory of the tallies: 6 bits a frame.
	MaxFrames = 1_000_000_000
	// DefaultCapacity is modest: a demo should not fail for want of memory.
	DefaultCapacity = 16 << 20

	// pacedRate is the steady rate of the last part, in frames a second. It leaves a machine with two processors,
	// which five processes share here, enough time between.
	pacedRate = 10_000
	// mostPaced and mostCounted bound the last and the second part: 2 s, and what ptrace needs some 2 s for.
	mostPaced   = 20_000
	mostCounted = 100_000

	workers = 2
)

// Check tells what is wrong with o, as far as that can be told before the run.
func (o Options) Check() error {
	switch {
	case o.Frames < MinFrames || o.Frames > MaxFrames:
		return fmt.Errorf("%d frames: use %d to %d", o.Frames, MinFrames, MaxFrames)
	case o.Capacity < ring.MinCapacity || bits.OnesCount64(uint64(o.Capacity)) != 1:
		return fmt.Errorf("capacity %s is not a power of two of at least %s", shm.FormatSize(o.Capacity), shm.FormatSize(ring.MinCapacity))
	case int64(ring.MaxPayload(uint64(o.Capacity))) < maxPayload:
		return fmt.Errorf("capacity %s is too small for the demo's frames of up to %d bytes: use %s or more",
			shm.FormatSize(o.Capacity), maxPayload, shm.FormatSize(int64(ring.CapacityFor(maxPayload))))
	}
	return nil
}

// parts says where the parts of a run end: frames below full are sent at full speed, below counted while system calls
// are counted, and the rest at a steady rate.
func (o Options) parts() (full, counted uint64) {
	counted = o.Frames - min(o.Frames/10, mostPaced)
	return counted - min(o.Frames/10, mostCounted), counted
}
