package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/shm"
)

// ScenarioRate is the open loop.
const ScenarioRate = "rate"

// The roles of an open loop.
const (
	RoleRateSend    = "rate/send"
	RoleRateReceive = "rate/receive"
)

// stampSize is the time in front of each payload of an open loop, in bytes: when it was
// to be sent.
const stampSize = 8

// MinRatePayload is the smallest payload of an open loop: a time and a number.
const MinRatePayload = stampSize + MinPayload

// RateParams are what both sides of an open loop are told.
type RateParams struct {
	PeerParams
	// PerSecond is the rate.
	PerSecond float64 `json:"per_s"`
}

// Sent is the result of the sender.
type Sent struct {
	report.Rate
	// Late is how long after its time the last payload was sent, in ns.
	Late int64 `json:"late"`
}

// Received is the result of the receiver.
type Received struct {
	Times *report.Histogram `json:"times"`
	// Late is how long after its time the last payload arrived, in ns.
	Late int64 `json:"late"`
}

func rateRoles() map[string]worker.Role {
	return map[string]worker.Role{
		RoleRateSend:    overLinkOf(link.Front, func(p RateParams) PeerParams { return p.PeerParams }, rateSend),
		RoleRateReceive: overLinkOf(link.Back, func(p RateParams) PeerParams { return p.PeerParams }, rateReceive),
	}
}

// yieldAbove is how far off the next payload must be for others to be let onto the core.
const yieldAbove = 20 * time.Microsecond

// rateSend sends payloads at fixed times, whatever happened to those before: a payload
// that the system held up is sent late, but stamped with when it was to be sent, and
// so are those behind it.
func rateSend(l link.Link, p RateParams) (any, error) {
	c, err := newClock()
	if err != nil {
		return nil, err
	}
	w, buffer := newWriter(p.Size-stampSize, 1), make([]byte, p.Size)
	length := time.Duration(p.Nanoseconds)
	last := uint64(p.PerSecond * length.Seconds())
	each := float64(time.Second) / p.PerSecond
	start := c.now() + time.Millisecond
	dirty := false
	for seq := uint64(0); ; seq++ {
		due := start + time.Duration(float64(seq)*each)
		now := c.now()
		for ; now < due; now = c.now() {
			if dirty {
				dirty = false
				if err := l.Flush(); err != nil {
					return nil, err
				}
			} else if due-now > yieldAbove {
				sys.YieldThread()
			}
		}
		// One that is hopelessly behind is not waited for.
		end := seq >= last || now-start > 2*length
		mark := uint64(0)
		if end {
			mark = endBit
		}
		binary.LittleEndian.PutUint64(buffer, uint64(due))
		prepare(w.one, seq)
		setSeq(w.one, seq|mark)
		copy(buffer[stampSize:], w.one)
		restore(w.one, seq)
		if err := l.Send(buffer); err != nil {
			return nil, err
		}
		dirty = true
		if end {
			sent := Sent{Rate: report.Rate{Frames: int64(seq), Nanoseconds: int64(c.now() - start)}, Late: int64(c.now() - due)}
			return sent, errors.Join(l.Flush(), l.Receive(func([]byte) error { return nil }))
		}
	}
}

// rateReceive takes the time of each payload from when it was to be sent.
func rateReceive(l link.Link, p RateParams) (any, error) {
	c, err := newClock()
	if err != nil {
		return nil, err
	}
	r, got := newReader(p.Size-stampSize, false, false), Received{Times: report.NewHistogram()}
	done := false
	handle := func(b []byte) error {
		if len(b) != p.Size {
			return fmt.Errorf("got a payload of %d bytes instead of %d", len(b), p.Size)
		}
		got.Late = int64(c.now()) - int64(binary.LittleEndian.Uint64(b))
		got.Times.Record(got.Late)
		seq, err := r.check(b[stampSize:])
		done = seq >= endBit
		return err
	}
	for !done {
		if err := l.Receive(handle); err != nil {
			return nil, err
		}
	}
	return got, errors.Join(l.Send(make([]byte, p.Size)), l.Flush())
}

// A rateCase is one rate over one system.
type rateCase struct {
	bus    *Bus // for hugebus
	dir    string
	params RateParams
	result report.Result
	times  []*report.Histogram
	rates  []report.Rate
	behind int
}

// Rates are the cases of an open loop, for each size, rate and system. shape says how hugebus waits, and
// how long a round lasts.
func Rates(dir string, b *Bus, rivals []Rival, sizes []int64, rates []float64, shape Params) []Measured {
	var cases []Measured
	for _, size := range sizes {
		for _, rate := range rates {
			one := func(s link.Spec, variant string, pinned bool) {
				s.Size, s.Limit = int(size), shape.Limit
				c := &rateCase{bus: b, dir: dir, result: report.Result{
					Scenario: ScenarioRate, System: s.System, Variant: variant, PayloadBytes: int(size), TargetPerSecond: rate,
				}}
				c.params = RateParams{PeerParams{Spec: s, Nanoseconds: shape.Nanoseconds, Pinned: pinned}, rate}
				cases = append(cases, c)
			}
			if b != nil {
				one(link.Spec{System: link.Bus, Server: b.Socket(), Wait: shape.Wait}, "Go, "+shape.Wait, shape.Wait == "spin")
			}
			for _, r := range rivals {
				one(link.Spec{System: r.System, Server: r.Server}, r.Variant(), false)
			}
		}
	}
	return cases
}

func (c *rateCase) Name() string {
	return fmt.Sprintf("%s at %s/s, %s", c.result.System, report.Quantity(c.result.TargetPerSecond), shm.FormatSize(int64(c.params.Size)))
}

func (c *rateCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	p := c.params
	if p.Dir, err = os.MkdirTemp(c.dir, "link"); err != nil {
		return fmt.Errorf("bench: folder for a link: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.Dir)) }()
	var sent Sent
	got := Received{Times: report.NewHistogram()}
	if err := team.Run(ctx, worker.Call{Role: RoleRateSend, Params: p, Into: &sent}, worker.Call{Role: RoleRateReceive, Params: p, Into: &got}); err != nil {
		return err
	}
	c.times, c.rates = append(c.times, got.Times), append(c.rates, sent.Rate)
	if behind(p, sent, got) {
		c.behind++
	}
	return nil
}

// behind says whether the system fell behind in a round: the sender did not get rid of
// payloads in time, or the last arrived long after its time.
func behind(p RateParams, sent Sent, got Received) bool {
	tolerated := p.Nanoseconds / 50
	return sent.PerSecond() < 0.98*p.PerSecond || sent.Late > tolerated || got.Late > tolerated
}

func (c *rateCase) Result() report.Result {
	r := c.result
	r.Throughput(c.rates)
	frames := r.Frames
	r.Latency(c.times)
	r.Frames, r.Behind = frames, 2*c.behind > len(c.rates)
	return r
}
