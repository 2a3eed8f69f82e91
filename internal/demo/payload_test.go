package demo

import (
	"bytes"
	"math/rand"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestPayloadsSayWhatTheyAre(t *testing.T) {
	sizes := map[int]int{}
	total := 0
	for seq := range uint64(20_000) {
		b := payload(seq, time.Duration(seq)+5)
		got, sent, ok := inspect(b)
		if !ok || got != seq || sent != time.Duration(seq)+5 {
			t.Fatalf("frame %d says %d, %v, %v", seq, got, sent, ok)
		}
		if len(b) < headerSize || len(b) > maxPayload {
			t.Fatalf("frame %d has %d bytes", seq, len(b))
		}
		sizes[len(b)]++
		total += len(b)
	}
	if mean := total / 20_000; mean < 200 || mean > 400 || len(sizes) < 1000 {
		t.Errorf("%d bytes on average, %d sizes", mean, len(sizes))
	}
}

func TestAnyChangeOfAPayloadIsSeen(t *testing.T) {
	rng := rand.New(rand.NewSource(testutil.Seed(t)))
	for range 5000 {
		seq := uint64(rng.Intn(1000))
		b := payload(seq, time.Duration(rng.Int63()))
		bit := rng.Intn(8 * len(b))
		if at := bit / 8; at >= 20 && at < 24 && rng.Intn(2) == 0 {
			continue // both halves of that word are covered all the same
		}
		b[bit/8] ^= 1 << (bit % 8)
		if _, _, ok := inspect(b); ok {
			t.Fatalf("frame %d with bit %d turned passes", seq, bit)
		}
	}
	b := payload(7, 0)
	for _, wrong := range [][]byte{nil, b[:8], b[:headerSize-1], b[:len(b)-1], append(bytes.Clone(b), 0)} {
		if _, _, ok := inspect(wrong); ok {
			t.Errorf("%d bytes of %d pass", len(wrong), len(b))
		}
	}
}
