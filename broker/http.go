package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves the broker's figures: /metrics for Prometheus, and /debug/pprof. It
// tells names of topics and programs, and profiles: who may reach it is up to the caller.
func (b *Broker) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{broker: b}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelError)}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// listenMetrics takes the address early, so that one in use is an error of New.
func listenMetrics(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics on %s: %w: choose another with --metrics, or metrics in the configuration", addr, err)
	}
	return l, nil
}

// serveMetrics serves Handler on the metrics address, if there is one.
func (b *Broker) serveMetrics() {
	if b.metrics == nil {
		return
	}
	server := &http.Server{
		Handler: b.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelWarn),
	}
	b.background.Go(func() {
		if err := server.Serve(b.metrics); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			b.log.Error("metrics server ended", "error", err)
		}
	})
	b.background.Go(func() {
		<-b.stopping
		_ = server.Close() // connections end; the listener's error is Close's
	})
}
