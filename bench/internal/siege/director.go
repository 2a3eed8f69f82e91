package siege

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
)

// Options say what Run does.
type Options struct {
	// Duration is how long processes are killed; before and after it some seconds are needed.
	Duration time.Duration
	Seed     uint64
	// Replay is a schedule to run again; nil: chance decides.
	Replay Schedule
	// Program is what workers run, with Args, a role and a specification as arguments: it calls Worker.
	Program string
	Args    []string
	// KeeperArgs make Program the keeper process.
	KeeperArgs []string
	// Failpoints says that Program has them.
	Failpoints bool
	// Dump is the directory below which a violation leaves what it can tell.
	Dump string
	// Watchdog is how long anybody may wait for what is there.
	Watchdog time.Duration
	// Say is told how far it is.
	Say func(text string)
}

// tooLate is how long a frame may be there without its reader being woken.
const tooLate = time.Second

// A director runs a siege. Everything of it belongs to one goroutine.
type director struct {
	o      Options
	dir    string // of the socket and the logs
	began  time.Time
	events chan event
	chance *chance
	result *Result

	broker *berth
	crew   *crew
	arenas []*arena
	berths map[string]*berth
	logs   map[string]*os.File
	bus    *client.Client

	calendar calendar
	schedule Schedule
	calm     bool // nothing more is done to anybody

	watched time.Time // when it last looked who waits too long
	stall   time.Time // when it last was late for that: the machine had stood still, for others too

	breathed time.Time // when a broker last had served for breath

	keeperKilled time.Time
	refilled     time.Time      // when the next one had everything
	keeperHeld   chaos.Holdings // of the keeper, before
}

// Run runs a siege. The result is there with an error too. The error is what went wrong with the run itself; a violation is in the
// result.
func Run(ctx context.Context, o Options) (*Result, error) {
	d := &director{
		o: o, events: make(chan event, 4096), chance: newChance(o.Seed), berths: map[string]*berth{}, logs: map[string]*os.File{},
		result: &Result{Seed: o.Seed, Failpoints: o.Failpoints, ByKind: ByKind{}, Points: map[string]Point{}},
	}
	defer d.close()
	err := d.run(ctx)
	d.result.Seconds = time.Since(d.began).Seconds()
	d.count()
	if err != nil && !errors.Is(err, context.Canceled) {
		d.result.Violation = err.Error()
		if d.result.Dump, err = d.dump(err); err != nil {
			return d.result, fmt.Errorf("siege: %s: and no dump: %w", d.result.Violation, err)
		}
		return d.result, nil
	}
	return d.result, err
}

