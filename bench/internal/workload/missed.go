package workload

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
)

// ScenarioMissed counts missed wake-ups.
const ScenarioMissed = "missed-wakeups"

// RoleSleeper is either side of two that sleep at random times.
const RoleSleeper = "missed/sleep"

// SleeperParams are what both sides are told.
type SleeperParams struct {
	Params
	Publish   string `json:"publish"`
	Subscribe string `json:"subscribe"`
	// First is the side that publishes first.
	First bool `json:"first"`
	// Trips is how many frames each side publishes.
	Trips uint64 `json:"trips"`
	Seed  uint64 `json:"seed"`
}

// Slept is how often a side went to sleep.
type Slept struct {
	Sleeps int64 `json:"sleeps"`
}

func missedRoles() map[string]worker.Role {
	return map[string]worker.Role{RoleSleeper: worker.Application(sleeper)}
}

// sleeper answers each frame after a random time, from nothing to somewhat longer than it takes to
// go to sleep, so that frames meet the other side at any step of that.
func sleeper(t *worker.Task) (any, error) {
	var p SleeperParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	e, err := attach(t, p.Params, p.Publish, p.Subscribe)
	if err != nil {
		return nil, err
	}
	slept, err := sleepAndAnswer(e, p)
	return slept, joinClose(err, e)
}

// mostBusy bounds the random time before an answer.
const mostBusy = 40 * time.Microsecond

func sleepAndAnswer(e *end, p SleeperParams) (Slept, error) {
	var slept Slept
	s, r := newSender(e), newReader(p.Size, false, false)
	random := rand.New(rand.NewPCG(p.Seed, 1))
	handle := func(f client.Frame) error {
		_, err := r.check(f.Payload)
		return err
	}
	answer := func() error {
		until := time.Duration(random.Int64N(int64(mostBusy)))
		for start := time.Now(); time.Since(start) < until; {
			continue
		}
		return s.send(1, 0)
	}
	if p.First {
		if err := answer(); err != nil {
			return slept, err
		}
	}
	for r.want < p.Trips {
		n, err := e.sub.Poll(1, handle)
		if err != nil {
			return slept, err
		}
		if n == 0 {
			slept.Sleeps++
			if err := e.sub.Wait(e.ctx); err != nil {
				return slept, err
			}
			continue
		}
		if s.next < p.Trips {
			if err := answer(); err != nil {
				return slept, err
			}
		}
	}
	return slept, nil
}

// missedCase lets two processes wake each other until they have slept so often.
type missedCase struct {
	bus    *Bus
	params SleeperParams
	took   time.Duration
	sleeps int64
	missed int64
}

// Missed is the case of sleeping n times, of both sides together. b is a watched bus.
func Missed(b *Bus, n int64, size int64, seed uint64) Measured {
	shape := Params{Socket: b.Socket(), Size: int(size), Batch: 1, Wait: client.WaitSleep.String(), Limit: 1}
	return &missedCase{bus: b, params: SleeperParams{Params: shape, Trips: uint64(max(n/2, 1)), Seed: seed}}
}

func (c *missedCase) Name() string {
	return fmt.Sprintf("missed wake-ups, %d sleeps", 2*c.params.Trips)
}

// Round does all of it the first time, and nothing later.
func (c *missedCase) Round(ctx context.Context, team *worker.Team, n int) error {
	if n > 0 {
		return nil
	}
	before, err := c.bus.MissedWakeups(ctx)
	if err != nil {
		return err
	}
	a := c.params
	if a.Publish, err = c.bus.Fresh(ctx, client.TopicOptions{Capacity: 1 << 20}); err != nil {
		return err
	}
	if a.Subscribe, err = c.bus.Fresh(ctx, client.TopicOptions{Capacity: 1 << 20}); err != nil {
		return err
	}
	b := a
	a.First, b.Publish, b.Subscribe, b.Seed = true, a.Subscribe, a.Publish, a.Seed+1
	var of [2]Slept
	start := time.Now()
	if err := team.Run(ctx, worker.Call{Role: RoleSleeper, Params: a, Into: &of[0]}, worker.Call{Role: RoleSleeper, Params: b, Into: &of[1]}); err != nil {
		return err
	}
	c.took, c.sleeps = time.Since(start), of[0].Sleeps+of[1].Sleeps
	after, err := c.bus.MissedWakeups(ctx)
	c.missed = after - before
	return err
}

func (c *missedCase) Result() report.Result {
	rate := report.Rate{Frames: 2 * int64(c.params.Trips), Nanoseconds: int64(c.took)}
	return report.Result{
		Scenario: ScenarioMissed, System: System, Variant: "Go, sleep", PayloadBytes: c.params.Size, Rounds: 1,
		Frames: rate.Frames, FramesPerSecond: rate.PerSecond(), Sleeps: c.sleeps, MissedWakeups: &c.missed,
	}
}

// MissedWakeups is how often, since the broker's start, a bounded sleep on any topic ran out with
// something to read: what the broker's figures say.
func (b *Bus) MissedWakeups(ctx context.Context) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.broker.MetricsAddr()+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	// Its connection is not kept: the bus may be closed any time.
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, fmt.Errorf("bench: the broker's figures: %w", err)
	}
	defer answer.Body.Close()
	return sumMetric(answer.Body, "hugebus_missed_wakeups_total")
}

// sumMetric adds up one metric of all labels, in Prometheus' text form.
func sumMetric(r io.Reader, name string) (int64, error) {
	sum := int64(0)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("bench: figure %s%s: %w", name, rest, err)
		}
		sum += int64(value)
	}
	return sum, lines.Err()
}
