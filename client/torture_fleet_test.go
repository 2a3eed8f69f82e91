package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/chaos"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func init() {
	testutil.Register("torture-reader", func(args []string) {
		var spec chaos.ReaderSpec
		report(json.Unmarshal([]byte(args[0]), &spec), func() error {
			return chaos.Read(spec, chaos.NewControl(context.Background(), os.Stdin), testutil.File(0), os.Stdout)
		})
	})
	testutil.Register("torture-publisher", func(args []string) {
		var spec chaos.PublisherSpec
		report(json.Unmarshal([]byte(args[0]), &spec), func() error {
			p, err := chaos.OpenProgress(testutil.File(0))
			if err != nil {
				return err
			}
			return chaos.Publish(spec, chaos.NewControl(context.Background(), os.Stdin), p, os.Stdout)
		})
	})
}

func report(err error, run func() error) {
	if err == nil {
		err = run()
	}
	if err != nil {
		fmt.Println("error", err)
	}
}

const (
	tortureCapacity = 1 << 20
	torturePayload  = 5000
	tortureEvict    = 512 << 10 // lag at which the evicting reader is evicted
)

// A fleet is many processes on one topic, and a ledger that checks what they say.
type fleet struct {
	t          testing.TB
	w          *world
	topic      string
	redelivery bool // members die
	ledger     *chaos.Ledger
	progress   *chaos.Progress
	all        sync.WaitGroup // of the consumers

	publishers int // publisher processes so far: the next one's number
	ended      []published
	longest    time.Duration                // of all calls of publishers that were not killed
	arm        func(points []string) string // what HUGEBUS_FAILPOINTS says in the next process; nil: nothing
}

// published is what a publisher process that has ended had tried and done.
type published struct {
	id          uint32
	tried, done uint64
}

func newFleet(t testing.TB, w *world, places int, redelivery bool) *fleet {
	t.Helper()
	f := &fleet{t: t, w: w, redelivery: redelivery, ledger: chaos.NewLedger(chaos.Config{MaxPayload: torturePayload, Redelivery: redelivery})}
	f.topic = f.w.topic(t, client.TopicOptions{Capacity: tortureCapacity, MaxRedeliveries: -1})
	var err error
	if f.progress, err = chaos.NewProgress(places); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.progress.Close() })
	return f
}

// Where processes of a fleet die.
var (
	publisherPoints = []string{
		ring.FailAfterIntent, ring.FailAfterClaim, ring.FailMidCopy, ring.FailBeforeCommit, ring.FailMidBatch, ring.FailAfterCommit,
		ring.FailBeforeRing, client.FailSleepAfterBit, client.FailSleepUnbound,
	}
	subscriberPoints = []string{ring.FailMidPoll, ring.FailBeforeCursor, client.FailSleepAfterBit, client.FailSleepUnbound}
	memberPoints     = []string{
		ring.FailGroupAfterIntent, ring.FailGroupAfterHead, ring.FailGroupMidWork, ring.FailGroupAfterAck, ring.FailGroupAfterTake,
		client.FailSleepAfterBit, client.FailSleepUnbound,
	}
)

// A vessel is one process of a fleet.
type vessel struct {
	*testutil.Proc
	name   string
	reader chaos.ReaderSpec    // of a reader
	writer chaos.PublisherSpec // of a publisher
	again  func() *vessel      // starts another one like it
}

func (f *fleet) common(name string) chaos.Common {
	return chaos.Common{Socket: f.w.socket, Topic: f.topic, Name: name}
}

// launch starts a process that may die at one of some failpoints.
func (f *fleet) launch(role string, spec any, file *os.File, points []string) *testutil.Proc {
	f.t.Helper()
	arg, err := chaos.Arg(spec)
	if err != nil {
		f.t.Fatal(err)
	}
	c := testutil.Child{Binary: f.w.binary, Role: role, Args: []string{arg}, Files: []*os.File{file}}
	if f.arm != nil && len(points) > 0 {
		c.Env = []string{failpoint.Env + "=" + f.arm(points)}
	}
	p := testutil.Launch(f.t, c)
	f.t.Cleanup(func() {
		if out := p.Stdout(); f.t.Failed() && strings.Contains(out, "error") {
			f.t.Logf("child %d says: %s", p.Pid(), out)
		}
	})
	p.Expect("ready")
	return p
}

// read starts a reader whose records go to a stream.
func (f *fleet) read(s *chaos.Stream, spec chaos.ReaderSpec, points ...string) *testutil.Proc {
	f.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	f.all.Go(func() {
		_ = s.Consume(r) // Finish returns it as well
		r.Close()
	})
	defer w.Close()
	return f.launch("torture-reader", spec, w, points)
}

