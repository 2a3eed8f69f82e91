package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/crowd"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// crowdFlags are those of the subcommands with many TCP connections.
type crowdFlags struct {
	busFlags
	counts []int    // connections of each load
	rates  []string // the rate of each
	flag   string   // what counts is called
}

func (c *crowdFlags) register(cmd *cobra.Command, flag, size string, counts []int, rates []string, countHelp, rateHelp string) {
	c.flag = flag
	f := cmd.Flags()
	f.IntSliceVar(&c.counts, flag, counts, countHelp)
	f.StringSliceVar(&c.rates, "rate", rates, rateHelp)
	f.StringSliceVar(&c.sizes, "size", []string{size}, fmt.Sprintf("payload size, from %d bytes", crowd.MinPayload))
	f.StringVar(&c.capacity, "capacity", "64MiB", "capacity of a topic, a power of two")
	f.StringVar(&c.pages, "pages", "auto", "pages of a topic: auto, 1GiB, 2MiB, thp or 4KiB")
	f.StringVar(&c.wait, "wait", "adaptive", "how the bus waits: spin, adaptive, yield, sleep")
	f.DurationVar(&c.rawTime, "raw-duration", rawDuration, "how long each way of the raw measurements runs in each round")
	hide(cmd, "count")
}

// loads checks the flags, and makes a shape of each number of connections and its rate. "max" is a rate only where flatOut says so.
func (c *crowdFlags) loads(changed func(string) bool, flatOut bool) ([]crowd.Shape, client.TopicOptions, error) {
	topic := client.TopicOptions{Pages: c.pages}
	err := c.check(changed)
	if err != nil {
		return nil, topic, err
	}
	if _, err := shm.ParsePages(c.pages); err != nil {
		return nil, topic, fmt.Errorf("--pages: %w", err)
	}
	if c.rawTime <= 0 {
		return nil, topic, fmt.Errorf("--raw-duration %v: use more than 0", c.rawTime)
	}
	if _, err := client.ParseWait(c.wait); err != nil {
		return nil, topic, fmt.Errorf("--wait: %w", err)
	}
	if topic.Capacity, err = c.topicCapacity(); err != nil {
		return nil, topic, err
	}
	sizes, err := parseSizes(c.sizes, crowd.MinPayload, int64(min(ring.MaxPayload(uint64(topic.Capacity)), maxCrowdPayload)))
	if err != nil {
		return nil, topic, err
	}
	switch {
	case c.duration == 0:
		return nil, topic, errors.New("--duration 0: an open loop is bounded by time")
	case len(c.counts) != len(c.rates) || len(c.counts) == 0:
		return nil, topic, fmt.Errorf("--%s has %d numbers and --rate %d: give a rate for each, as in --%s 1000,10000 --rate 1k,20", c.flag, len(c.counts), len(c.rates), c.flag)
	}
	var shapes []crowd.Shape
	for _, size := range sizes {
		for i, n := range c.counts {
			s := crowd.Shape{Connections: n, Size: int(size), Duration: c.duration, Wait: c.wait}
			if n < 1 || n > crowd.MaxConnections {
				return nil, topic, fmt.Errorf("--%s %d: use from 1 to %d: one process has no more ports to one address", c.flag, n, crowd.MaxConnections)
			}
			if c.rates[i] != "max" || !flatOut {
				if s.Rate, err = parseRate(c.rates[i]); err != nil {
					return nil, topic, err
				}
			}
			shapes = append(shapes, s)
		}
	}
	return shapes, topic, nil
}

// maxCrowdPayload bounds payloads, in bytes: a connection's reads hold several.
const maxCrowdPayload = 64 << 10

// fitting leaves out what this process has too few descriptors for, and says so; an error if nothing is left.
func fitting(shapes []crowd.Shape) (fit []crowd.Shape, notes []string, err error) {
	for _, s := range shapes {
		if missing := crowd.CheckFiles(s.Connections); missing != nil {
			notes = append(notes, fmt.Sprintf("Not measured: %v.", missing))
			err = missing
			continue
		}
		fit = append(fit, s)
	}
	if len(fit) > 0 {
		err = nil
	}
	return fit, notes, err
}
