package ring

import "testing"

func BenchmarkPublishPollSameCore(b *testing.B) {
	r := heap(b, Config{Capacity: 1 << 20})
	p := publisher(b, r, 0)
	s := reliable(b, r, 0)
	msg := make([]byte, 48)
	nop := func(Frame) error { return nil }
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		if err := p.TryPublish(msg); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			s.Poll(64, nop)
		}
	}
}

func BenchmarkBatchPollSameCore(b *testing.B) {
	r := heap(b, Config{Capacity: 1 << 20})
	p := publisher(b, r, 0)
	s := reliable(b, r, 0)
	msgs := make([][]byte, 16)
	for i := range msgs {
		msgs[i] = make([]byte, 48)
	}
	nop := func(Frame) error { return nil }
	b.ReportAllocs()
	for i := 0; i < b.N; i += 16 {
		if _, err := p.TryPublishBatch(msgs); err != nil {
			b.Fatal(err)
		}
		if i%64 == 48 {
			s.Poll(64, nop)
		}
	}
}
