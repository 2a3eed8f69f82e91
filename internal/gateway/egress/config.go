package egress

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
	"github.com/hugebus/hugebus/ring"
)

// What a Config's zero fields stand for.
const (
	DefaultMaxLag       = 8 << 20          // bytes: seconds of a busy topic
	DefaultMaxConns     = 16384            // connections
	DefaultWriteTimeout = time.Minute      // of a client that takes nothing at all
	DefaultDrainTimeout = 5 * time.Second  // for what waits when the egress stops
	DefaultHandshake    = 10 * time.Second // of TLS
	maxDefaultWriters   = 8
	maxWriters          = 1024 // each is a goroutine that every frame is handed to
	pollLimit           = 256  // frames: enough to make a poll cheap, few enough that the topic's room comes back
)

// A Source is a subscription; *client.Subscriber is one. Its methods are called by one goroutine, but for Close.
type Source interface {
	// Poll hands up to limit frames to fn and does not wait; see ring.Subscriber.Poll.
	Poll(limit int, fn func(ring.Frame) error) (int, error)
	// Wait waits until Poll would return something.
	Wait(ctx context.Context) error
}

// Config says what an Egress reads, and whom it sends it to. Source and Listen (or Listener) are needed.
type Config struct {
	// Source is the subscription. The egress does not close it.
	Source Source

	// Listen is an address: HOST:PORT or unix:///PATH. Port 0 takes a free port.
	Listen string

	// Listener is used instead of Listen if it is not nil. The egress closes it.
	Listener net.Listener

	// Topic is the topic's name, for logs and figures. MaxPayload is how long its payloads may be.
	Topic      string
	MaxPayload int

	// Codec names the codec (default: codec.Default, "len32").
	Codec string

	// Linger is how long the first frame waits for others, so that one write has more of them (default: not at all;
	// what comes while writers are busy goes together in any case).
	Linger time.Duration

	// MaxLag is how many bytes may wait for a client (default: DefaultMaxLag).
	MaxLag int

	// CloseSlow closes a client that lags by more; otherwise it is skipped forward to the newest frame.
	CloseSlow bool

	// History is how many bytes of what was sent a new client is sent first, in whole batches (default: none).
	History int

	// Writers is how many goroutines send (default: GOMAXPROCS, at most 8; never more than 1024).
	Writers int

	// MaxConns and MaxConnsPerAddr are how many connections may be open, in all (default: DefaultMaxConns; negative: no
	// limit) and from one address (default: no limit).
	MaxConns, MaxConnsPerAddr int

	// WriteTimeout closes a client that takes nothing for that long while something waits for it (default:
	// DefaultWriteTimeout; negative: never).
	WriteTimeout time.Duration

	// DrainTimeout is how long Serve, once its context is cancelled, lets clients take what waits for them (default:
	// DefaultDrainTimeout; negative: not at all).
	DrainTimeout time.Duration

	// HandshakeTimeout is how long a handshake of TLS may take (default: DefaultHandshake).
	HandshakeTimeout time.Duration

	// Socket has the settings of sockets, and Secure turns connections into secure ones, if it is not nil.
	Socket door.Settings
	Secure *door.Secure

	// Logger gets the log (default: slog.Default()).
	Logger *slog.Logger
}

// resolve checks the configuration, and puts the defaults in.
func (c Config) resolve() (Config, codec.Codec, error) {
	c.Codec = cmp.Or(c.Codec, codec.Default)
	framing, err := codec.Lookup(c.Codec)
	if err != nil {
		return c, nil, err
	}
	c.MaxLag = cmp.Or(c.MaxLag, DefaultMaxLag)
	c.Writers = cmp.Or(c.Writers, min(runtime.GOMAXPROCS(0), maxDefaultWriters))
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.WriteTimeout = max(cmp.Or(c.WriteTimeout, DefaultWriteTimeout), 0)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, DefaultHandshake)
	c.DrainTimeout = max(cmp.Or(c.DrainTimeout, DefaultDrainTimeout), 0)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Listener == nil && c.Listen == "":
		err = errors.New("no address to listen on: give HOST:PORT, as in 127.0.0.1:7070 (port 0 takes a free one), or unix:///PATH")
	case c.MaxLag < 1:
		err = door.CheckBounds(door.Bound{Flag: "--max-lag", Value: int64(c.MaxLag), Least: 1})
	case c.History < 0 || c.History > c.MaxLag/2:
		err = fmt.Errorf("a history of %d bytes: give at most half of the lag that a client may have (--max-lag %d)", c.History, c.MaxLag)
	case c.Linger < 0:
		err = door.NotNegative("--linger", c.Linger, "none")
	case c.HandshakeTimeout < 0:
		err = door.NotNegative("--handshake-timeout", c.HandshakeTimeout, "the default")
	case c.Writers < 1 || c.Writers > maxWriters:
		err = fmt.Errorf("%d writers: give 1 to %d, or 0 for as many as there are processors, at most %d (--writers)", c.Writers, maxWriters, maxDefaultWriters)
	case c.Listener == nil && door.CheckStream(c.Listen) != nil:
		err = door.CheckStream(c.Listen)
	default:
		err = c.Socket.Check()
	}
	return c, framing, err
}

// Check says what is wrong with the configuration, whatever this host and the broker have. New says the same. Source and MaxPayload may be
// missing.
func (c Config) Check() error {
	_, _, err := c.resolve()
	return err
}
