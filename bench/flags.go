package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/host"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/shm"
)

// common are the flags of every subcommand.
type common struct {
	sizes    []string
	batches  []int
	count    int64
	duration time.Duration
	cores    string
	rounds   int
	workers  int // processes, two if 0; they take turns on the two cores
	output
}

func (c *common) register(cmd *cobra.Command, duration time.Duration) {
	f := cmd.Flags()
	f.Int64Var(&c.count, "count", 0, "how many to measure in each round; 0: as many as --duration allows")
	f.DurationVar(&c.duration, "duration", duration, "how long to measure in each round; 0: until --count")
	f.StringVar(&c.cores, "cores", "auto", "two cores to pin to, as A,B; auto: the first two that are allowed; none: do not pin")
	f.IntVar(&c.rounds, "rounds", 5, "interleaved rounds that the medians are taken over")
	c.output.register(f)
}

// check looks at what every subcommand has. changed says whether a flag was given.
func (c *common) check(changed func(string) bool) error {
	if c.count > 0 && !changed("duration") {
		c.duration = 0
	}
	switch {
	case c.rounds < 1:
		return fmt.Errorf("--rounds %d: use at least 1", c.rounds)
	case c.count < 0:
		return fmt.Errorf("--count %d is negative: use 0 for no bound", c.count)
	case c.duration < 0:
		return fmt.Errorf("--duration %v is negative: use 0 for no bound", c.duration)
	case c.count == 0 && c.duration == 0:
		return errors.New("nothing bounds a round: give --count or --duration")
	}
	return c.output.check()
}

// parseSizes reads a list of sizes such as 48 or 1KiB, each from least to most.
func parseSizes(texts []string, least, most int64) ([]int64, error) {
	var sizes []int64
	for _, text := range texts {
		n, err := shm.ParseSize(text)
		if err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
		if n < least || n > most {
			return nil, fmt.Errorf("--size %s: use from %d to %d bytes", text, least, most)
		}
		sizes = append(sizes, n)
	}
	if len(sizes) == 0 {
		return nil, errors.New("--size is empty: give one size or several, as in 48,1KiB")
	}
	return sizes, nil
}

// maxBatch bounds --batch.
const maxBatch = 65536

func checkBatches(batches []int) error {
	if len(batches) == 0 {
		return errors.New("--batch is empty: give one number or several, as in 1,16")
	}
	for _, n := range batches {
		if n < 1 || n > maxBatch {
			return fmt.Errorf("--batch %d: use from 1 to %d", n, maxBatch)
		}
	}
	return nil
}

// parseCores reads --cores for two workers. Fewer allowed cores than two, with auto, give the one
// core twice.
func parseCores(text string) ([]int, error) {
	if text == "none" {
		return []int{worker.Unpinned, worker.Unpinned}, nil
	}
	allowed, err := sys.AllowedCPUs()
	if err != nil {
		return nil, fmt.Errorf("--cores: which cores are allowed: %w", err)
	}
	if text == "auto" {
		return host.Pair(allowed), nil
	}
	a, b, ok := strings.Cut(text, ",")
	first, errA := strconv.Atoi(a)
	second, errB := strconv.Atoi(b)
	if !ok || errA != nil || errB != nil {
		return nil, fmt.Errorf("--cores %q: use two numbers such as 0,1, or auto, or none", text)
	}
	for _, core := range []int{first, second} {
		if !slices.Contains(allowed, core) {
			return nil, fmt.Errorf("--cores %s: this process may not run on core %d; allowed: %v", text, core, allowed)
		}
	}
	return []int{first, second}, nil
}

// formatCores is for settings in results.
func formatCores(cores []int) string {
	if cores[0] == worker.Unpinned {
		return "any"
	}
	return fmt.Sprintf("%d,%d", cores[0], cores[1])
}
