package workload

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/shm"
)

// ScenarioGC is round trips of processes whose garbage collector works.
const ScenarioGC = "gc"

// The roles of such a ping-pong: those without, and something beside them.
const (
	RoleGCPing = "gc/ping"
	RoleGCEcho = "gc/echo"
)

// GCParams are what both sides are told.
type GCParams struct {
	PingPongParams
	// Heap is how many bytes of live objects the process holds; 0: no collection at all.
	Heap int64 `json:"heap"`
	// AllocPerSecond is how many bytes are allocated, and dropped, each second.
	AllocPerSecond int64 `json:"alloc_per_s"`
	// Percent is GOGC.
	Percent int `json:"percent"`
}

// Collected is the result of both sides.
type Collected struct {
	// Times is the ping side's.
	Times *report.Histogram `json:"times"`
	// Cycles is how many collections there were, Pause how long the world stood still in all of them.
	Cycles int64         `json:"cycles"`
	Pause  time.Duration `json:"pause"`
}

func gcRoles() map[string]worker.Role {
	return map[string]worker.Role{
		RoleGCPing: collecting(Ping), RoleGCEcho: collecting(Echo),
	}
}

// An object is what the live heap consists of: 64 bytes and a pointer to the next, as small
// values of an application.
type object struct {
	next *object
	_    [56]byte
}

// A ballast is a live heap, kept from round to round: it takes longer to make than a round.
type ballast struct {
	bytes int64
	// heads are of lists of some thousand objects, so that the collector can share them out.
	heads []*object
}

const listLength = 4096

func (b *ballast) hold(bytes int64) {
	if b.bytes == bytes {
		return
	}
	b.bytes, b.heads = bytes, nil
	for n := int64(0); n < bytes; n += listLength * 64 {
		var head *object
		for range listLength {
			head = &object{next: head}
		}
		b.heads = append(b.heads, head)
	}
}

// garbage keeps the allocations of the load from being left out.
var garbage atomic.Pointer[[]byte]

// mostLitter bounds the time whose allocations are made at once.
const mostLitter = 10 * time.Millisecond

// litter allocates bytes per second until stop is closed.
func litter(perSecond int64, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	const each = 1024
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			// What a busy machine kept it from is not made up for.
			pause := min(now.Sub(last), mostLitter)
			last = now
			for n := int64(pause.Seconds() * float64(perSecond)); n > 0; n -= each {
				b := make([]byte, each)
				garbage.Store(&b)
			}
		}
	}
}

// collecting is a role beside a heap and a steady allocation.
func collecting(role worker.Role) worker.Role {
	var held ballast
	return func(t *worker.Task) (any, error) {
		var p GCParams
		if err := t.Decode(&p); err != nil {
			return nil, err
		}
		var before, after runtime.MemStats
		if p.Heap > 0 {
			held.hold(p.Heap)
			runtime.GC()
			defer debug.SetGCPercent(debug.SetGCPercent(p.Percent))
			stop, done := make(chan struct{}), make(chan struct{})
			go litter(p.AllocPerSecond, stop, done)
			defer func() { close(stop); <-done }()
		}
		runtime.ReadMemStats(&before)
		result, err := role(t)
		runtime.ReadMemStats(&after)
		c := Collected{Cycles: int64(after.NumGC - before.NumGC), Pause: time.Duration(after.PauseTotalNs - before.PauseTotalNs)}
		c.Times, _ = result.(*report.Histogram)
		runtime.KeepAlive(held.heads)
		return c, err
	}
}

// gcCase is a ping-pong with or without a collector that works.
type gcCase struct {
	params GCParams
	result report.Result
	rounds []*report.Histogram
	cycles int64
	pause  time.Duration
}

// GCs are, for each size, round trips without a collector and with one, in both processes.
func GCs(ctx context.Context, b *Bus, p Plan, heap, allocPerSecond int64, percent int) ([]Measured, error) {
	if err := b.createPair(ctx, p); err != nil {
		return nil, err
	}
	var cases []Measured
	p.each(func(shape Params) {
		shape.Socket, shape.Warm = b.Socket(), 1000
		for _, load := range []int64{0, heap} {
			c := &gcCase{params: GCParams{
				PingPongParams: PingPongParams{Params: shape, There: "there", Back: "back"},
				Heap:           load, AllocPerSecond: allocPerSecond, Percent: percent,
			}, result: p.result(ScenarioGC, shape)}
			c.result.Variant = "no collection"
			if load > 0 {
				c.result.Variant = fmt.Sprintf("heap %s, %s/s, GOGC=%d", shm.FormatSize(heap), shm.FormatSize(allocPerSecond), percent)
			}
			cases = append(cases, c)
		}
	})
	return cases, nil
}

func (c *gcCase) Name() string { return "round trip, " + c.result.Variant }

func (c *gcCase) Round(ctx context.Context, team *worker.Team, _ int) error {
	ping, echo := Collected{Times: report.NewHistogram()}, Collected{}
	if err := team.Run(ctx, worker.Call{Role: RoleGCPing, Params: c.params, Into: &ping}, worker.Call{Role: RoleGCEcho, Params: c.params, Into: &echo}); err != nil {
		return err
	}
	c.rounds = append(c.rounds, ping.Times)
	c.cycles += ping.Cycles + echo.Cycles
	c.pause += ping.Pause + echo.Pause
	return nil
}

func (c *gcCase) Result() report.Result {
	r := c.result
	r.Latency(c.rounds)
	r.GCCycles = &c.cycles
	r.GCPause = int64(c.pause) / max(c.cycles, 1)
	return r
}
