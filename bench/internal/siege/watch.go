package siege

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
)

// stalled is how late the director may be for its look once a second before it takes the machine for one that stood still.
const stalled = 4 * time.Second

// watch looks once a second whether anybody waits too long, and checks publishers that have ended.
func (d *director) watch() error {
	d.say()
	d.nudge()
	if late := time.Since(d.watched); !d.watched.IsZero() && late > stalled {
		d.stall = time.Now()
		d.result.Stalls++
	}
	d.watched = time.Now()
	for _, a := range d.arenas {
		if err := a.check(); err != nil {
			return err
		}
		if err := d.laggards(a); err != nil {
			return err
		}
	}
	if d.keeperKilled.After(d.refilled) && time.Since(d.stall) > d.o.Watchdog && time.Since(d.keeperKilled) > d.o.Watchdog && !d.broker.stopped {
		return fmt.Errorf("the broker has not filled another keeper within %v", d.o.Watchdog)
	}
	for _, b := range d.crew.all {
		if err := d.stands(b); err != nil {
			return err
		}
	}
	d.relieve()
	return nil
}

// relieve ends a broker that comes to none of its points, so that one can follow that does.
func (d *director) relieve() {
	b := d.broker
	if d.o.Replay != nil || d.calm || !d.o.Failpoints || time.Since(b.since) < breath || len(b.armed) > 0 && time.Since(b.since) < 6*time.Second {
		return
	}
	if what := d.chance.signal(b); what != doStop && d.may(b, what) {
		d.signal(b, what)
	}
}

