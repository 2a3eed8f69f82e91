package main

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/metrics"
)

// listenFlags are the flags of every command that listens for clients.
type listenFlags struct {
	listen                     string
	maxConns, maxPerAddr       int
	recvBuffer, sendBuffer     string
	delay, quickAck, reusePort bool
	backlog, fastOpen, cpu     int
	busyPoll, keepAlive        time.Duration
	tls                        door.SecureFiles
	handshake                  time.Duration
	metrics                    string
}

func (f *listenFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "listen", "", "address to listen on: HOST:PORT or unix:///PATH (ingress also: udp://HOST:PORT)")
	flags.IntVar(&f.maxConns, "max-conns", 0, "connections that may be open (default 16384; negative: no limit)")
	flags.IntVar(&f.maxPerAddr, "max-conns-per-addr", 0, "connections that may be open from one address (default: no limit)")
	flags.StringVar(&f.recvBuffer, "recv-buffer", "", "receive buffer of a socket (default: the kernel's choice, which grows)")
	flags.StringVar(&f.sendBuffer, "send-buffer", "", "send buffer of a socket (default: the kernel's choice, which grows)")
	flags.BoolVar(&f.delay, "delay", false, "let the kernel hold small writes back (no TCP_NODELAY)")
	flags.BoolVar(&f.quickAck, "quick-ack", false, "acknowledge at once (TCP_QUICKACK)")
	flags.DurationVar(&f.busyPoll, "busy-poll", 0, "poll the network card this long before a read sleeps (SO_BUSY_POLL)")
	flags.BoolVar(&f.reusePort, "reuse-port", false, "share the port with other processes that say so too (SO_REUSEPORT)")
	flags.IntVar(&f.cpu, "incoming-cpu", -1, "with --reuse-port: take the connections that this processor receives (SO_INCOMING_CPU)")
	flags.IntVar(&f.backlog, "backlog", 0, "connections that may wait to be accepted (default: net.core.somaxconn)")
	flags.DurationVar(&f.keepAlive, "keepalive", 0, "probe a peer that is silent for this long (default 15s; negative: never)")
	flags.IntVar(&f.fastOpen, "fast-open", 0, "length of the queue for TCP_FASTOPEN (default: off)")
	flags.StringVar(&f.metrics, "metrics", "", "address for Prometheus (/metrics) and pprof (/debug/pprof/), as HOST:PORT; off if empty")
}

func (f *listenFlags) addTLS(flags *pflag.FlagSet) {
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "serve TLS 1.3 with this certificate (PEM, with its chain); read again when it changes")
	flags.StringVar(&f.tls.Key, "tls-key", "", "the certificate's key (PEM)")
	flags.DurationVar(&f.handshake, "handshake-timeout", 10*time.Second, "close a connection that is not secure in this time")
	flags.StringVar(&f.tls.ClientCA, "tls-client-ca", "", "want a certificate of clients that one of these has signed (PEM)")
}

// settings are the flags as sockets take them.
func (f *listenFlags) settings(cmd *cobra.Command) (door.Settings, error) {
	s := door.Settings{
		Delay: f.delay, QuickAck: f.quickAck, BusyPoll: f.busyPoll, ReusePort: f.reusePort, Backlog: f.backlog,
		KeepAlive: f.keepAlive, FastOpen: f.fastOpen,
	}
	if cmd.Flags().Changed("incoming-cpu") {
		if f.cpu < 0 || f.cpu == math.MaxInt {
			return s, usage(cmd, "--incoming-cpu is %d: give the number of a processor, from 0 on", f.cpu)
		}
		s.IncomingCPU = f.cpu + 1
	}
	for _, b := range []struct {
		name, text string
		to         *int
	}{{"recv-buffer", f.recvBuffer, &s.RecvBuffer}, {"send-buffer", f.sendBuffer, &s.SendBuffer}} {
		if b.text != "" {
			n, err := size(cmd, b.name, b.text)
			if err != nil {
				return s, err
			}
			*b.to = int(n)
		}
	}
	if f.listen == "" {
		return s, usage(cmd, "--listen is missing: give HOST:PORT, such as 127.0.0.1:7070 (port 0 takes a free one), or unix:///PATH")
	}
	return s, f.withoutEffect(cmd)
}

// withoutEffect finds a flag that does nothing for the kind of address.
func (f *listenFlags) withoutEffect(cmd *cobra.Command) error {
	network, _ := door.Split(f.listen)
	flags := map[string][]string{
		"unix": {"delay", "quick-ack", "busy-poll", "reuse-port", "incoming-cpu", "keepalive", "fast-open", "acceptors", "max-conns-per-addr"},
		"udp":  {"delay", "quick-ack", "keepalive", "fast-open", "backlog", "max-conns", "max-conns-per-addr", "partial-timeout", "handshake-timeout", "acceptors"},
	}[network]
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return usage(cmd, "--%s does nothing for %s://: leave it out", name, network)
		}
	}
	if cmd.Flags().Changed("incoming-cpu") && !f.reusePort {
		return usage(cmd, "--incoming-cpu chooses among listeners that share a port: add --reuse-port, or leave it out")
	}
	return nil
}

// secure is TLS, or nil if it is not asked for.
func (f *listenFlags) secure(cmd *cobra.Command, log *slog.Logger) (*door.Secure, error) {
	if f.tls == (door.SecureFiles{}) {
		return nil, nil
	}
	if err := f.tls.Check(); err != nil {
		return nil, usage(cmd, "%w", err)
	}
	return door.NewSecure(f.tls, log)
}

// A listening is what a command runs that listens for clients.
type listening interface {
	prometheus.Collector
	Addr() net.Addr
	Close() error
}

// announce serves the figures of l if an address for that was given, and prints where l listens. end ends the figures. If there
// is an error, l is closed.
func (a *app) announce(l listening, address string, log *slog.Logger) (end func(), err error) {
	end = func() {}
	if address != "" {
		figures, err := metrics.Serve(address, log, l)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		end = func() { _ = figures.Close() }
		log.Info("figures", "address", figures.Addr().String())
	}
	if err := a.print(l.Addr().String() + "\n"); err != nil {
		end()
		return nil, errors.Join(err, l.Close())
	}
	return end, nil
}
