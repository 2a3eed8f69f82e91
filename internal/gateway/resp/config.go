package resp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/ring"
)

// What a Config's zero fields stand for.
const (
	DefaultMaxLag         = 32 << 20  // bytes, as Redis has it for subscribers
	DefaultMaxMemory      = 256 << 20 // bytes
	DefaultMaxConns       = 16384
	DefaultMaxChannels    = 10_000
	DefaultMaxPipeline    = 1_000_000 // commands
	DefaultMaxFrame       = 1 << 20   // bytes
	DefaultWriteTimeout   = time.Minute
	DefaultPartialTimeout = time.Minute
	DefaultHandshake      = 10 * time.Second
	DefaultDrain          = 5 * time.Second
	DefaultMaxTopics      = 512 // of the 1,024 attachments that a broker lets a client have; subscriptions take the others
	batchFrames           = 1024
	pollLimit             = 256
)

// A Lane publishes to one topic; *client.Lane is one. One goroutine uses it at a time.
type Lane interface {
	PublishBatch(ctx context.Context, payloads [][]byte) (published int, err error)
	MaxPayload() int
	Close() error
}

// A Source is a subscription; *client.Subscriber is one.
type Source interface {
	Poll(limit int, fn func(ring.Frame) error) (int, error)
	Wait(ctx context.Context) error
	Close() error
}

// ErrNoTopic says that a topic cannot have such a name.
var ErrNoTopic = errors.New("no name of a topic")

// ErrMayNot says that the gateway has no right to what it asked for.
var ErrMayNot = errors.New("not allowed")

// A Bus is where topics are. Its methods may be called by any goroutine. A name that no topic can have is an ErrNoTopic,
// what the broker's rules forbid an ErrMayNot.
type Bus interface {
	Lane(ctx context.Context, topic string) (Lane, error)
	Subscribe(ctx context.Context, topic string) (Source, error)
	Topics(ctx context.Context) ([]string, error)
}

// Config says what a Server listens on, and within which limits. Bus and Listen (or Listener) are needed.
type Config struct {
	Bus      Bus
	Listen   string       // HOST:PORT or unix:///PATH
	Listener net.Listener // instead of Listen; the server closes it
	Topic    string       // all channels are in this topic; "": each channel is a topic

	MaxFrame                  int           // bytes of a message, and of any argument
	MaxLag                    int           // bytes that may wait for a client before it is closed
	MaxMemory                 int64         // bytes of blocks that all clients together may hold
	MaxConns, MaxConnsPerAddr int           // as in egress.Config
	MaxChannels               int           // channels and patterns of one connection
	MaxTopics                 int           // that are read, and to which is published at a time: of the latter, what was used longest ago is given back
	MaxPipeline               int           // commands whose replies a client has not taken
	IdleTimeout               time.Duration // of a client that has subscribed to nothing and sends nothing; 0: never
	PartialTimeout            time.Duration // for a command to come whole; negative: never
	WriteTimeout              time.Duration // of a client that takes nothing; negative: never
	HandshakeTimeout          time.Duration // of TLS
	DrainTimeout              time.Duration // for what waits for clients when the server stops; negative: none

	Socket door.Settings
	Secure *door.Secure
	Rules  *door.Rules // nil: everybody may do everything

	Logger *slog.Logger
}

// resolve checks the configuration, and puts the defaults in.
func (c Config) resolve() (Config, error) {
	c.MaxFrame = cmp.Or(c.MaxFrame, DefaultMaxFrame)
	c.MaxLag = cmp.Or(c.MaxLag, DefaultMaxLag)
	c.MaxMemory = cmp.Or(c.MaxMemory, DefaultMaxMemory)
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.MaxChannels = cmp.Or(c.MaxChannels, DefaultMaxChannels)
	c.MaxTopics = cmp.Or(c.MaxTopics, DefaultMaxTopics)
	c.MaxPipeline = cmp.Or(c.MaxPipeline, DefaultMaxPipeline)
	c.PartialTimeout = max(cmp.Or(c.PartialTimeout, DefaultPartialTimeout), 0)
	c.WriteTimeout = max(cmp.Or(c.WriteTimeout, DefaultWriteTimeout), 0)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, DefaultHandshake)
	c.DrainTimeout = max(cmp.Or(c.DrainTimeout, DefaultDrain), 0)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Listener == nil && c.Listen == "":
		return c, errors.New("no address to listen on: give HOST:PORT, as in 127.0.0.1:6379 (port 0 takes a free one), or unix:///PATH")
	}
	return c, errors.Join(
		door.CheckBounds(
			door.Bound{Flag: "--max-frame", Value: int64(c.MaxFrame), Least: 1}, door.Bound{Flag: "--max-lag", Value: int64(c.MaxLag), Least: 1},
			door.Bound{Flag: "--max-memory", Value: c.MaxMemory, Least: 1}, door.Bound{Flag: "--max-channels", Value: int64(c.MaxChannels), Least: 1},
			door.Bound{Flag: "--max-topics", Value: int64(c.MaxTopics), Least: 1}, door.Bound{Flag: "--max-pipeline", Value: int64(c.MaxPipeline), Least: 1},
		),
		door.NotNegative("--idle-timeout", c.IdleTimeout, "never"), door.NotNegative("--handshake-timeout", c.HandshakeTimeout, "the default"),
		checkAddress(c), c.Socket.Check(),
	)
}

func checkAddress(c Config) error {
	if c.Listener != nil {
		return nil
	}
	return door.CheckStream(c.Listen)
}

// Check says what is wrong with the configuration, whatever this host and the broker have. New says the same. Bus may be missing.
func (c Config) Check() error {
	_, err := c.resolve()
	return err
}
