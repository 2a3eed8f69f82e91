// Package ingress feeds a topic from TCP in a program of one's own: what `hugebus ingress`
// does as a command. It accepts connections, cuts their streams into frames,
// and publishes these in batches.
//
//	in, err := ingress.New(ctx, bus, "orders", ingress.Config{Listen: "127.0.0.1:7070", Codec: "line"})
//	err = in.Serve(ctx) // until ctx ends; publishes what was received
package ingress

import (
	"context"
	"log/slog"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/gateway"
	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/gateway/door"
)

// A Config says what to listen on and within which limits. New fills in Topic, and
// NewLane where it is nil.
type Config = gateway.Config

// An Ingress accepts connections and publishes their frames. It is a Prometheus collector.
type Ingress = gateway.Ingress

// A Lane is one publisher of a worker; *client.Lane is one. Config.NewLane may wrap it.
type Lane = gateway.Lane

// Stats are the figures of an Ingress.
type Stats = gateway.Stats

// An AbortError says how many frames were given up by a stop that could not wait.
type AbortError = gateway.AbortError

// TLSFiles name the files of TLS.
type TLSFiles = door.SecureFiles

// NewTLS reads the files of TLS, for Config.Secure. They are read again when they change; log gets what is wrong with them then.
func NewTLS(files TLSFiles, log *slog.Logger) (*door.Secure, error) {
	return door.NewSecure(files, log)
}

// Codecs are the names that Config.Codec may have.
func Codecs() []string { return codec.Names() }

// New attaches to a topic, as many publisher slots as c.Lanes says, and listens. Serve
// it, or Close it.
//
// Errors: those of client.Client.Lane, an address in use, or a setting that cannot be; each
// says what to do.
func New(ctx context.Context, bus *client.Client, topic string, c Config) (*Ingress, error) {
	c.Topic = topic
	if c.NewLane == nil {
		c.NewLane = func(ctx context.Context) (gateway.Lane, error) {
			return bus.Lane(ctx, topic, client.PublisherOptions{Name: "ingress"})
		}
	}
	return gateway.NewIngress(ctx, c)
}
