package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/arch"
)

// WaitPoll is the name of a way to wait that is none of package client's: Poll again
// and again, with Params.Pause PAUSE instructions in between.
const WaitPoll = "poll"

// ParseWait checks the name of a way to wait: poll, or one of package client's.
func ParseWait(name string) error {
	if name == WaitPoll {
		return nil
	}
	if _, err := client.ParseWait(name); err != nil {
		return fmt.Errorf("unknown way to wait %q: use poll, spin, adaptive, yield or sleep", name)
	}
	return nil
}

// Params are what all workers of one case are told.
type Params struct {
	Socket string `json:"socket"`
	// Size is that of payloads, Batch the number of frames of one publish.
	Size  int `json:"size"`
	Batch int `json:"batch"`
	// Count and Nanoseconds bound what is timed; 0: no bound.
	Count       int64 `json:"count"`
	Nanoseconds int64 `json:"ns"`
	// Warm is how many frames are sent before the clock runs.
	Warm  uint64 `json:"warm"`
	Wait  string `json:"wait"`
	Pause uint32 `json:"pause"`
	// Claim writes in place. SeqOnly then writes nothing but the sequence number of most frames.
	Claim   bool `json:"claim"`
	SeqOnly bool `json:"seq_only"`
	// ReadAll reads every byte of every frame.
	ReadAll bool `json:"read_all"`
	// Counting counts page faults and TLB misses.
	Counting bool `json:"counting,omitempty"`
	// One: frames are read by Poll, and not by PollBatch.
	One bool `json:"one"`
	// Limit is how many frames a Poll takes at most.
	Limit int `json:"limit"`
}

// An end is what a worker has of the bus, for one task.
type end struct {
	params Params
	ctx    context.Context
	client *client.Client
	lane   *client.Lane
	sub    *client.Subscriber
	poll   bool
	// attached is how long it took to attach, behind the connection to the broker.
	attached time.Duration
}

// attach dials the broker, attaches to the topics named ("" is none), and waits for the others.
func attach(t *worker.Task, p Params, publish, subscribe string) (*end, error) {
	e, err := attachTo(p, publish, subscribe)
	if err != nil {
		return nil, err
	}
	if err := t.Await(); err != nil {
		return nil, joinClose(err, e)
	}
	return e, nil
}

// attachTo is attach without the wait.
func attachTo(p Params, publish, subscribe string) (_ *end, err error) {
	e := &end{params: p, ctx: context.Background(), poll: p.Wait == WaitPoll}
	wait := client.WaitSpin
	if !e.poll {
		if wait, err = client.ParseWait(p.Wait); err != nil {
			return nil, err
		}
	}
	if e.client, err = client.Dial(e.ctx, client.Options{Socket: p.Socket, Name: "bench"}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.client.Close())
		}
	}()
	before := time.Now()
	if publish != "" {
		if e.lane, err = e.client.Lane(e.ctx, publish, client.PublisherOptions{Wait: wait}); err != nil {
			return nil, err
		}
	}
	if subscribe != "" {
		if e.sub, err = e.client.Subscriber(e.ctx, subscribe, client.SubscriberOptions{Wait: wait}); err != nil {
			return nil, err
		}
	}
	e.attached = time.Since(before)
	return e, nil
}

// idle is called when a Poll has found nothing.
func (e *end) idle() error {
	if e.poll {
		if e.params.Pause != 0 {
			arch.Pause(e.params.Pause)
		}
		return nil
	}
	return e.sub.Wait(e.ctx)
}

// full is called when a publisher has found no room.
func (e *end) full() {
	if e.params.Pause != 0 {
		arch.Pause(e.params.Pause)
	}
}

// close detaches from everything.
func (e *end) close() error { return e.client.Close() }

// joinClose closes e because of err, which matters more.
func joinClose(err error, e *end) error { return errors.Join(err, e.close()) }
