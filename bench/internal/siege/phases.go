package siege

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
)

// quiet is the arena in which frames come seldom, so that everybody sleeps.
const quiet = "quiet"

// nap bounds the sleeps there.
const nap = 2 * time.Second

// open starts the broker and everybody, in peace.
func (d *director) open(ctx context.Context) (err error) {
	d.began = time.Time{}
	if d.dir, err = os.MkdirTemp("", "hb-chaos-"); err != nil {
		return fmt.Errorf("siege: %w", err)
	}
	socket := filepath.Join(d.dir, "s")
	d.result.Before.FreeHugePages = freeHugePages()
	d.crew = &crew{socket: socket, events: d.events}
	d.broker = d.crew.add(&berth{name: "broker", kind: kindBroker, points: brokerPoints, prepare: func() (string, any, *os.File, error) {
		return roleBroker, brokerSpec{Socket: socket, Keeper: append([]string{d.o.Program}, d.o.KeeperArgs...)}, nil, nil
	}})
	if err := d.man(); err != nil {
		return err
	}
	for _, b := range d.crew.all {
		d.berths[b.name] = b
	}
	if err := d.startAll(ctx, kindBroker); err != nil {
		return err
	}
	d.bus, err = client.Dial(ctx, client.Options{Socket: socket, Name: "chaos", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for _, a := range d.arenas {
		if _, err := d.bus.CreateTopic(ctx, a.name, a.options); err != nil {
			return err
		}
	}
	if err := d.startAll(ctx, kindAnchor); err != nil {
		return err
	}
	if d.result.Before, err = d.held(ctx); err != nil {
		return err
	}
	// The members come before the publishers: a group begins with its first one.
	return d.startAll(ctx, kindMember, kindSubscriber, kindJoiner, kindPublisher, kindIngress, kindEgress)
}

// man describes all arenas and berths.
func (d *director) man() error {
	topics := []struct {
		name       string
		options    client.TopicOptions
		payload    int
		publishers int
	}{
		{"shared", client.TopicOptions{Capacity: 256 << 10}, 3000, 4},
		{"exclusive", client.TopicOptions{Capacity: 256 << 10, Exclusive: true}, 3000, 1},
		{quiet, client.TopicOptions{Capacity: 64 << 10}, 500, 2},
		{"fed", client.TopicOptions{Capacity: 128 << 10}, 2000, 0},
		{"crowded", client.TopicOptions{Capacity: 8 << 10}, 200, 3},
	}
	for _, t := range topics {
		a, err := newArena(t.name, t.options, t.payload, t.publishers)
		if err != nil {
			return err
		}
		d.arenas = append(d.arenas, a)
	}
	c := d.crew
	shared, exclusive, still, fed, crowded := d.arenas[0], d.arenas[1], d.arenas[2], d.arenas[3], d.arenas[4]
	for _, a := range d.arenas {
		c.anchor(a, nap/20)
	}
	c.subscriber(shared, "evict", chaos.ReaderSpec{Policy: client.Evict, Limit: 64})
	const rest = 400 * time.Microsecond
	for i, style := range []chaos.Style{chaos.Single, chaos.Batch, chaos.Claims, chaos.Mixed} {
		c.publisher(shared, fmt.Sprint("publisher-", style), chaos.PublisherSpec{Style: style, Shared: i == 3, Pause: rest, Hold: 8 * stuckClaim})
	}
	c.publisher(exclusive, "publisher", chaos.PublisherSpec{Style: chaos.Mixed, Pause: rest})
	c.publisher(still, "publisher-1", chaos.PublisherSpec{Style: chaos.Mixed, Pause: 40 * time.Millisecond, Long: 50})
	c.publisher(still, "publisher-2", chaos.PublisherSpec{Style: chaos.Single, Pause: 40 * time.Millisecond, Long: 50})
	c.ingress(fed, "ingress")
	c.egress(fed, "egress")
	for _, a := range []*arena{shared, exclusive, fed} {
		c.subscriber(a, "reliable", chaos.ReaderSpec{Policy: client.Reliable, Limit: 32})
		c.subscriber(a, "lossy", chaos.ReaderSpec{Policy: client.Lossy, Limit: 64})
		c.member(a, "member-1", chaos.ReaderSpec{Limit: 1})
		c.member(a, "member-2", chaos.ReaderSpec{Limit: 16, Refuse: 300})
	}
	c.subscriber(shared, "one-by-one", chaos.ReaderSpec{Policy: client.Reliable, Limit: 1})
	c.member(shared, "member-3", chaos.ReaderSpec{Limit: 8})
	for i, style := range []chaos.Style{chaos.Single, chaos.Batch, chaos.Claims} {
		c.publisher(crowded, fmt.Sprint("publisher-", style), chaos.PublisherSpec{Style: style, Pause: 20 * time.Millisecond, Burst: 150})
		c.member(crowded, fmt.Sprint("member-", i+1), chaos.ReaderSpec{Limit: 1 + i, Refuse: uint64(500 - i)})
	}
	c.joiner(shared, "joiner-1")
	c.joiner(shared, "joiner-2")
	c.joiner(exclusive, "joiner")
	c.subscriber(still, "sleeper-1", chaos.ReaderSpec{Policy: client.Reliable, Limit: 8, Nap: nap, Common: chaos.Common{Wait: client.WaitSleep}})
	c.subscriber(still, "sleeper-2", chaos.ReaderSpec{Policy: client.Reliable, Limit: 8, Nap: nap})
	c.member(still, "member-1", chaos.ReaderSpec{Limit: 4, Nap: nap, Common: chaos.Common{Wait: client.WaitSleep}})
	c.member(still, "member-2", chaos.ReaderSpec{Limit: 4, Nap: nap})
	return nil
}

// startAll starts all berths of some kinds, kind after kind, and waits until they are ready.
func (d *director) startAll(ctx context.Context, kinds ...string) error {
	for _, kind := range kinds {
		for _, b := range d.crew.all {
			if b.kind == kind {
				if err := d.start(b, ""); err != nil {
					return err
				}
			}
		}
		err := d.await(ctx, kind+"s are ready", func() bool {
			return d.every(kind, func(b *berth) bool { return b.ready })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *director) every(kind string, ok func(*berth) bool) bool {
	for _, b := range d.crew.all {
		if b.kind == kind && !ok(b) {
			return false
		}
	}
	return true
}

// await hears events until something is so.
func (d *director) await(ctx context.Context, what string, so func() bool) error {
	limit := time.NewTimer(2 * d.o.Watchdog)
	defer limit.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for looks := 0; !so(); looks++ {
		if looks%25 == 24 {
			d.nudge()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-d.events:
			if err := d.hear(e); err != nil {
				return err
			}
		case <-look.C:
		case <-limit.C:
			return fmt.Errorf("not within %v: %s; there are %s", 2*d.o.Watchdog, what, d.roll())
		}
	}
	return nil
}

// roll names the processes that are there.
func (d *director) roll() string {
	var names []string
	for _, b := range d.crew.all {
		if b.p != nil {
			names = append(names, fmt.Sprintf("%s (%d)", b.name, b.p.pid()))
		}
	}
	return strings.Join(names, ", ")
}

// settle ends the siege: publishers end, and everything is read. Only the anchors are left.
func (d *director) settle(ctx context.Context) error {
	d.calm = true
	d.o.Say("settling")
	for _, b := range d.crew.all {
		if b.p != nil && b.stopped {
			d.signal(b, doCont)
		}
	}
	d.signalKeeper(doCont)
	// Members that may still die make place for others, which finish what is there.
	for _, kind := range []string{kindBroker, kindMember} {
		if err := d.renew(ctx, kind); err != nil {
			return err
		}
	}
	// They were perhaps just there. The broker takes this after what it was asked before.
	for _, name := range churned {
		if err := d.unchurn(ctx, name); err != nil {
			return err
		}
	}
	for _, b := range d.crew.all {
		if b.feed != nil {
			b.feed.stop()
		}
	}
	for _, b := range d.crew.all {
		if b.feed == nil {
			continue
		}
		if err := d.await(ctx, b.name+" has taken what was sent to it", func() bool { return closed(b.feed.done) || b.p == nil }); err != nil {
			return err
		}
	}
	if err := d.dismiss(ctx, func(*arena) string { return "stop" }, kindPublisher, kindIngress, kindJoiner); err != nil {
		return err
	}
	if err := d.await(ctx, "all that was published was read", func() bool { return d.read(ctx) }); err != nil {
		return err
	}
	if err := d.dismiss(ctx, func(*arena) string { return "stop" }, kindEgress); err != nil {
		return err
	}
	if err := d.dismiss(ctx, func(a *arena) string { return fmt.Sprint("stop ", a.ledger.Covered()) }, kindSubscriber); err != nil {
		return err
	}
	return d.dismiss(ctx, func(*arena) string { return "stop" }, kindMember)
}

// renew replaces processes that may die at a failpoint, or are dead, by others that do not.
func (d *director) renew(ctx context.Context, kind string) error {
	for _, b := range d.crew.all {
		if b.kind != kind || b.p != nil && len(b.armed) == 0 && !b.kill && !b.term {
			continue
		}
		if err := d.do(Action{Who: b.name, Do: doStart}); err != nil {
			return err
		}
	}
	return d.await(ctx, kind+"s are there again", func() bool {
		return d.every(kind, func(b *berth) bool { return b.p != nil && b.ready && b.queued == nil })
	})
}

// dismiss ends processes of some kinds, each by a line.
func (d *director) dismiss(ctx context.Context, line func(*arena) string, kinds ...string) error {
	for _, kind := range kinds {
		for _, b := range d.crew.all {
			if b.kind == kind && b.p != nil {
				b.term, b.since = true, time.Now()
				b.p.tell(line(b.arena))
			}
		}
	}
	for _, kind := range kinds {
		err := d.await(ctx, kind+"s end", func() bool { return d.every(kind, func(b *berth) bool { return b.p == nil }) })
		if err != nil {
			return err
		}
	}
	return nil
}

// read reports whether the groups have finished everything, and the anchors have told everything that was published.
func (d *director) read(ctx context.Context) bool {
	for _, a := range d.arenas {
		asked := time.Now()
		info, err := d.topic(ctx, a)
		if err != nil || info.PublisherCount > 0 || a.ledger.Covered() < info.Tail {
			return false
		}
		a.saw(asked, info)
		for _, g := range info.Groups {
			if g.LagBytes != 0 || g.UnfinishedRanges != 0 {
				return false
			}
		}
	}
	return true
}

// finish compares what is left with what was there at the beginning, and ends everything.
func (d *director) finish(ctx context.Context) error {
	d.o.Say("comparing what is held with before")
	if err := d.compare(ctx); err != nil {
		return err
	}
	if err := d.dismiss(ctx, func(a *arena) string { return fmt.Sprint("stop ", a.ledger.Covered()) }, kindAnchor); err != nil {
		return err
	}
	topics, err := d.bus.Topics(ctx)
	if err != nil || len(topics) != len(d.arenas) {
		return fmt.Errorf("there are %d topics and should be %d (%v)", len(topics), len(d.arenas), err)
	}
	for _, a := range d.arenas {
		if err := a.check(); err != nil {
			return err
		}
		if len(a.ended) > 0 {
			return fmt.Errorf("topic %s: %d publishers could not be checked", a.name, len(a.ended))
		}
		// A stream ends when its reader's death is known, and the last records of it come a moment later.
		err := d.await(ctx, "topic "+a.name+": the anchor has told everything", func() bool {
			_, err := a.ledger.Finish()
			return err == nil || a.ledger.Violation() != nil
		})
		if err != nil {
			return err
		}
		if _, err := a.ledger.Finish(); err != nil {
			return fmt.Errorf("topic %s: %w", a.name, err)
		}
		if err := d.bus.RemoveTopic(ctx, a.name); err != nil {
			return err
		}
	}
	if err := d.bus.Close(); err != nil {
		return err
	}
	d.bus = nil
	d.signal(d.broker, doTerm)
	if err := d.await(ctx, "the broker has ended", func() bool { return d.broker.p == nil }); err != nil {
		return err
	}
	if err := d.endKeeper(ctx); err != nil {
		return err
	}
	err = d.await(ctx, fmt.Sprintf("%d huge pages are free, as before", d.result.Before.FreeHugePages), func() bool {
		d.result.After.FreeHugePages = freeHugePages()
		return d.result.After.FreeHugePages >= d.result.Before.FreeHugePages || otherTopics()
	})
	return err
}

// count fills in what was checked.
func (d *director) count() {
	if d.crew != nil && d.o.Failpoints {
		for _, b := range d.crew.all {
			for _, p := range b.points {
				n := d.result.Points[p]
				d.result.Points[p] = n // also of those that nobody came to
			}
		}
		for p, n := range d.result.Points {
			if n.Kills < Enough {
				d.result.Rare = append(d.result.Rare, p)
			}
		}
		slices.Sort(d.result.Rare)
	}
	for _, a := range d.arenas {
		c := a.ledger.Counts()
		d.result.Pushed += a.pushed.Load()
		d.result.Topics = append(d.result.Topics, TopicResult{
			Topic: a.name, Frames: c.Frames, Bytes: c.Bytes, Publishers: c.Publishers, Compared: c.Compared, Gaps: c.Gaps, Missed: c.Missed,
			Evictions: c.Evictions, Redelivered: c.Redelivered, Repairs: a.repairs.sum, RepairedBytes: a.bytes.sum,
		})
	}
}

// close kills what is left.
func (d *director) close() {
	left := 0
	if d.crew != nil {
		for _, b := range d.crew.all {
			if b.p != nil {
				left++
				b.p.signal(os.Kill)
			}
		}
	}
	limit := time.After(10 * time.Second)
	for left > 0 {
		select {
		case e := <-d.events:
			if e.died != nil {
				left--
			}
		case <-limit:
			left = 0
		}
	}
	if d.crew != nil {
		_ = d.endKeeper(context.Background()) // there may be none
	}
	if d.bus != nil {
		if err := d.bus.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			d.o.Say(err.Error())
		}
	}
	for _, a := range d.arenas {
		_ = a.progress.Close()
	}
	for _, f := range d.logs {
		closeAll(f)
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir) // what matters is in the dump
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func marshal(spec any) (string, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("siege: %w", err)
	}
	return string(b), nil
}