// anchor starts the reader that defines the order.
func (f *fleet) anchor() *vessel {
	f.t.Helper()
	spec := chaos.ReaderSpec{Common: f.common("anchor"), Policy: client.Reliable, Earliest: true, Limit: 64}
	return &vessel{name: "anchor", reader: spec, Proc: f.read(f.ledger.Anchor("anchor"), spec)}
}

// subscriber starts one that reads for itself.
func (f *fleet) subscriber(name string, policy client.Policy, limit int) *vessel {
	f.t.Helper()
	spec := chaos.ReaderSpec{Common: f.common(name), Policy: policy, Limit: limit}
	if policy == client.Evict {
		spec.EvictLag = tortureEvict
	}
	return &vessel{
		name: name, reader: spec, Proc: f.read(f.ledger.Follow(name, policy == client.Lossy), spec, subscriberPoints...),
		again: func() *vessel { return f.subscriber(name, policy, limit) },
	}
}

// member starts a member of the group.
func (f *fleet) member(name string, limit int) *vessel {
	f.t.Helper()
	spec := chaos.ReaderSpec{Common: f.common(name), Group: "workers", Limit: limit}
	return &vessel{
		name: name, reader: spec, Proc: f.read(f.ledger.Member("workers", name), spec, memberPoints...),
		again: func() *vessel { return f.member(name, limit) },
	}
}

// publisher starts a publisher at a place of the progress, which goes on until it is told to stop.
func (f *fleet) publisher(place int, style chaos.Style) *vessel {
	f.t.Helper()
	name := fmt.Sprintf("publisher %d", f.publishers)
	spec := chaos.PublisherSpec{
		Common: f.common(name), Publisher: uint32(f.publishers), Place: place, Style: style, MaxPayload: torturePayload,
		Shared: place%4 == 3,
	}
	f.publishers++
	return &vessel{
		name: name, writer: spec, Proc: f.launch("torture-publisher", spec, f.progress.File(), publisherPoints),
		again: func() *vessel { return f.publisher(place, style) },
	}
}

// dead reports whether the process has died by itself.
func (v *vessel) dead() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.Pid()))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// goOn waits until each of some publishers has published something more.
func (f *fleet) goOn(publishers []*vessel) {
	f.t.Helper()
	var before []uint64
	for _, v := range publishers {
		_, done := f.progress.Read(v.writer.Place)
		before = append(before, done)
	}
	for i, v := range publishers {
		testutil.Eventually(f.t, v.name+" publishes more", func() bool {
			_, done := f.progress.Read(v.writer.Place)
			return done > before[i]
		})
	}
}

// gone notes what a publisher that has ended had done, and readies its place for the next one.
func (f *fleet) gone(v *vessel) {
	tried, done := f.progress.Read(v.writer.Place)
	f.ended = append(f.ended, published{id: v.writer.Publisher, tried: tried, done: done})
	f.progress.Reset(v.writer.Place)
}

// finish lets publishers that were told to stop end, then readers read to the end, and checks everything.
func (f *fleet) finish(publishers, subscribers, members []*vessel) chaos.Report {
	t := f.t
	t.Helper()
	for _, v := range publishers {
		f.done(v)
		f.gone(v)
	}
	tail := f.w.info(t, f.topic).Tail
	for _, v := range subscribers {
		v.Send(fmt.Sprintf("stop %d", tail))
		f.done(v)
	}
	testutil.Eventually(t, "the group has finished everything", func() bool {
		g := f.w.info(t, f.topic).Groups
		return len(g) == 1 && g[0].LagBytes == 0 && g[0].UnfinishedRanges == 0
	})
	for _, v := range members {
		v.Send("stop")
		f.done(v)
	}
	f.all.Wait()
	for _, p := range f.ended {
		if err := f.ledger.Published(p.id, p.tried, p.done); err != nil {
			t.Fatal(err)
		}
	}
	r, err := f.ledger.Finish()
	if err != nil {
		t.Fatal(err)
	}
	info := f.w.attached(t, f.topic, 0, 0)
	groups := 0
	if f.redelivery {
		groups = 1 // one of which a member has died is kept for a while
	}
	if info.GroupCount != groups || info.Violations != 0 || info.DeadLetters != 0 {
		t.Errorf("in the end: %d groups, %d violations, %d dead letters", info.GroupCount, info.Violations, info.DeadLetters)
	}
	return r
}

// done waits for the end of a process, which says so itself: it has also checked that nothing of it is left.
func (f *fleet) done(v *vessel) {
	f.t.Helper()
	line := v.Line()
	var frames uint64
	var longest time.Duration
	if !scan(line, "done %d %d", &frames, &longest) {
		f.t.Fatalf("%s says %q", v.name, line)
	}
	f.longest = max(f.longest, longest)
	v.Succeed()
}
