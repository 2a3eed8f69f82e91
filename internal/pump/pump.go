// Package pump moves frames between a topic and plain byte streams, for the command line: lines of text, or generated
// frames, into a topic; the frames of a topic onto an output in one of several formats.
package pump

import (
	"context"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// A Publisher takes batches of payloads; *client.Lane is one.
type Publisher interface {
	// PublishBatch publishes in order, and waits while the topic is full, until ctx ends. It returns how many it
	// published, also with an error, and does not keep the slices.
	PublishBatch(ctx context.Context, payloads [][]byte) (int, error)
	// MaxPayload is the largest payload, in bytes.
	MaxPayload() int
}

// Totals says what was moved.
type Totals struct {
	Frames uint64
	Bytes  uint64        // of payload
	Took   time.Duration // from the start to the last frame

	// Left is how many bytes of an unfinished line were read when a stop was asked for. They are no frame.
	Left int
	// GivenUp is how many frames were read and are not in the topic.
	GivenUp int
}

// String says it in a line: frames, bytes and rate.
func (t Totals) String() string {
	s := fmt.Sprintf("%d frames, %d bytes in %s", t.Frames, t.Bytes, t.Took.Round(time.Millisecond))
	if sec := t.Took.Seconds(); sec > 0 && t.Frames > 0 {
		s += fmt.Sprintf(" (%.0f frames/s, %.1f MB/s)", float64(t.Frames)/sec, float64(t.Bytes)/sec/1e6)
	}
	return s
}

// publish publishes a batch and counts it.
func (t *Totals) publish(ctx context.Context, p Publisher, batch [][]byte) error {
	n, err := p.PublishBatch(ctx, batch)
	t.Frames += uint64(n)
	for _, b := range batch[:n] {
		t.Bytes += uint64(len(b))
	}
	t.GivenUp += len(batch) - n
	return err
}

// remedy says what takes a payload of size bytes.
func remedy(size int) string {
	if c := ring.CapacityFor(size); c != 0 {
		return fmt.Sprintf("split it, or create the topic with --capacity %s and no lower --max-payload", shm.FormatSize(int64(c)))
	}
	return "split it: no topic is large enough"
}
