package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/gateway/door"
)

// What a Config's zero fields stand for.
const (
	DefaultBufferSize     = 256 << 10       // bytes: one read call takes many frames, and it still fits a near cache
	DefaultBatchFrames    = 1024            // frames: the cost of a claim is gone long before, and 24 KiB of slices stay near
	DefaultMaxConns       = 16384           // connections
	DefaultPartialTimeout = 1 * time.Minute // long enough for 16 MiB at 2.5 Mbit/s

	DefaultHandshakeTimeout = 10 * time.Second // three round trips, over any path
	maxDefaultLanes         = 8                // of a topic's 64 publisher slots
	maxLanes                = 4096             // each has a read buffer; what a topic has slots for is less, and says so itself
	maxAcceptors            = 1024             // each is a descriptor and a goroutine
	minBufferSize           = 4 << 10          // bytes: less than this makes a read call for each few frames
)

// A Publisher is what an ingress feeds.
type Publisher interface {
	// PublishBatch publishes payloads in their order and returns how many of them it published: all of them, unless
	// there is an error. It waits while the topic is full, until ctx is cancelled. It does not keep the slices. One
	// goroutine calls it at a time.
	PublishBatch(ctx context.Context, payloads [][]byte) (published int, err error)

	// MaxPayload returns how many bytes the topic allows in one frame.
	MaxPayload() int
}

// A Lane is a Publisher of one worker: one publisher slot of the topic. If it has a method Err() error, as *client.Lane has,
// the ingress ends as soon as that is not nil, before it reads what it could not publish.
type Lane interface {
	Publisher

	// Close frees the publisher slot. The ingress calls it once, after the last PublishBatch.
	Close() error
}

// Config says what an Ingress listens on, and what it feeds. Listen (or Listener) and NewLane are needed; a zero in any
// other field stands for the default that is named there.
type Config struct {
	// Listen is the address: HOST:PORT, unix:///PATH, or udp://HOST:PORT, where each datagram is a frame. Port 0 takes a free
	// port, which Ingress.Addr tells.
	Listen string

	// Listener is used instead of Listen if it is not nil. Its connections must be syscall.Conn values with a socket
	// below them, as those of net's TCP and Unix listeners are. The ingress closes it.
	Listener net.Listener

	// Topic is the topic's name, for logs and figures.
	Topic string

	// Codec names the codec (default: codec.Default, "len32"). Datagrams have none.
	Codec string

	// NewLane opens a publisher. It is called Lanes times, by NewIngress only.
	NewLane func(ctx context.Context) (Lane, error)

	// Lanes is how many connections are read and published at the same time, and how many publisher slots that takes
	// (default: GOMAXPROCS, at most 8). For datagrams (default: 1) it is how many sockets share the port by SO_REUSEPORT, each
	// with a lane: the kernel gives all of one sender's to one of them, so they stay in their order.
	Lanes int

	// Acceptors is how many listening sockets share the port by SO_REUSEPORT, each with a goroutine that accepts (default: 1).
	Acceptors int

	// BufferSize is the size of a lane's read buffer in bytes (default: DefaultBufferSize; at least 4 KiB). For datagrams it
	// is divided by the frame limit, which says how many one call receives: 16 to 512.
	BufferSize int

	// TurnBudget is how many bytes a connection may have read for it while others wait (default: BufferSize).
	TurnBudget int

	// BatchFrames is how many frames are published at once, at most (default: DefaultBatchFrames).
	BatchFrames int

	// MaxFrame is how many payload bytes a frame may have (default, and at most: what the topic allows).
	MaxFrame int

	// MaxConns is how many connections may be open (default: DefaultMaxConns; negative: no limit). One more is accepted and
	// closed at once.
	MaxConns int

	// MaxConnsPerAddr is how many connections may be open from one address (default: no limit).
	MaxConnsPerAddr int

	// Socket has the settings of sockets, and Secure turns connections into secure ones, if it is not nil.
	Socket door.Settings
	Secure *door.Secure

	// HandshakeTimeout closes a connection that is not secure in this time (default: DefaultHandshakeTimeout).
	HandshakeTimeout time.Duration

	// IdleTimeout closes a connection from which nothing has come for that long (default: never). Time in which the
	// ingress itself did not read, because the topic was full, does not count here nor for PartialTimeout.
	IdleTimeout time.Duration

	// PartialTimeout closes a connection whose frame is not whole this long after its first byte came (default:
	// DefaultPartialTimeout; negative: never).
	PartialTimeout time.Duration

	// DrainTimeout is how long Serve, once its context is cancelled, waits for room in a full topic before it gives
	// frames up as Abort does (default: without end).
	DrainTimeout time.Duration

	// Logger gets the log (default: slog.Default()).
	Logger *slog.Logger
}

