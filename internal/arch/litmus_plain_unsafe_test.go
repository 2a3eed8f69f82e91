//go:build !race

package arch

import (
	"sync/atomic"
	"testing"
	"unsafe"
)

// The same with plain loads and stores, as payloads have, which only StoreStore and
// LoadLoad order. (These are races on purpose, so not for the race detector.)

// load and store are one plain access each. Sound: an atomic.Uint64 is one aligned word.
//
//go:noinline
func load(p *atomic.Uint64) uint64 { return *(*uint64)(unsafe.Pointer(p)) }

//go:noinline
func store(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }

// TestPayloadBeforeStamp: SYNC(commit) as a publisher and a lossy reader have it.
func TestPayloadBeforeStamp(t *testing.T) {
	passed(t,
		func(w *words, round uint64) (bool, bool) {
			store(&w.x, round) // payload
			StoreRelease(&w.y, round)
			return false, false
		},
		func(w *words, round uint64) (bool, bool) {
			y := load(&w.y)
			LoadLoad()
			x := load(&w.x)
			return x == round, y == round
		})
}

// TestTailBeforePayload: SYNC(tail). A lossy reader that sees a byte of a new claim sees the
// tail that was moved for it.
func TestTailBeforePayload(t *testing.T) {
	for name, moveTail := range map[string]func(p *atomic.Uint64, v uint64){
		"compare-and-swap": func(p *atomic.Uint64, v uint64) { p.CompareAndSwap(load(p), v) },
		"exclusive":        StoreRelease,
	} {
		t.Run(name, func(t *testing.T) {
			passed(t,
				func(w *words, round uint64) (bool, bool) {
					moveTail(&w.x, round)
					StoreStore()
					store(&w.y, round) // payload
					return false, false
				},
				func(w *words, round uint64) (bool, bool) {
					y := load(&w.y)
					LoadLoad()
					x := w.x.Load()
					return x == round, y == round
				})
		})
	}
}

// TestReadBeforeRelease: load buffering. A reader's payload was read before its cursor lets
// a publisher write there (SYNC(cursor)): no publisher's store is seen by a load that came
// before the cursor that allowed it.
func TestReadBeforeRelease(t *testing.T) {
	seen := litmus(
		func(w *words, round uint64) (bool, bool) { // the reader: payload, then cursor
			payload := load(&w.x)
			StoreRelease(&w.y, round)
			return payload == round, false
		},
		func(w *words, round uint64) (bool, bool) { // the publisher: cursor, then payload
			if w.y.Load() != round {
				return false, false
			}
			store(&w.x, round)
			return false, true
		})
	t.Logf("the cursor was seen in time %d of %d rounds", seen[[4]bool{3: true}], rounds)
	if n := seen[[4]bool{true, false, false, true}]; n != 0 {
		t.Errorf("a reader saw what its own cursor allowed later %d times", n)
	}
}
