package demo

import (
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/shm"
)

// A tally is what one reader has seen, in words of eight bytes:
//
//	word     count       what                              written by   read by
//	0        tallyWords  counters (the constants below)    the reader   the demo, also while it runs
//	16       2 × 4480    latencies: at full speed, paced   the reader   the demo, at the end
//	8976     n/64        bit i: frame i was seen           the reader   the demo, at the end
//	…        n/64        bit i: frame i was seen again     the reader   the demo, at the end
//
// All stores are releases by one writer. A frame is marked before it is acknowledged, so that what a reader had
// acknowledged when it was killed is never missing here.
type tally struct {
	segment *shm.Segment
	counter []atomic.Uint64
	latency [2][]atomic.Uint64
	seen    []atomic.Uint64
	again   []atomic.Uint64
}

// Counters of a tally.
const (
	tallyFrames      = iota // handled, duplicates and corrupted ones included
	tallyBytes              // of payload
	tallyCorrupted          // checksum or size is wrong
	tallyDuplicated         // seen before by the same reader
	tallyDisordered         // came after a frame with a higher number
	tallyRedelivered        // marked as handed out before
	tallyLastFull           // when the last frame of the first part was handled, ns
	tallyMaxFull            // highest latency of the first part, ns
	tallyMaxPaced           // highest latency of the last part, ns
	tallyWords       = 16   // the rest is free
)

// The two histograms.
const (
	latencyFull = iota
	latencyPaced
)

// Latencies are counted as HdrHistogram does: 128 buckets for each power of two, so that a value is known to 0.8%.
const (
	subBuckets = 128
	buckets    = 33*subBuckets + 2*subBuckets // up to 2^41 ns, half an hour
)

// bucketOf is the bucket of a latency in ns.
func bucketOf(ns uint64) int {
	e := max(bits.Len64(ns)-8, 0)
	return min(e*subBuckets+int(ns>>e), buckets-1)
}

// bucketValue is the middle of the latencies in a bucket, in ns.
func bucketValue(b int) uint64 {
	if b < 2*subBuckets {
		return uint64(b)
	}
	e := b/subBuckets - 1
	return uint64(b-e*subBuckets)<<e + 1<<e/2
}

func tallySize(frames uint64) int64 {
	return int64(tallyWords+2*buckets+2*((frames+63)/64)) * 8
}

// newTally makes one for a reader of numbered frames. Close it.
func newTally(name string, frames uint64) (*tally, error) {
	segment, err := shm.Create(shm.Options{Name: name, Size: tallySize(frames), Pages: shm.Pages4KiB})
	if err != nil {
		return nil, fmt.Errorf("memory for the tally of %s: %w", name, err)
	}
	return viewTally(segment, frames), nil
}

// openTally maps the tally that came as f, which it owns from now on. Close it.
func openTally(f *os.File, frames uint64) (*tally, error) {
	segment, err := shm.Open(f, true)
	if err != nil {
		return nil, fmt.Errorf("map the tally: %w", err)
	}
	if segment.Size() < tallySize(frames) {
		_ = segment.Close()
		return nil, fmt.Errorf("the tally has %d bytes, and %d frames take %d", segment.Size(), frames, tallySize(frames))
	}
	return viewTally(segment, frames), nil
}

func viewTally(segment *shm.Segment, frames uint64) *tally {
	words := wordsOf(segment.Bytes())
	t := &tally{segment: segment, counter: words[:tallyWords]}
	words = words[tallyWords:]
	for i := range t.latency {
		t.latency[i], words = words[:buckets], words[buckets:]
	}
	n := (frames + 63) / 64
	t.seen, t.again = words[:n], words[n:2*n]
	return t
}

func (t *tally) close() error { return t.segment.Close() }

// get reads a counter. A reader that runs may be in the middle of a frame.
func (t *tally) get(counter int) uint64 { return t.counter[counter].Load() }

// add and set are the reader's.
func (t *tally) add(counter int, n uint64) {
	arch.StoreRelease(&t.counter[counter], t.counter[counter].Load()+n)
}

func (t *tally) set(counter int, v uint64) { arch.StoreRelease(&t.counter[counter], v) }

// mark notes that frame seq was seen, and reports whether it had been before.
func (t *tally) mark(seq uint64) (before bool) {
	word, bit := &t.seen[seq/64], uint64(1)<<(seq%64)
	old := word.Load()
	if old&bit != 0 {
		again := &t.again[seq/64]
		arch.StoreRelease(again, again.Load()|bit)
		return true
	}
	arch.StoreRelease(word, old|bit)
	return false
}

// took counts a latency.
func (t *tally) took(histogram int, d time.Duration) {
	b := &t.latency[histogram][bucketOf(uint64(max(d, 0)))]
	arch.StoreRelease(b, b.Load()+1)
	most := tallyMaxFull + histogram
	if ns := uint64(max(d, 0)); ns > t.counter[most].Load() {
		t.set(most, ns)
	}
}
