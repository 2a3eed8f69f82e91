package demo

import (
	"math/bits"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Result is what a run has found. Times are in nanoseconds, sizes in bytes of payload.
type Result struct {
	OK       bool    `json:"ok"`
	Frames   uint64  `json:"frames"`
	Bytes    uint64  `json:"bytes"`
	Seconds  float64 `json:"seconds"` // all of it, from start to end
	Capacity int64   `json:"capacity"`
	Pages    string  `json:"pages"`

	// FullSpeed is the part in which frames were sent as fast as they were taken. Queues are full then, so its latency
	// is mostly waiting.
	FullSpeed Speed `json:"full_speed"`
	// Paced is the part in which frames were sent at a steady rate.
	Paced Speed `json:"paced"`

	Syscalls Syscalls `json:"syscalls_in_a_worker"`

	// Group and Broadcast say how the frames arrived at the workers, and at the subscriber.
	Group     Arrival  `json:"group"`
	Broadcast Arrival  `json:"broadcast"`
	Died      []string `json:"died,omitempty"`

	// Lost, Duplicated and Corrupted are those of the group and of the subscriber together.
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Corrupted  uint64 `json:"corrupted"`
}

// A Speed is what one part has measured. Latencies are from right before the frame was given to the sender's TCP socket
// to the worker's handler.
type Speed struct {
	Frames          uint64  `json:"frames"`
	Bytes           uint64  `json:"bytes"`
	Seconds         float64 `json:"seconds,omitempty"` // from the first send until everybody had everything
	FramesPerSecond float64 `json:"frames_per_s"`
	BytesPerSecond  float64 `json:"bytes_per_s"`
	P50             int64   `json:"p50_ns"`
	P90             int64   `json:"p90_ns"`
	P99             int64   `json:"p99_ns"`
	P999            int64   `json:"p999_ns"`
	Max             int64   `json:"max_ns"`
}

// An Arrival counts frames by how they arrived.
type Arrival struct {
	Once       uint64 `json:"once"`       // exactly once, as it should be
	Lost       uint64 `json:"lost"`       // never
	Duplicated uint64 `json:"duplicated"` // deliveries beyond the first
	Corrupted  uint64 `json:"corrupted"`  // deliveries with a wrong checksum or size
	Disordered uint64 `json:"disordered"` // behind a frame with a higher number (only the subscriber sees an order)
	// Redelivered counts deliveries that were marked as such.
	Redelivered uint64 `json:"redelivered"`
	// Shares are how many frames each reader handled.
	Shares []uint64 `json:"shares"`
}

func (a Arrival) ok(frames uint64) bool {
	return a.Once == frames && a.Lost+a.Duplicated+a.Corrupted+a.Disordered == 0
}

// result puts together what the tallies say. No reader runs any more.
func (r *run) result(m measured) Result {
	byWorkers := make([]*tally, workers)
	for i := range byWorkers {
		byWorkers[i] = r.children[i].tally
	}
	subscriber := r.children[workers].tally
	out := Result{
		Frames: r.Frames, Bytes: bytesOf(0, r.Frames), Seconds: m.seconds,
		Capacity: r.bus.topic.Capacity, Pages: r.bus.topic.Pages,
		Syscalls: m.syscalls, Died: r.died,
		Group: arrival(byWorkers, r.Frames), Broadcast: arrival([]*tally{subscriber}, r.Frames),
	}
	out.Group.Disordered = 0 // what a member gets is in order only among the ranges that it claims itself
	out.FullSpeed = speed(0, r.endFull, latencyFull, byWorkers)
	last := subscriber.get(tallyLastFull)
	for _, t := range byWorkers {
		last = max(last, t.get(tallyLastFull))
	}
	if took := time.Duration(last) - m.first; took > 0 {
		s := &out.FullSpeed
		s.Seconds = took.Seconds()
		s.FramesPerSecond, s.BytesPerSecond = float64(s.Frames)/s.Seconds, float64(s.Bytes)/s.Seconds
	}
	out.Paced = speed(r.endCounted, r.Frames, latencyPaced, byWorkers)
	out.Paced.FramesPerSecond = pacedRate
	out.Paced.BytesPerSecond = pacedRate * float64(out.Paced.Bytes) / float64(out.Paced.Frames)
	out.Lost = out.Group.Lost + out.Broadcast.Lost
	out.Duplicated = out.Group.Duplicated + out.Broadcast.Duplicated
	out.Corrupted = out.Group.Corrupted + out.Broadcast.Corrupted
	out.OK = out.Group.ok(r.Frames) && out.Broadcast.ok(r.Frames)
	return out
}

// bytesOf is the payload of the frames from begin up to end.
func bytesOf(begin, end uint64) uint64 {
	var n uint64
	for seq := begin; seq < end; seq++ {
		n += uint64(payloadSize(seq))
	}
	return n
}

// arrival looks at readers of which each frame should reach exactly one.
func arrival(readers []*tally, frames uint64) Arrival {
	a := Arrival{Lost: frames}
	for _, t := range readers {
		a.Duplicated += t.get(tallyDuplicated)
		a.Corrupted += t.get(tallyCorrupted)
		a.Disordered += t.get(tallyDisordered)
		a.Redelivered += t.get(tallyRedelivered)
		a.Shares = append(a.Shares, t.get(tallyFrames))
	}
	for i := range readers[0].seen {
		var any, twice, more uint64 // seen by some reader, by two, by one of them more than once
		for _, t := range readers {
			word := t.seen[i].Load()
			a.Duplicated += uint64(bits.OnesCount64(any & word))
			twice |= any & word
			any |= word
			more |= t.again[i].Load()
		}
		a.Lost -= uint64(bits.OnesCount64(any))
		a.Once += uint64(bits.OnesCount64(any &^ twice &^ more))
	}
	return a
}

// speed puts the latencies of some readers together.
func speed(begin, end uint64, histogram int, readers []*tally) Speed {
	s := Speed{Frames: end - begin, Bytes: bytesOf(begin, end)}
	h := hdrhistogram.New(1, int64(bucketValue(buckets-1)), 3)
	for _, t := range readers {
		for b := range t.latency[histogram] {
			if n := t.latency[histogram][b].Load(); n > 0 {
				_ = h.RecordValues(int64(bucketValue(b)), int64(n)) // in range by construction
			}
		}
		s.Max = max(s.Max, int64(t.get(tallyMaxFull+histogram)))
	}
	q := func(p float64) int64 { return min(h.ValueAtQuantile(p), s.Max) }
	s.P50, s.P90, s.P99, s.P999 = q(50), q(90), q(99), q(99.9)
	return s
}
