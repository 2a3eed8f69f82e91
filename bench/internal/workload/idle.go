package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
)

// Scenarios of waiting.
const (
	ScenarioIdle = "idle"
	ScenarioCPU  = "cpu"
)

// The roles of waiting.
const (
	RoleIdle       = "idle/wait"
	RoleCPUSend    = "cpu/send"
	RoleCPUReceive = "cpu/receive"
)

func idleRoles() map[string]worker.Role {
	return map[string]worker.Role{
		RoleIdle:       worker.Application(idle),
		RoleCPUSend:    overLinkOf(link.Front, func(p RateParams) PeerParams { return p.PeerParams }, cpuSend),
		RoleCPUReceive: overLinkOf(link.Back, func(p RateParams) PeerParams { return p.PeerParams }, cpuReceive),
	}
}

// IdleParams are what a process is told that waits for frames that do not come.
type IdleParams struct {
	Socket        string        `json:"socket"`
	Topics        []string      `json:"topics"`
	Subscriptions int           `json:"subscriptions"`
	Wait          string        `json:"wait"`
	Settle        time.Duration `json:"settle"`
	Duration      time.Duration `json:"duration"`
}

// Idled is what a waiting process used.
type Idled struct {
	CPU     time.Duration `json:"cpu"`
	Threads int           `json:"threads"`
}

