package client_test

import (
	"testing"

	"github.com/hugebus/hugebus/client"
)

// benchmarkLane is what publishing 48 bytes costs while nobody reads, so that no cache
// line moves: the instructions of the path, and nothing else.
func benchmarkLane(b *testing.B, publish func(l *client.Lane, payload []byte) error) {
	l, err := publisher(b, newTopic(b, client.TopicOptions{})).Lane(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 48)
	b.ReportAllocs()
	for b.Loop() {
		if err := publish(l, payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLaneTryPublish(b *testing.B) {
	benchmarkLane(b, func(l *client.Lane, payload []byte) error { return l.TryPublish(payload) })
}

func BenchmarkLaneClaim(b *testing.B) {
	benchmarkLane(b, func(l *client.Lane, payload []byte) error {
		c, err := l.TryClaim(len(payload))
		if err != nil {
			return err
		}
		copy(c.Payload, payload)
		return c.Commit()
	})
}

// BenchmarkPoll is what reading 48 bytes costs, 1,024 frames at a time, from the core that wrote them.
func BenchmarkPoll(b *testing.B) {
	const frames = 1024
	c := newTopic(b, client.TopicOptions{Capacity: 1 << 20})
	s := subscriber(b, c, client.SubscriberOptions{})
	p := publisher(b, c)
	payload := make([]byte, 48)
	take := func(client.Frame) error { return nil }
	left := 0
	b.ReportAllocs()
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			for left = 0; left < frames; left++ {
				if err := p.TryPublish(payload); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
		}
		n, err := s.Poll(1, take)
		if err != nil {
			b.Fatal(err)
		}
		left -= n
	}
}
