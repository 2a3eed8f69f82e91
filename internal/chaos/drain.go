package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
)

// An EgressSpec describes an egress process.
type EgressSpec struct {
	Common
}

// Egress sends a topic to who connects to a free port of the loopback, until control says stop. It writes "ready ADDRESS", and "done"
// when it has ended and nothing of it is left in its process.
func Egress(spec EgressSpec, control *Control, say io.Writer) error {
	return serve(spec.Common, control, say, func(ctx context.Context, c *client.Client) (server, error) {
		return egress.New(ctx, c, spec.Topic, client.SubscriberOptions{Name: spec.Name}, egress.Config{
			Listen: "127.0.0.1:0", Writers: 1, CloseSlow: true, Logger: slog.New(slog.DiscardHandler),
		})
	}, func(server) string { return "done" })
}

// Drain reads what an egress sends, to the end of the connection, and calls got for each frame. The error is a frame that is not what
// a publisher has published, or that comes out of order. most is the most bytes of a payload.
func Drain(r io.Reader, most int, got func()) error {
	in, payload, next := bufio.NewReader(r), make([]byte, most), map[uint32]uint64{}
	for {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil // the end, however it came
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > uint32(most) {
			return fmt.Errorf("chaos: an egress sends a frame of %d bytes, and the longest payload has %d", n, most)
		}
		if _, err := io.ReadFull(in, payload[:n]); err != nil {
			return nil
		}
		publisher, seq, _, ok := Inspect(payload[:n])
		switch {
		case !ok:
			return fmt.Errorf("chaos: an egress sends a frame of %d bytes that nobody has published: %x", n, payload[:min(n, 64)])
		case publisher == Unknown:
		case seq < next[publisher]:
			return fmt.Errorf("chaos: an egress sends frame %d of publisher %d behind frame %d", seq, publisher, next[publisher]-1)
		default:
			next[publisher] = seq + 1
		}
		got()
	}
}
