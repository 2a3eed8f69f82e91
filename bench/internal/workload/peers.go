package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hugebus/hugebus/bench/internal/foreign"
	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/shm"
)

// Channel is what results call a Go channel in one process.
const Channel = "go-channel"

// A Rival is a system to be compared with the bus.
type Rival struct {
	// System is its name: one of package link's, package foreign's, or Channel.
	System string
	// Server is where its server listens, if it has one.
	Server string
	// Program is the helper that package foreign built, for its systems.
	Program string
}

// Variant says how it is used, in a few words.
func (r Rival) Variant() string {
	switch r.System {
	case Channel:
		return "one process"
	case foreign.ZeroMQ:
		return "C, PAIR over ipc"
	case foreign.Iceoryx:
		return "C, polling"
	case link.NATS:
		return "server, tcp"
	case link.Redis:
		return "server, unix, pub/sub"
	}
	return "Go"
}

// peerWarm is how many payloads go over a link before the clock runs.
const peerWarm = 200

// peerPatience is how long a round may take besides what is timed.
const peerPatience = time.Minute

// A peerCase is one workload over one rival. Each round has a link of its own.
type peerCase struct {
	rival   Rival
	dir     string // of all links
	params  PeerParams
	streams bool
	result  report.Result
	times   []*report.Histogram
	rates   []report.Rate
}

// Peers are the cases of the rivals for each size: round trips and, for each batch, streams. dir
// is a folder for their links.
func Peers(dir string, rivals []Rival, p Plan) []Measured {
	var cases []Measured
	for _, size := range p.Sizes {
		for _, r := range rivals {
			if most, _ := link.MaxSize(r.System); most != 0 && size > int64(most) {
				continue
			}
			one := func(scenario string, batch int) *peerCase {
				return &peerCase{
					rival: r, dir: dir, streams: scenario == ScenarioThroughput,
					params: PeerParams{
						Spec: link.Spec{System: r.System, Server: r.Server, Size: int(size)}, Batch: batch,
						Count: p.Shape.Count, Nanoseconds: p.Shape.Nanoseconds, Warm: peerWarm,
					},
					result: report.Result{Scenario: scenario, System: r.System, Variant: r.Variant(), PayloadBytes: int(size), Batch: batch},
				}
			}
			cases = append(cases, one(ScenarioLatency, 1))
			for _, batch := range p.Batches {
				if batch == 1 || r.batches() {
					cases = append(cases, one(ScenarioThroughput, batch))
				}
			}
		}
	}
	return cases
}

// batches reports whether it makes a difference how many payloads go between two flushes.
func (r Rival) batches() bool {
	switch r.System {
	case link.Pipe, link.Unix, link.TCP, link.Redis:
		return true
	}
	return false
}

func (c *peerCase) Name() string {
	return fmt.Sprintf("%s %s, %s", c.rival.System, c.result.Scenario, shm.FormatSize(int64(c.params.Size)))
}

func (c *peerCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	p := c.params
	if p.Dir, err = os.MkdirTemp(c.dir, "link"); err != nil {
		return fmt.Errorf("bench: folder for a link: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.Dir)) }()
	h, rate := report.NewHistogram(), report.Rate{}
	// A foreign library that hangs is to end with an error that names it.
	ctx, stop := context.WithTimeoutCause(ctx, peerPatience+3*time.Duration(p.Nanoseconds),
		fmt.Errorf("bench: %s hangs: leave it out with --systems", c.rival.System))
	defer stop()
	if err := team.Run(ctx, c.calls(p, h, &rate)...); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if c.streams {
		c.rates = append(c.rates, rate)
	} else {
		c.times = append(c.times, h)
	}
	return nil
}

// calls are what the workers of a round are to do.
func (c *peerCase) calls(p PeerParams, h *report.Histogram, rate *report.Rate) []worker.Call {
	front, back, both := RolePeerPing, RolePeerEcho, RoleChannelPing
	if c.streams {
		front, back, both = RolePeerPublish, RolePeerConsume, RoleChannelStream
	}
	var params any = p
	switch {
	case c.rival.Program != "":
		front, back = foreign.RolePing, foreign.RoleEcho
		if c.streams {
			front, back = foreign.RolePublish, foreign.RoleConsume
		}
		params = foreign.Params{
			Program: c.rival.Program, Name: filepath.Join(p.Dir, filepath.Base(p.Dir)), Size: p.Size,
			Count: p.Count, Nanoseconds: p.Nanoseconds, Warm: p.Warm, Pinned: c.rival.System == foreign.Iceoryx,
		}
	case c.rival.System == Channel:
		call := worker.Call{Role: both, Params: params, Into: h}
		if c.streams {
			call.Into = rate
		}
		return []worker.Call{call}
	}
	if c.streams {
		return []worker.Call{{Role: front, Params: params}, {Role: back, Params: params, Into: rate}}
	}
	return []worker.Call{{Role: front, Params: params, Into: h}, {Role: back, Params: params}}
}

func (c *peerCase) Result() report.Result {
	r := c.result
	if c.streams {
		r.Throughput(c.rates)
	} else {
		r.Latency(c.times)
	}
	return r
}

// Sleepers are round trips of processes that sleep between payloads: over the bus, by goroutines and by a
// thread that is tied to a core, and over a Unix socket. The bus has the topics of a link.
func Sleepers(dir string, b *Bus, p Plan) []Measured {
	var cases []Measured
	p.each(func(shape Params) {
		for _, way := range []struct {
			spec    link.Spec
			variant string
			pinned  bool
		}{
			{link.Spec{System: link.Bus, Server: b.Socket(), Wait: "sleep"}, "Go, sleep", false},
			{link.Spec{System: link.Bus, Server: b.Socket(), Wait: "sleep"}, "Go, sleep, pinned threads", true},
			{link.Spec{System: link.Unix}, "Go", false},
			{link.Spec{System: link.Unix}, "Go, pinned threads", true},
		} {
			way.spec.Size, way.spec.Limit = shape.Size, shape.Limit
			cases = append(cases, &peerCase{
				rival: Rival{System: way.spec.System}, dir: dir,
				params: PeerParams{Spec: way.spec, Batch: 1, Count: shape.Count, Nanoseconds: shape.Nanoseconds, Warm: peerWarm, Pinned: way.pinned},
				result: report.Result{Scenario: ScenarioLatency, System: way.spec.System, Variant: way.variant, PayloadBytes: shape.Size, Batch: 1},
			})
		}
	})
	return cases
}