// resolve checks the parts that need no lane, and puts the defaults in.
func (c Config) resolve() (Config, codec.Codec, error) {
	if c.packets() {
		if err := c.resolvePackets(); err != nil {
			return c, nil, err
		}
	}
	c.Codec = cmp.Or(c.Codec, codec.Default)
	framing, err := codec.Lookup(c.Codec)
	if err != nil {
		return c, nil, err
	}
	c.Lanes = cmp.Or(c.Lanes, min(runtime.GOMAXPROCS(0), maxDefaultLanes))
	c.Acceptors = cmp.Or(c.Acceptors, 1)
	c.BufferSize = cmp.Or(c.BufferSize, DefaultBufferSize)
	c.TurnBudget = cmp.Or(c.TurnBudget, c.BufferSize)
	c.BatchFrames = cmp.Or(c.BatchFrames, DefaultBatchFrames)
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.PartialTimeout = cmp.Or(c.PartialTimeout, DefaultPartialTimeout)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, DefaultHandshakeTimeout)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := c.Socket.Check(); err != nil {
		return c, nil, err
	}
	switch {
	case c.Listener == nil && c.Listen == "":
		err = errors.New("no address to listen on: give HOST:PORT, as in 127.0.0.1:7070 (port 0 takes a free one)")
	case c.Lanes < 1 || c.Lanes > maxLanes:
		err = fmt.Errorf("%d lanes: give 1 to %d, or 0 for the default (--lanes)", c.Lanes, maxLanes)
	case c.Acceptors < 1 || c.Acceptors > maxAcceptors:
		err = fmt.Errorf("%d acceptors: give 1 to %d, or 0 for the default (--acceptors)", c.Acceptors, maxAcceptors)
	case c.Acceptors > 1 && (c.Listener != nil || c.network() != "tcp"):
		err = fmt.Errorf("%d acceptors: only an address of TCP can be shared", c.Acceptors)
	case c.BufferSize < minBufferSize:
		err = fmt.Errorf("a read buffer of %d bytes: at least %d are needed", c.BufferSize, minBufferSize)
	case c.TurnBudget < 1:
		err = fmt.Errorf("a turn's budget of %d bytes: at least 1 is needed", c.TurnBudget)
	case c.BatchFrames < 1:
		err = fmt.Errorf("batches of %d frames: at least 1 is needed", c.BatchFrames)
	case c.MaxFrame < 0:
		err = fmt.Errorf("a frame limit of %d bytes: give a positive number, or 0 for what the topic allows", c.MaxFrame)
	case c.Listener == nil && door.CheckAddress(c.Listen) != nil:
		err = door.CheckAddress(c.Listen)
	default:
		err = errors.Join(
			door.NotNegative("--handshake-timeout", c.HandshakeTimeout, "the default"), door.NotNegative("--idle-timeout", c.IdleTimeout, "never"),
			door.NotNegative("--drain-timeout", c.DrainTimeout, "no end"),
		)
	}
	return c, framing, err
}

// Check says what is wrong with the configuration, whatever this host and the broker have. New says the same. NewLane may be missing.
func (c Config) Check() error {
	_, _, err := c.resolve()
	return err
}

func (c Config) network() string {
	network, _ := door.Split(c.Listen)
	return network
}

// packets says whether datagrams are taken, not connections.
func (c Config) packets() bool { return c.Listener == nil && c.network() == "udp" }

// resolvePackets is resolve for datagrams.
func (c *Config) resolvePackets() error {
	c.Lanes = cmp.Or(c.Lanes, 1)
	switch {
	case c.Codec != "":
		return fmt.Errorf("codec %s with datagrams: each of them is a frame, leave the codec out", c.Codec)
	case c.Acceptors != 0:
		return errors.New("acceptors with datagrams: nothing is accepted there, the number of sockets is that of lanes (--lanes)")
	case c.Secure != nil:
		return errors.New("TLS with datagrams: it needs connections, listen on tcp:// for it")
	case c.IdleTimeout != 0:
		return errors.New("an idle time-out with datagrams: there is no connection to close, leave it out")
	}
	return nil
}

// frameLimit returns the limit for frames, given what the lanes allow.
func (c Config) frameLimit(lanes []Lane) (int, error) {
	topic := lanes[0].MaxPayload()
	for _, lane := range lanes[1:] {
		topic = min(topic, lane.MaxPayload())
	}
	if c.MaxFrame > topic {
		return 0, fmt.Errorf("a frame limit of %d bytes is above the topic's own of %d bytes: lower it (--max-frame), "+
			"or use a topic with a larger capacity", c.MaxFrame, topic)
	}
	return cmp.Or(c.MaxFrame, topic), nil
}
