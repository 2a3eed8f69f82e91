package link

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// A Link is one side's end of a connection between two processes. Each direction
// keeps order and loses nothing. It is for one goroutine.
type Link interface {
	// Send hands a payload over. It may stay here until Flush. The payload is the caller's
	// again when Send returns.
	Send(payload []byte) error
	// Flush lets everything go that was sent, without waiting for the other side unless
	// the system cannot do otherwise.
	Flush() error
	// Receive waits until at least one payload is there, and hands those that are to
	// handle, each valid until handle returns. It ends with handle's error.
	Receive(handle func(payload []byte) error) error
	// Close ends this side.
	Close() error
}

// A Side says which end of a link this is.
type Side int

const (
	// Front sends first; of a one-way stream it is the publisher.
	Front Side = iota
	// Back answers, or reads.
	Back
)

// A Spec says how to open both ends of a link.
type Spec struct {
	// System names what carries the payloads: one of Systems.
	System string `json:"system"`
	// Dir is a folder of this link alone, for sockets and the like.
	Dir string `json:"dir"`
	// Server is where the system's server listens, if it has one.
	Server string `json:"server,omitempty"`
	// Size is that of every payload, in bytes.
	Size int `json:"size"`
	// Wait says how the bus waits; other systems wait in the kernel.
	Wait string `json:"wait,omitempty"`
	// Limit is how many frames one poll of the bus takes at most.
	Limit int `json:"limit,omitempty"`
}

// Names of systems that need no server besides the two processes.
const (
	Pipe      = "pipe"
	Unix      = "unix"
	SeqPacket = "unix-seqpacket"
	TCP       = "tcp"
)

// Names of systems with a server.
const (
	Bus   = "hugebus"
	NATS  = "nats"
	Redis = "redis"
)

// openers are the systems by name.
var openers = map[string]func(Spec, Side) (Link, error){
	Pipe:      openPipe,
	Unix:      openUnix,
	SeqPacket: openSeqPacket,
	TCP:       openTCP,
	Bus:       openBus,
	NATS:      openNATS,
	Redis:     openRedis,
}

// patience is how long one side waits for the other to open its end.
const patience = 20 * time.Second

// Open opens one end. The other must be opened at the same time, by another
// process: some systems wait for it here.
func Open(s Spec, side Side) (Link, error) {
	open, ok := openers[s.System]
	if !ok {
		return nil, fmt.Errorf("link: unknown system %q", s.System)
	}
	l, err := open(s, side)
	if err != nil {
		return nil, fmt.Errorf("link: open %s: %w", s.System, err)
	}
	return l, nil
}

// MaxSize is the largest payload that a system carries without settings of the host
// being changed, and why; 0 for any.
func MaxSize(system string) (bytes int, why string) {
	switch system {
	case SeqPacket:
		// The kernel's default socket buffer, net.core.wmem_default, with its overhead.
		return 128 << 10, "a message must fit the socket's buffer (net.core.wmem_default)"
	case NATS:
		return natsMaxPayload, "the server's max_payload"
	}
	return 0, ""
}

// errClosed means that the other side is gone.
var errClosed = errors.New("link: the other side closed the connection")

// names are those of the two directions for a server that carries many links: back, there.
func names(s Spec) (back, there string) {
	name := filepath.Base(s.Dir)
	return name + ".back", name + ".there"
}