func (d *director) run(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{d.open, d.siege, d.settle, d.finish} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// siege is what goes on until the duration is over.
func (d *director) siege(ctx context.Context) error {
	d.began = time.Now()
	heap.Init(&d.calendar)
	for _, a := range d.o.Replay {
		heap.Push(&d.calendar, a)
	}
	if d.o.Replay == nil {
		d.later(d.chance.pause(), Action{})
	}
	asking, enough := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer func() { enough(); asked.Wait() }()
	asked.Go(func() { d.ask(asking) })
	asked.Go(func() { d.unsticks(asking) })
	for _, name := range churned {
		asked.Go(func() { d.churns(asking, name) })
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for time.Since(d.began) < d.o.Duration {
		wait := time.Until(d.began.Add(d.o.Duration))
		if len(d.calendar) > 0 {
			wait = min(wait, time.Until(d.began.Add(d.calendar[0].At)))
		}
		next.Reset(max(wait, 0))
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-d.events:
			err = d.hear(e)
		case <-second.C:
			err = d.watch()
		case <-next.C:
			err = d.due()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// later puts an action into the calendar, unless an earlier run's schedule is run.
func (d *director) later(after time.Duration, a Action) {
	if d.o.Replay != nil || d.calm {
		return
	}
	a.At = time.Since(d.began) + after
	heap.Push(&d.calendar, a)
}

// do does one thing to a berth.
func (d *director) do(a Action) error {
	if a.Who == keeperName {
		d.signalKeeper(a.Do)
		return nil
	}
	b := d.berths[a.Who]
	if b == nil {
		return fmt.Errorf("siege: the schedule names %q, which is not there", a.Who)
	}
	if a.Do == doStart {
		if b.p == nil {
			return d.start(b, a.Arm)
		}
		b.queued = &a
		d.signal(b, doKill)
		return nil
	}
	if b.p != nil {
		d.signal(b, a.Do)
	}
	return nil
}

// signal sends a process a signal.
func (d *director) signal(b *berth, what string) {
	d.note(Action{Who: b.name, Do: what})
	now := time.Now()
	switch what {
	case doKill:
		b.kill = true
		b.p.signal(os.Kill)
	case doTerm:
		b.term, b.since = true, now
		if b.feed != nil {
			b.feed.ending.Store(true)
		}
		b.p.signal(unix.SIGTERM)
	case doStop:
		d.result.ByKind.add(b.kind, stopAnywhere)
		b.stopped, b.since = true, now
		b.p.signal(unix.SIGSTOP)
		d.later(d.chance.standstill(), Action{Who: b.name, Do: doCont})
	case doCont:
		b.stopped, b.since = false, now
		b.p.signal(unix.SIGCONT)
	}
	if b.arena != nil && (what == doStop || what == doCont) {
		b.arena.stopped = now
	}
}

// note writes an action into the schedule.
func (d *director) note(a Action) {
	if !d.began.IsZero() && !d.calm {
		a.At = time.Since(d.began)
		d.schedule = append(d.schedule, a)
	}
}

// start starts the next process of a berth.
func (d *director) start(b *berth, arm string) error {
	role, spec, file, err := b.prepare()
	if err != nil {
		return err
	}
	if file != nil && !b.keepsFile() {
		defer closeAll(file)
	}
	text, err := marshal(spec)
	if err != nil {
		return err
	}
	b.armed, b.diedAt = parseArmings(arm), ""
	b.ready, b.term, b.kill, b.stopped, b.queued, b.feed = false, false, false, false, nil, nil
	b.since = time.Now()
	d.note(Action{Who: b.name, Do: doStart, Arm: arm})
	d.result.ByKind.add(b.kind, startsOfBerth)
	b.p, err = start(launch{
		program: d.o.Program, args: append(append([]string{}, d.o.Args...), role, text), arm: arm, file: file, log: d.log(b.name),
	}, b, d.events)
	return err
}

// log is the file that a berth's processes write to.
func (d *director) log(name string) io.Writer {
	if f := d.logs[name]; f != nil {
		return f
	}
	f, err := os.Create(filepath.Join(d.dir, strings.ReplaceAll(name, "/", "-")+".log"))
	if err != nil {
		return io.Discard // a disk that is full is no reason to stop
	}
	d.logs[name] = f
	return f
}

// hear takes an event.
func (d *director) hear(e event) error {
	b := e.berth
	switch {
	case e.err != nil:
		return e.err
	case e.fed != nil:
		e.fed.at = time.Now()
		e.fed.arena.ended = append(e.fed.arena.ended, *e.fed)
		return nil
	case e.seen != nil:
		return d.saw(*e.seen)
	case e.late != "":
		if time.Since(b.arena.stopped) < longestStop+2*nap || time.Since(d.stall) < d.o.Watchdog {
			return nil
		}
		return fmt.Errorf("%s %s", b.name, e.late)
	case b.p != e.p:
		return nil // the last words of one that is dead
	case e.died != nil:
		return d.died(b, e.died)
	case e.point != "":
		d.atPoint(b, e.point)
		return nil
	}
	word, rest, _ := strings.Cut(e.line, " ")
	switch word {
	case "ready":
		b.ready, b.since, b.got = true, time.Now(), 0
		if b.kind == kindEgress {
			go b.arena.receive(rest, d.events)
		}
		if b.kind == kindIngress {
			b.feed = feedTo(rest, b.arena, b.arena.number, uint64(e.p.pid()), d.events)
		}
	case "refilled":
		d.refilled = time.Now()
	case "revoked": // it ends now
		b.term, b.since = true, time.Now()
		d.result.Revoked++
	case "error":
		return fmt.Errorf("%s: %s", b.name, rest)
	}
	return nil
}

// atPoint notes that a process has come to a failpoint.
func (d *director) atPoint(b *berth, point string) {
	a := b.armedAt(point)
	if a == nil {
		return // it is not a line of ours
	}
	d.chance.fired(a)
	if a.action == "kill" {
		b.diedAt = point
		return
	}
	b.armed = slices.DeleteFunc(b.armed, func(o *arming) bool { return o == a })
	p := d.result.Points[point]
	p.Stops++
	d.result.Points[point] = p
	d.result.ByKind.add(b.kind, stopAtPoint)
	b.stopped, b.since = true, time.Now()
	if b.arena != nil {
		b.arena.stopped = b.since
	}
	if d.calm {
		d.signal(b, doCont)
		return
	}
	next := Action{Who: b.name, Do: doCont}
	if d.chance.random.IntN(4) == 0 {
		next.Do = doKill
	}
	d.later(d.chance.standstill(), next)
}

// died notes a death, and has another process start.
func (d *director) died(b *berth, how *os.ProcessState) error {
	p := b.p
	b.p = nil
	d.gone(b)
	status, _ := how.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == unix.SIGKILL && b.diedAt != "":
		at := d.result.Points[b.diedAt]
		at.Kills++
		d.result.Points[b.diedAt] = at
		d.result.ByKind.add(b.kind, diedAtPoint)
		d.result.Kills++
		b.armed = nil // nothing is known of the other points
	case status.Signaled() && status.Signal() == unix.SIGKILL && b.kill:
		d.result.ByKind.add(b.kind, diedAnywhere)
		d.result.Kills++
	case b.term && (how.Success() || !b.ready && status.Signaled() && status.Signal() == unix.SIGTERM):
		d.result.ByKind.add(b.kind, endedInOrder)
	default:
		return fmt.Errorf("%s (process %d) ended by itself: %s\n%s", b.name, p.pid(), how, p.last.String())
	}
	for _, a := range b.armed {
		d.chance.missed(a)
	}
	if b.queued != nil {
		return d.start(b, b.queued.Arm)
	}
	next := Action{Who: b.name, Do: doStart}
	switch {
	case !d.o.Failpoints:
	case b.kind == kindBroker:
		if b.ready && time.Since(b.since) > breath {
			d.breathed = time.Now()
		}
		if time.Since(d.breathed) < longestDive && !d.starving() {
			next.Arm = formatArmings(d.chance.armBroker(b.ready))
		}
	default:
		next.Arm = formatArmings(d.chance.arm(b.points, 2))
	}
	d.later(d.chance.rest(), next)
	return nil
}

// gone notes what a publisher had done.
func (d *director) gone(b *berth) {
	switch b.kind {
	case kindPublisher:
		tried, done := b.arena.progress.Read(b.place)
		b.arena.ended = append(b.arena.ended, published{arena: b.arena, id: b.id, tried: tried, done: done, at: time.Now()})
	case kindIngress:
		if b.feed != nil {
			b.feed.ending.Store(true)
			b.feed.stop()
		}
	}
}