// idle subscribes, waits in every subscription, and looks what that costs.
func idle(t *worker.Task) (_ any, err error) {
	var p IdleParams
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	how, err := client.ParseWait(p.Wait)
	if err != nil {
		return nil, err
	}
	if _, err := sys.RaiseFileLimit(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c, err := client.Dial(ctx, client.Options{Socket: p.Socket, Name: "bench"})
	if err != nil {
		stop()
		return nil, err
	}
	var waiting sync.WaitGroup
	defer func() {
		stop()
		waiting.Wait()
		err = errors.Join(err, c.Close())
	}()
	for i := range p.Subscriptions {
		sub, err := c.Subscriber(ctx, p.Topics[i%len(p.Topics)], client.SubscriberOptions{Wait: how})
		if err != nil {
			return nil, err
		}
		waiting.Go(func() { _ = sub.Wait(ctx) }) // until stop
	}
	if err := t.Await(); err != nil {
		return nil, err
	}
	time.Sleep(p.Settle)
	before, err := sys.ProcessUsage()
	if err != nil {
		return nil, err
	}
	time.Sleep(p.Duration)
	after, err := sys.ProcessUsage()
	if err != nil {
		return nil, err
	}
	threads, err := threads("/proc/self/status")
	return Idled{CPU: after.CPU - before.CPU, Threads: threads}, err
}

// threads reads how many threads a process has.
func threads(status string) (int, error) {
	text, err := os.ReadFile(status)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Threads:"); ok {
			n := 0
			_, err := fmt.Sscan(rest, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("%s has no line Threads", status)
}

// subscriberSlots is how many subscriptions a topic takes by default.
const subscriberSlots = 64

// An idleCase is a process with so many subscriptions that nothing comes for.
type idleCase struct {
	bus    *Bus
	params IdleParams
	result report.Result
	cpu    []float64 // as shares of one core
	broker []float64
}

// Idles are the cases of waiting for nothing, for each number of subscriptions in one process.
func Idles(b *Bus, subscriptions []int, wait string, d time.Duration) []Measured {
	var cases []Measured
	for _, n := range subscriptions {
		cases = append(cases, &idleCase{
			bus: b, params: IdleParams{Socket: b.Socket(), Subscriptions: n, Wait: wait, Settle: 100 * time.Millisecond, Duration: d},
			result: report.Result{Scenario: ScenarioIdle, System: System, Variant: "Go, " + wait, Subscribers: n},
		})
	}
	return cases
}

func (c *idleCase) Name() string {
	return fmt.Sprintf("idle, %d subscriptions", c.params.Subscriptions)
}

// Round measures once, the first time: it takes long, and says the same every time.
func (c *idleCase) Round(ctx context.Context, team *worker.Team, n int) error {
	if n > 0 {
		return nil
	}
	p := c.params
	for range (p.Subscriptions + subscriberSlots - 1) / subscriberSlots {
		name, err := c.bus.Fresh(ctx, client.TopicOptions{Capacity: 64 << 10, Pages: "4KiB"})
		if err != nil {
			return err
		}
		p.Topics = append(p.Topics, name)
	}
	// The broker is in this process, which does nothing else meanwhile.
	var got Idled
	quiet := quarters(p.Duration)
	err := team.Run(ctx, worker.Call{Role: RoleIdle, Params: p, Into: &got})
	broker, usageErr := quiet()
	if err := errors.Join(err, usageErr); err != nil {
		return err
	}
	c.cpu, c.broker = append(c.cpu, got.CPU.Seconds()/p.Duration.Seconds()), append(c.broker, broker)
	c.result.Threads = got.Threads
	for _, name := range p.Topics {
		err = errors.Join(err, c.bus.Remove(ctx, name))
	}
	return err
}

func (c *idleCase) Result() report.Result {
	r := c.result
	r.Rounds = len(c.cpu)
	used, broker := report.Share(report.Median(c.cpu)), report.Share(report.Median(c.broker))
	r.CPU, r.BrokerCPU = &used, &broker
	return r
}

// quarters begins to look at what this process uses, and returns a function that ends it and says
// the least share of a core in any quarter of d: of four and more that pass while a worker is
// idle for d, one at least has nothing else in it.
func quarters(d time.Duration) func() (float64, error) {
	type outcome struct {
		least float64
		err   error
	}
	stop, result := make(chan struct{}), make(chan outcome)
	go func() {
		tick := time.NewTicker(d / 4)
		defer tick.Stop()
		o := outcome{least: 1}
		last, err := sys.ProcessUsage()
		for o.err = err; ; {
			select {
			case <-stop:
				result <- o
				return
			case <-tick.C:
				now, err := sys.ProcessUsage()
				o.least, o.err = min(o.least, (now.CPU-last.CPU).Seconds()/(d/4).Seconds()), errors.Join(o.err, err)
				last = now
			}
		}
	}()
	return func() (float64, error) {
		close(stop)
		o := <-result
		return o.least, o.err
	}
}

// cpuSend sends payloads at a rate, and sleeps in between: the result is the processor time used.
func cpuSend(l link.Link, p RateParams) (any, error) {
	s := &linkSender{link: l, w: newWriter(p.Size, 1)}
	each := time.Duration(float64(time.Second) / p.PerSecond)
	count := uint64(p.PerSecond * time.Duration(p.Nanoseconds).Seconds())
	before, err := sys.ProcessUsage()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for s.next < count {
		time.Sleep(time.Duration(s.next)*each - time.Since(start))
		if err := errors.Join(s.send(0), l.Flush()); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(s.send(endBit), l.Flush(), l.Receive(func([]byte) error { return nil })); err != nil {
		return nil, err
	}
	after, err := sys.ProcessUsage()
	return Used{CPU: after.CPU - before.CPU, Time: time.Since(start), Frames: int64(s.next)}, err
}

// Used is what one side of a stream used.
type Used struct {
	CPU    time.Duration `json:"cpu"`
	Time   time.Duration `json:"time"`
	Frames int64         `json:"frames"`
}

// cpuReceive reads that stream; the result is the processor time used.
func cpuReceive(l link.Link, p RateParams) (any, error) {
	r := newReader(p.Size, false, false)
	before, err := sys.ProcessUsage()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for done := false; !done; {
		err := l.Receive(func(b []byte) error {
			seq, err := r.check(b)
			done = seq >= endBit
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	after, err := sys.ProcessUsage()
	used := Used{CPU: after.CPU - before.CPU, Time: time.Since(start), Frames: int64(r.want)}
	return used, errors.Join(err, l.Send(make([]byte, p.Size)), l.Flush())
}

// A cpuCase is a slow stream over one system.
type cpuCase struct {
	dir    string
	params RateParams
	result report.Result
	cpu    []float64 // of both sides, as a share of one core
	rates  []report.Rate
}

// CPUs are the cases of a slow stream to a sleeping reader: the bus, and a Unix socket.
func CPUs(dir string, b *Bus, size int64, perSecond float64, wait string, d time.Duration) []Measured {
	var cases []Measured
	for _, s := range []link.Spec{{System: link.Bus, Server: b.Socket(), Wait: wait, Limit: 256}, {System: link.Unix}} {
		s.Size = int(size)
		variant := "Go"
		if s.Wait != "" {
			variant += ", " + s.Wait
		}
		cases = append(cases, &cpuCase{
			dir: dir, params: RateParams{PeerParams{Spec: s, Nanoseconds: int64(d)}, perSecond},
			result: report.Result{Scenario: ScenarioCPU, System: s.System, Variant: variant, PayloadBytes: s.Size, TargetPerSecond: perSecond},
		})
	}
	return cases
}

func (c *cpuCase) Name() string {
	return fmt.Sprintf("CPU at %s/s, %s", report.Quantity(c.params.PerSecond), c.result.System)
}

func (c *cpuCase) Round(ctx context.Context, team *worker.Team, _ int) (err error) {
	p := c.params
	if p.Dir, err = os.MkdirTemp(c.dir, "link"); err != nil {
		return fmt.Errorf("bench: folder for a link: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.Dir)) }()
	var send, receive Used
	if err := team.Run(ctx, worker.Call{Role: RoleCPUSend, Params: p, Into: &send}, worker.Call{Role: RoleCPUReceive, Params: p, Into: &receive}); err != nil {
		return err
	}
	c.cpu = append(c.cpu, receive.CPU.Seconds()/receive.Time.Seconds()+send.CPU.Seconds()/send.Time.Seconds())
	c.rates = append(c.rates, report.Rate{Frames: receive.Frames, Nanoseconds: int64(receive.Time)})
	return nil
}

func (c *cpuCase) Result() report.Result {
	r := c.result
	r.Throughput(c.rates)
	r.BytesPerSecond = 0
	used := report.Share(report.Median(c.cpu))
	r.CPU, r.Spread = &used, report.Spread(c.cpu)
	return r
}
