package link

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// natsMaxPayload is what the server is told to take, in bytes; its own default is 1 MiB.
const natsMaxPayload = 8 << 20

// natsLink is core NATS: a subject each way.
type natsLink struct {
	conn *nats.Conn
	sub  *nats.Subscription
	out  string
}

func openNATS(s Spec, side Side) (_ Link, err error) {
	// The subjects are the link's own, so that rounds do not hear each other.
	in, out := names(s)
	if side == Back {
		in, out = out, in
	}
	l := &natsLink{out: out}
	if l.conn, err = nats.Connect(s.Server, nats.Name("bench"), nats.NoReconnect()); err != nil {
		return nil, err
	}
	l.sub, err = l.conn.SubscribeSync(in)
	if err == nil {
		err = errors.Join(l.sub.SetPendingLimits(-1, -1), l.conn.Flush()) // now the server knows of it
	}
	if err != nil {
		l.conn.Close()
		return nil, err
	}
	return l, nil
}

// Send leaves it to the library when to write: it has a goroutine for that, which
// writes at once what there is.
func (l *natsLink) Send(payload []byte) error { return l.conn.Publish(l.out, payload) }

func (l *natsLink) Flush() error { return nil }

func (l *natsLink) Receive(handle func([]byte) error) error {
	m, err := l.sub.NextMsgWithContext(context.Background())
	if err != nil {
		return err
	}
	return handle(m.Data)
}

func (l *natsLink) Close() error {
	l.conn.Close()
	return nil
}
