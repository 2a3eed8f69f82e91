package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Run runs the demo. Whatever happens, no process, socket, file or memory of it is left when it returns. An error means
// that a part of it failed; whether the frames arrived as they should says Result.OK.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{Options: o, began: time.Now(), fail: cancel, stall: stallLimit}
	r.endFull, r.endCounted = o.parts()
	result, err := r.run(ctx)
	if err != nil && errors.Is(err, context.Canceled) {
		if err = context.Cause(ctx); errors.Is(err, context.Canceled) {
			err = errInterrupted
		}
	}
	// The processes end first: they are attached to the bus.
	for _, c := range r.children {
		err = errors.Join(err, c.close())
	}
	if r.bus != nil {
		err = errors.Join(err, r.bus.close())
	}
	return result, err
}

// A run is one run of the demo.
type run struct {
	Options
	began               time.Time
	fail                func(error) // ends the run with that error
	endFull, endCounted uint64
	stall               time.Duration

	bus      *bus
	children []*child // the workers, then the subscriber

	mu        sync.Mutex
	finishing bool     // ends of children are expected
	died      []string // workers that died, with KeepGoing
}

func (r *run) run(ctx context.Context) (Result, error) {
	var err error
	if r.bus, err = openBus(ctx, r.Options, r.fail); err != nil {
		return Result{}, err
	}
	if err := r.startChildren(ctx); err != nil {
		return Result{}, err
	}
	if err := r.bus.listen(ctx, r.Options, r.fail); err != nil {
		return Result{}, err
	}
	r.announce()
	f, err := newFeeder(ctx, r.bus.address)
	if err != nil {
		return Result{}, err
	}
	m, err := r.feed(ctx, f)
	if err := errors.Join(err, f.close()); err != nil {
		return Result{}, err
	}
	if err := r.bus.stopIngress(); err != nil {
		return Result{}, err
	}
	if err := r.finish(); err != nil {
		return Result{}, err
	}
	m.seconds = time.Since(r.began).Seconds()
	return r.result(m), nil
}

func (r *run) startChildren(ctx context.Context) error {
	spec := Spec{Socket: r.bus.socket, Topic: topicName, Frames: r.Frames, Full: r.endFull, Paced: r.endCounted}
	for i := range workers + 1 {
		spec.Name, spec.Group = fmt.Sprintf("worker %d", i+1), groupName
		if i == workers {
			spec.Name, spec.Group = "subscriber", ""
		}
		c, err := startChild(r.Child, spec, r.ended)
		if err != nil {
			return err
		}
		r.children = append(r.children, c)
	}
	for _, c := range r.children {
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) announce() {
	if r.Began == nil {
		return
	}
	pids := make([]int, len(r.children))
	for i, c := range r.children {
		pids[i] = c.cmd.Process.Pid
	}
	r.Began(pids)
}

// ended hears of the end of a process.
func (r *run) ended(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finishing {
		return
	}
	if r.KeepGoing && c.name != "subscriber" && len(r.died) < workers-1 {
		r.died = append(r.died, c.death().Error())
		return
	}
	r.fail(c.death())
}

// finish lets the processes read what is left and end.
func (r *run) finish() error {
	r.mu.Lock()
	r.finishing = true
	r.mu.Unlock()
	for _, c := range r.children {
		if !c.alive() {
			continue // ended has dealt with it
		}
		if err := c.finish(); err != nil {
			return err
		}
	}
	return nil
}

// measured is what was measured while frames flowed.
type measured struct {
	first    time.Duration // when the first frame was sent
	syscalls Syscalls
	seconds  float64
}

// feed sends all frames, part by part; each part has arrived before the next begins.
func (r *run) feed(ctx context.Context, f *feeder) (m measured, err error) {
	w := r.watch()
	defer w.close()
	if m.first, err = f.full(ctx, r.endFull); err != nil {
		return m, err
	}
	if err := w.arrived(ctx, r.endFull); err != nil {
		return m, err
	}
	counter := countCalls(ctx, r.Child, r.children[:workers])
	if _, err = f.full(ctx, r.endCounted); err == nil {
		err = w.arrived(ctx, r.endCounted)
	}
	m.syscalls = counter.stop()
	if err != nil {
		return m, err
	}
	if err := f.paced(ctx, r.Frames, pacedRate); err != nil {
		return m, err
	}
	return m, w.arrived(ctx, r.Frames)
}
