package pump

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var errFull = errors.New("full")

// topic is a Publisher that keeps what it gets.
type topic struct {
	max     int
	room    int // frames that still fit; negative: any number
	frames  []string
	batches []int
	got     chan int // gets the size of each batch, if it is not nil
}

func newTopic(maxPayload int) *topic { return &topic{max: maxPayload, room: -1} }

func (p *topic) MaxPayload() int { return p.max }

// PublishBatch waits for ctx when the topic is full.
func (p *topic) PublishBatch(ctx context.Context, payloads [][]byte) (int, error) {
	for n, b := range payloads {
		if p.room == 0 {
			<-ctx.Done()
			return n, context.Cause(ctx)
		}
		p.room--
		p.frames = append(p.frames, string(b))
	}
	p.batches = append(p.batches, len(payloads))
	if p.got != nil {
		p.got <- len(payloads)
	}
	return len(payloads), nil
}

// feed is a Source that gives prepared frames, and prepared errors where a frame has none.
type feed struct {
	frames []any // ring.Frame or error
	asked  []int // limits
	ended  error // what Wait returns when there is nothing more; nil: it waits for ctx
	idle   func()
	held   bool // a frame was refused and comes again
}

func (s *feed) Poll(limit int, fn func(ring.Frame) error) (int, error) {
	s.asked = append(s.asked, limit)
	n := 0
	for len(s.frames) > 0 && n < limit {
		if err, ok := s.frames[0].(error); ok {
			if n > 0 {
				return n, nil
			}
			s.frames = s.frames[1:]
			return 0, err
		}
		err := fn(s.frames[0].(ring.Frame))
		if err != nil && err != ring.ErrStop {
			s.held = true
			return n, err
		}
		s.frames = s.frames[1:]
		n++
		if err != nil {
			return n, nil
		}
	}
	return n, nil
}

func (s *feed) Wait(ctx context.Context) error {
	if s.idle != nil {
		s.idle()
	}
	if s.ended != nil {
		return s.ended
	}
	<-ctx.Done()
	return ctx.Err()
}

func payloads(texts ...string) []any {
	var frames []any
	for i, text := range texts {
		frames = append(frames, ring.Frame{Payload: []byte(text), Position: ring.Position(64 * i), Source: 3})
	}
	return frames
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
