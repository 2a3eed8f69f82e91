package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// busFlags are the flags of the subcommands that measure the bus.
type busFlags struct {
	common
	mode     string
	claim    bool
	write    string
	read     string
	capacity string
	pages    string
	wait     string
	pause    uint32
	limit    int
	handler  string
	rawTime  time.Duration
}

func (b *busFlags) register(cmd *cobra.Command, capacity string) {
	f := cmd.Flags()
	f.StringSliceVar(&b.sizes, "size", []string{"48"}, "payload sizes, each from 8 bytes")
	f.IntSliceVar(&b.batches, "batch", []int{1}, "frames of one publish; 1: a call for each, more: PublishBatch")
	f.StringVar(&b.mode, "mode", "shared", "kind of topic: shared (any number of publishers) or exclusive (one)")
	f.BoolVar(&b.claim, "claim", false, "claim room and write in place, instead of a publish that copies")
	f.StringVar(&b.write, "write", "all", "with --claim: write all of a payload, or just its seq (first 8 bytes)")
	f.StringVar(&b.read, "read", "seq", "read just the seq (first 8 bytes) of most payloads, or all of each")
	f.StringVar(&b.capacity, "capacity", capacity, "capacity of a topic, a power of two")
	f.StringVar(&b.pages, "pages", "auto", "pages of a topic: auto, 1GiB, 2MiB, thp or 4KiB")
	f.StringVar(&b.wait, "wait", "spin", "how to wait: spin, adaptive, yield, sleep; or poll: nothing but Poll in a loop")
	f.Uint32Var(&b.pause, "pause", 1, "with --wait poll: PAUSE instructions after a poll that found nothing")
	f.DurationVar(&b.rawTime, "raw-duration", 60*time.Millisecond, "how long each way of the raw measurements runs in each round")
	f.StringVar(&b.handler, "handler", "many", "how a stream is read: one (Poll) or many (PollBatch) frames for each call of the handler")
	f.IntVar(&b.limit, "poll-limit", 256, "frames that one poll takes at most")
}

// plan checks the flags and makes a plan of them.
func (b *busFlags) plan(changed func(string) bool) (workload.Plan, error) {
	var p workload.Plan
	if err := b.check(changed); err != nil {
		return p, err
	}
	if err := checkBatches(b.batches); err != nil {
		return p, err
	}
	capacity, err := b.topicCapacity()
	if err != nil {
		return p, err
	}
	if p.Sizes, err = parseSizes(b.sizes, workload.MinPayload, ring.MaxCapacity); err != nil {
		return p, err
	}
	for _, size := range p.Sizes {
		if err := workload.CheckSize(size, capacity); err != nil {
			return p, err
		}
	}
	if err := b.checkWords(); err != nil {
		return p, err
	}
	p.Batches = b.batches
	p.Topic = client.TopicOptions{Capacity: capacity, Pages: b.pages, Exclusive: b.mode == "exclusive"}
	p.Shape = workload.Params{
		Count: b.count, Nanoseconds: int64(b.duration), Wait: b.wait, Pause: b.pause, Limit: b.limit,
		Claim: b.claim, SeqOnly: b.write == "seq", ReadAll: b.read == "all", One: b.handler == "one",
	}
	return p, nil
}

func (b *busFlags) topicCapacity() (int64, error) {
	capacity, err := shm.ParseSize(b.capacity)
	if err != nil {
		return 0, fmt.Errorf("--capacity: %w", err)
	}
	if capacity < ring.MinCapacity || capacity > ring.MaxCapacity || capacity&(capacity-1) != 0 {
		return 0, fmt.Errorf("--capacity %s: use a power of two from %s to %s", b.capacity,
			shm.FormatSize(ring.MinCapacity), shm.FormatSize(ring.MaxCapacity))
	}
	return capacity, nil
}

// checkWords looks at the flags that take one of a few words, and what goes together.
func (b *busFlags) checkWords() error {
	if b.mode != "shared" && b.mode != "exclusive" {
		return fmt.Errorf("--mode %q: use shared or exclusive", b.mode)
	}
	if b.write != "all" && b.write != "seq" {
		return fmt.Errorf("--write %q: use all or seq", b.write)
	}
	if b.read != "all" && b.read != "seq" {
		return fmt.Errorf("--read %q: use seq or all", b.read)
	}
	if b.handler != "one" && b.handler != "many" {
		return fmt.Errorf("--handler %q: use one or many", b.handler)
	}
	if b.write == "seq" && !b.claim {
		return fmt.Errorf("--write seq: a publish that copies writes all; give --claim too")
	}
	if b.claim && (len(b.batches) != 1 || b.batches[0] != 1) {
		return fmt.Errorf("--claim: a claim is one frame; use --batch 1")
	}
	if b.limit < 1 {
		return fmt.Errorf("--poll-limit %d: use at least 1", b.limit)
	}
	if b.rawTime <= 0 {
		return fmt.Errorf("--raw-duration %v: use more than 0", b.rawTime)
	}
	if _, err := shm.ParsePages(b.pages); err != nil {
		return fmt.Errorf("--pages: %w", err)
	}
	if err := workload.ParseWait(b.wait); err != nil {
		return fmt.Errorf("--wait: %w", err)
	}
	return nil
}
