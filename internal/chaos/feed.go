package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/ingress"
)

// An IngressSpec describes an ingress process, with one lane.
type IngressSpec struct {
	Common
}

// Ingress accepts TCP on a free port of the loopback until control says stop, and then publishes what it has received. It writes
// "ready ADDRESS", and "done FRAMES 0" when it has ended and nothing of it is left in its process.
func Ingress(spec IngressSpec, control *Control, say io.Writer) error {
	return serve(spec.Common, control, say, func(ctx context.Context, c *client.Client) (server, error) {
		return ingress.New(ctx, c, spec.Topic, ingress.Config{Listen: "127.0.0.1:0", Lanes: 1, Logger: slog.New(slog.DiscardHandler)})
	}, func(in server) string { return fmt.Sprint("done ", in.(*ingress.Ingress).Stats().Frames, " 0") })
}

// A Feeder sends a publisher's frames to an ingress over one connection. It is for one goroutine.
type Feeder struct {
	publisher uint32
	most      int
	conn      net.Conn
	out       *bufio.Writer
	frame     []byte
	tried     uint64
}

// NewFeeder connects to an ingress, for a publisher's number that nobody else has. most is the most bytes of a payload.
func NewFeeder(ctx context.Context, address string, publisher uint32, most int) (*Feeder, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return &Feeder{publisher: publisher, most: most, conn: conn, out: bufio.NewWriter(conn), frame: make([]byte, 4+most)}, nil
}

// Tried is how many frames may have been sent.
func (f *Feeder) Tried() uint64 { return f.tried }

// Send sends n frames. An error is that of the connection: the ingress has died, or ends.
func (f *Feeder) Send(n int) error {
	for range n {
		size := Length(f.publisher, f.tried, f.most)
		binary.BigEndian.PutUint32(f.frame, uint32(size))
		Fill(f.frame[4:4+size], f.publisher, f.tried)
		f.tried++
		if _, err := f.out.Write(f.frame[:4+size]); err != nil {
			return fmt.Errorf("chaos: %w", err)
		}
	}
	if err := f.out.Flush(); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	return nil
}

// Finish ends the stream and waits for the ingress to close the connection, which it does when all frames are published. It
// returns whether it did.
func (f *Feeder) Finish() bool {
	tcp, ok := f.conn.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil {
		return false
	}
	_, err := f.conn.Read(make([]byte, 1))
	return err == io.EOF
}

// Close ends the connection.
func (f *Feeder) Close() error { return f.conn.Close() }
