//go:build !race

package ring

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// FuzzScribble is FuzzHostileMemory while another goroutine writes all the time. (Not under
// the race detector: the writes are races, on purpose. Each is of one aligned word, which is
// what a peer's store is.)
func FuzzScribble(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, input []byte, high bool) {
		if len(input) > 400*recordSize {
			t.Skip("longer than it needs to be")
		}
		watchdog(t, time.Minute)
		start := starts[1]
		if high {
			start = starts[2]
		}
		h := newHostile(t, start)
		var stop atomic.Bool
		done := make(chan struct{})
		seed := uint64(len(input))
		for _, b := range input {
			seed = seed*31 + uint64(b)
		}
		go func() {
			defer close(done)
			scribble(h, rand.New(rand.NewPCG(seed, 1)), &stop)
		}()
		h.script(input)
		h.script(input)
		stop.Store(true)
		<-done
	})
}

func scribble(h *hostile, rng *rand.Rand, stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		what, where, value := byte(rng.Uint32()), uint16(rng.Uint32()), rng.Uint64()
		if rng.IntN(3) == 0 {
			value = 1 << rng.IntN(64)
		}
		h.write(what, where, value)
	}
}

// TestScribble is some seconds of it, with inputs at random.
func TestScribble(t *testing.T) {
	watchdog(t, 5*time.Minute)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		h := newHostile(t, starts[rng.IntN(3)])
		var stop atomic.Bool
		done := make(chan struct{})
		seed := rng.Uint64()
		go func() {
			defer close(done)
			scribble(h, rand.New(rand.NewPCG(seed, 1)), &stop)
		}()
		for range 2000 {
			h.do(byte(rng.IntN(16)), uint16(rng.Uint32()), rng.Uint64())
		}
		stop.Store(true)
		<-done
	}
}
