package metrics

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func counter() prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "frames_total", Help: "Frames."})
	c.Add(7)
	return c
}

func get(t *testing.T, url string) string {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	return string(text)
}

func TestItServesFiguresAndProfiles(t *testing.T) {
	s, err := Serve("127.0.0.1:0", slog.New(slog.DiscardHandler), counter())
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + s.Addr().String()
	text := get(t, base+"/metrics")
	for _, want := range []string{"frames_total 7\n", "go_goroutines", "process_open_fds"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the figures", want)
		}
	}
	if text := get(t, base+"/debug/pprof/goroutine?debug=1"); !strings.Contains(text, "goroutine profile") {
		t.Error("no profile")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeServed(t *testing.T) {
	s, err := Serve("127.0.0.1:0", slog.New(slog.DiscardHandler), counter())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, address := range []string{s.Addr().String(), "nonsense"} {
		_, err := Serve(address, slog.New(slog.DiscardHandler), counter())
		if err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "--metrics") {
			t.Errorf("%s: error %v", address, err)
		}
	}
	if _, err := Serve("127.0.0.1:0", slog.New(slog.DiscardHandler), collectors.NewGoCollector()); err == nil {
		t.Error("the same figures twice")
	}
}