// ask asks the broker about all topics, over and over. It is a goroutine of its own, because the broker may be stopped.
func (d *director) ask(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(400 * time.Millisecond):
		}
		for _, a := range d.arenas {
			s := &sighting{arena: a, asked: time.Now()}
			s.info, s.err = d.topic(ctx, a)
			select {
			case d.events <- event{seen: s}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// saw takes what the broker says about a topic.
func (d *director) saw(s sighting) error {
	switch {
	case errors.Is(s.err, client.ErrBrokerUnavailable) || errors.Is(s.err, context.DeadlineExceeded) || errors.Is(s.err, context.Canceled):
		return nil
	case s.err != nil:
		return fmt.Errorf("topic %s: %w", s.arena.name, s.err)
	case s.info.Violations != 0 || s.info.DeadLetters != 0:
		return fmt.Errorf("topic %s: the broker counts %d impossible values and %d dead letters", s.arena.name, s.info.Violations, s.info.DeadLetters)
	}
	s.arena.saw(s.asked, s.info)
	return nil
}

func (d *director) topic(ctx context.Context, a *arena) (client.TopicInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return d.bus.Topic(ctx, a.name)
}

// nudge has processes go on that are stopped and should not be: a process says that it has come to its failpoint just before it
// stops, and a SIGCONT in between is lost.
func (d *director) nudge() {
	for _, b := range d.crew.all {
		if b.p == nil || b.stopped {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.p.pid()))
		if err == nil && strings.Contains(string(stat), ") T ") {
			b.p.signal(unix.SIGCONT)
		}
	}
}

// laggards is an error if a reader, or a group, has not told a frame for too long.
func (d *director) laggards(a *arena) error {
	if time.Since(d.stall) < d.o.Watchdog {
		return nil
	}
	for _, l := range a.ledger.Behind(d.o.Watchdog) {
		b := d.berths[strings.TrimPrefix(l.Name, group+"/")]
		if b != nil && (b.stopped || time.Since(b.since) < d.o.Watchdog) {
			continue
		}
		return fmt.Errorf("topic %s: %s was not handed, for %v: %s", a.name, l.Name, l.Late.Round(time.Millisecond), l.Of)
	}
	return nil
}

// stands is an error if a process that is not stopped has got nowhere for too long.
func (d *director) stands(b *berth) error {
	if b.p == nil || b.stopped || b.kill {
		return nil
	}
	got, limit := b.got, d.o.Watchdog
	switch {
	case !b.ready || b.term: // it must become ready, or end
		limit *= brokerPatience
	case b.kind == kindPublisher:
		_, got = b.arena.progress.Read(b.place)
	case b.kind == kindIngress && b.feed != nil:
		got = b.feed.sent.Load()
	default:
		return nil
	}
	if got != b.got {
		b.got, b.since = got, time.Now()
	}
	if stood := time.Since(b.since); stood > limit && time.Since(d.stall) > d.o.Watchdog {
		doing := "publish"
		switch {
		case b.term:
			doing = "end, although it was told to"
		case !b.ready:
			doing = "attach"
		}
		return fmt.Errorf("%s (process %d) does not %s for %v", b.name, b.p.pid(), doing, stood.Round(time.Millisecond))
	}
	return nil
}

// say tells how far it is.
func (d *director) say() {
	frames := uint64(0)
	for _, a := range d.arenas {
		frames += a.ledger.Counts().Frames
	}
	d.o.Say(fmt.Sprintf("%s of %s: %d processes killed, %d frames", time.Since(d.began).Round(time.Second), d.o.Duration, d.result.Kills, frames))
}

// steady are the processes that live all the time.
func (d *director) steady() (all []*berth) {
	for _, b := range d.crew.all {
		if b.kind == kindBroker || b.kind == kindAnchor {
			all = append(all, b)
		}
	}
	return all
}

// held counts what the steady processes hold now, and keeps it for compare.
func (d *director) held(ctx context.Context) (h Held, err error) {
	h.FreeHugePages = d.result.Before.FreeHugePages
	for _, b := range d.steady() {
		if b.census, err = takeCensus(b.p.pid()); err != nil {
			return h, err
		}
		descriptors, mappings := count(b.census)
		h.Descriptors, h.Mappings = h.Descriptors+descriptors, h.Mappings+mappings
	}
	if d.keeperHeld, err = takeCensus(d.keeperPid()); err != nil {
		return h, fmt.Errorf("the keeper is not there: %w", err)
	}
	descriptors, _ := count(d.keeperHeld)
	h.Descriptors += descriptors
	h.Slots, err = d.slots(ctx)
	return h, err
}

// slots is how many slots and groups are taken.
func (d *director) slots(ctx context.Context) (n int, err error) {
	for _, a := range d.arenas {
		info, err := d.topic(ctx, a)
		if err != nil {
			return 0, err
		}
		n += info.PublisherCount + info.SubscriberCount + info.GroupCount
	}
	return n, nil
}

// compare is an error if more is held than before. What is on its way to be given back has some time for it.
func (d *director) compare(ctx context.Context) error {
	var why []string
	err := d.await(ctx, "", func() bool {
		why = nil
		d.result.After = Held{}
		look := func(name string, pid int, before chaos.Holdings) {
			now, err := takeCensus(pid)
			if err != nil {
				why = append(why, err.Error())
				return
			}
			for _, more := range before.More(now) {
				why = append(why, fmt.Sprintf("%s holds %s more than before", name, more))
			}
			descriptors, mappings := count(now)
			d.result.After.Descriptors += descriptors
			d.result.After.Mappings += mappings
		}
		for _, b := range d.steady() {
			look(b.name, b.p.pid(), b.census)
		}
		look(keeperName, d.keeperPid(), d.keeperHeld)
		slots, err := d.slots(ctx)
		if d.result.After.Slots = slots; err != nil || slots > d.result.Before.Slots {
			why = append(why, fmt.Sprintf("%d slots and groups are taken, and %d were before (%v)", slots, d.result.Before.Slots, err))
		}
		return len(why) == 0
	})
	if err != nil && len(why) > 0 {
		return fmt.Errorf("left over: %s", strings.Join(why, "; "))
	}
	return err
}
