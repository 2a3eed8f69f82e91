package ring

import (
	"encoding/binary"
	"testing"
)

// These are the ring's own work for each frame, in one goroutine: no line comes from another core.
// What two processes make of it is what bench measures.

const benchBatch = 16

func benchPayloads() [][]byte {
	payloads := make([][]byte, benchBatch)
	for i := range payloads {
		payloads[i] = make([]byte, 48)
	}
	return payloads
}

// BenchmarkPublish publishes where nobody reads.
func BenchmarkPublish(b *testing.B) {
	for name, exclusive := range map[string]bool{"shared": false, "exclusive": true} {
		p := publisher(b, heap(b, Config{Capacity: 64 << 10, Exclusive: exclusive}), 0)
		payloads := benchPayloads()
		b.Run(name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				binary.LittleEndian.PutUint64(payloads[0], uint64(i)) // as an application would have just written it
				if err := p.TryPublish(payloads[0]); err != nil {     // must takes ten times as long
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/batch", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i += benchBatch {
				if _, err := p.TryPublishBatch(payloads); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPoll reads full rings.
func BenchmarkPoll(b *testing.B) {
	const capacity = 1 << 20
	r := heap(b, Config{Capacity: capacity})
	p, s, payloads := publisher(b, r, 0), reliable(b, r, 0), benchPayloads()
	bytes := 0
	one := func(f Frame) error { bytes += len(f.Payload); return nil }
	many := func(frames []Frame) error {
		for i := range frames {
			bytes += len(frames[i].Payload)
		}
		return nil
	}
	run := func(b *testing.B, poll func() (int, error)) {
		b.ReportAllocs()
		for i := 0; i < b.N; i += capacity / CellSize {
			b.StopTimer()
			for range capacity / CellSize / benchBatch {
				_, err := p.TryPublishBatch(payloads)
				must(b, err)
			}
			b.StartTimer()
			for n := 1; n > 0; {
				s.stream = stream{} // who reads what is there already trails nobody
				var err error
				n, err = poll()
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("one", func(b *testing.B) { run(b, func() (int, error) { return s.Poll(256, one) }) })
	b.Run("batch", func(b *testing.B) { run(b, func() (int, error) { return s.PollBatch(256, many) }) })
}
