package crowd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hugebus/hugebus/client"
)

// A publisher publishes payloads, many with one call.
type publisher interface {
	publish(payloads [][]byte) error
	close() error
}

// openPublisher connects one.
func (s PushShape) openPublisher() (publisher, error) {
	switch s.System {
	case NATS:
		p, err := dialText(s.Address, fmt.Sprintf("PUB %s %d\r\n", subject, s.Size))
		if err != nil {
			return nil, err
		}
		if err := natsHello(p.conn); err != nil {
			return nil, errors.Join(err, p.conn.Close())
		}
		p.listen("PING\r\n", "PONG\r\n")
		return p, nil
	case Redis:
		p, err := dialText(s.Address, fmt.Sprintf("*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$%d\r\n", len(subject), subject, s.Size))
		if err != nil {
			return nil, err
		}
		p.listen("", "")
		return p, nil
	}
	c, err := s.dial("publisher")
	if err != nil {
		return nil, err
	}
	lane, err := c.Lane(context.Background(), s.Topic, client.PublisherOptions{Wait: s.wait()})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &busPublisher{c, lane}, nil
}

type busPublisher struct {
	client *client.Client
	lane   *client.Lane
}

func (p *busPublisher) publish(payloads [][]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for len(payloads) > 0 {
		n, err := p.lane.PublishBatch(ctx, payloads)
		if err != nil {
			return err
		}
		payloads = payloads[n:]
	}
	return nil
}

func (p *busPublisher) close() error { return p.client.Close() }

// A textPublisher writes commands of a text protocol, many with one write.
type textPublisher struct {
	conn   net.Conn
	before string
	out    []byte
	ended  chan struct{}
}

func dialText(address, before string) (*textPublisher, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	return &textPublisher{conn: c, before: before, ended: make(chan struct{})}, err
}

// listen takes what the server says, and answers what it asks.
func (p *textPublisher) listen(asks, answer string) {
	go func() {
		defer close(p.ended)
		b := make([]byte, 64<<10)
		for {
			n, err := p.conn.Read(b)
			if err != nil {
				return // closed, here or there; then a write fails too
			}
			if asks != "" && string(b[:n]) == asks {
				_, _ = io.WriteString(p.conn, answer) // a broken connection is noticed by the next publish
			}
		}
	}()
}

func (p *textPublisher) publish(payloads [][]byte) error {
	p.out = p.out[:0]
	for _, b := range payloads {
		p.out = append(append(append(p.out, p.before...), b...), "\r\n"...)
	}
	_, err := p.conn.Write(p.out)
	return err
}

func (p *textPublisher) close() error {
	err := p.conn.Close()
	<-p.ended
	return err
}
