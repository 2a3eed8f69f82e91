package crowd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
)

// A wire is how a system's clients see a stream of payloads of one size: each has the same bytes in front of it and behind
// it, so that one reader does for all systems.
type wire struct {
	before, after []byte
	// subscribe makes a connection one that payloads come on. It may leave nothing read that belongs to them.
	subscribe func(c net.Conn) error
	// other takes what is no payload from the front of b: how many bytes, 0 if more must come first, and what to answer.
	other func(b []byte) (n int, answer []byte, err error)
}

const subject = "bench"

func (w *wire) unit(size int) int { return len(w.before) + size + len(w.after) }

// busWire is what hugebus egress sends.
func busWire(size int) *wire {
	return &wire{
		before:    binary.BigEndian.AppendUint32(nil, uint32(size)),
		subscribe: func(net.Conn) error { return nil },
		other: func(b []byte) (int, []byte, error) {
			switch {
			case len(b) < header:
				return 0, nil, nil
			case binary.BigEndian.Uint32(b) == 1<<32-1:
				return 0, nil, fmt.Errorf("the egress skipped this client forward: it reads too slowly, give a smaller --window or --rate")
			}
			return 0, nil, fmt.Errorf("a frame begins with % x instead of a length of %d", b[:min(len(b), header)], size)
		},
	}
}

// line takes a line from b.
func line(b []byte) (text string, n int) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return strings.TrimRight(string(b[:i]), "\r"), i + 1
	}
	return "", 0
}

// natsWire is NATS' own text protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol.
func natsWire(size int) *wire {
	return &wire{
		before: fmt.Appendf(nil, "MSG %s 1 %d\r\n", subject, size), after: []byte("\r\n"),
		subscribe: func(c net.Conn) error {
			if err := natsHello(c); err != nil {
				return err
			}
			return ask(c, "SUB "+subject+" 1\r\nPING\r\n", "PONG")
		},
		other: func(b []byte) (int, []byte, error) {
			text, n := line(b)
			switch {
			case n == 0 && len(b) < 512, strings.HasPrefix(text, "INFO "), text == "PONG":
				return n, nil, nil
			case text == "PING":
				return n, []byte("PONG\r\n"), nil
			}
			return 0, nil, fmt.Errorf("nats said %.80q", b)
		},
	}
}

// natsHello connects as a client that wants no acknowledgements.
func natsHello(c net.Conn) error {
	if err := ask(c, "", "INFO "); err != nil {
		return err
	}
	_, err := io.WriteString(c, `CONNECT {"verbose":false,"pedantic":false,"lang":"go","version":"1","protocol":0}`+"\r\n")
	return err
}

// redisWire is RESP2: https://redis.io/docs/latest/develop/reference/protocol-spec.
func redisWire(size int) *wire {
	return &wire{
		before: fmt.Appendf(nil, "*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n", len(subject), subject, size), after: []byte("\r\n"),
		subscribe: func(c net.Conn) error {
			return ask(c, fmt.Sprintf("*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n", len(subject), subject), ":1")
		},
		other: func(b []byte) (int, []byte, error) { return 0, nil, fmt.Errorf("redis said %.80q", b) },
	}
}

// ask sends text, and reads lines until one begins with want, and no byte more than that.
func ask(c net.Conn, text, want string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	var got []byte
	for one := make([]byte, 1); ; { // byte by byte: nothing is read ahead
		if _, err := io.ReadFull(c, one); err != nil {
			return err
		}
		if got = append(got, one[0]); one[0] != '\n' {
			continue
		}
		switch {
		case strings.HasPrefix(string(got), want):
			return nil
		case strings.HasPrefix(string(got), "-"):
			return fmt.Errorf("%s answered %.80q", c.RemoteAddr(), got)
		}
		got = got[:0]
	}
}
