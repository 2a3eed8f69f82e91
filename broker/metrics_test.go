package broker

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// get fetches a page of the broker's metrics server.
func (s *server) get(t testing.TB, path string) string {
	t.Helper()
	// Without keep-alive no connection outlives the test.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + s.MetricsAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", path, r.Status, err, text)
	}
	return string(text)
}

func TestMetricsTellWhatHappened(t *testing.T) {
	s := start(t, Config{Metrics: "127.0.0.1:0", Quotas: Quotas{Attachments: 5}})
	p, victim := s.connect(t), s.connect(t)
	p.create("orders", small)
	_, pub := p.publisher("orders")
	_, sub := p.subscriber("orders")
	p.member("orders", "workers")
	p.attach(control.AttachRequest{Topic: "orders", Kind: control.KindSubscriber, Policy: control.PolicyLossy, LaneOnly: true})
	publishAll(t, pub, "a", "b", "c")
	if _, err := sub.Poll(1, func(ring.Frame) error { return nil }); err != nil {
		t.Fatal(err)
	}
	_, dying := victim.publisher("orders")
	publishAll(t, dying, "d")
	if _, err := dying.Claim(1); err != nil {
		t.Fatal(err)
	}
	victim.die()
	testutil.Eventually(t, "the dead publisher is repaired", func() bool { return p.show("orders").Repairs == 1 })
	p.publisher("orders")
	p.refused(control.CodeQuota, control.OpAttach, control.AttachRequest{Topic: "orders", Kind: control.KindPublisher})
	_ = p.sendRaw("nonsense")
	_, _ = s.greet(t, control.Hello{})
	_ = s.access.check(control.Identity{UID: 65000}, Publish, "orders")

	text := s.get(t, "/metrics")
	for _, line := range expectedMetrics(os.Getpid()) {
		if !strings.Contains(text, line) {
			t.Errorf("metrics do not say %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if page := s.get(t, "/debug/pprof/goroutine?debug=1"); !strings.Contains(page, "goroutine profile") {
		t.Errorf("pprof: %.200s", page)
	}
	s.get(t, "/debug/pprof/cmdline")
}

// expectedMetrics are lines that the scenario of TestMetricsTellWhatHappened leads to.
func expectedMetrics(pid int) []string {
	return []string{
		"hugebus_topics 1", "hugebus_clients ",
		`hugebus_attachments{kind="publisher",topic="orders"} 2`,
		`hugebus_attachments{kind="subscriber",topic="orders"} 2`,
		`hugebus_attachments{kind="member",topic="orders"} 1`,
		`hugebus_groups{topic="orders"} 1`,
		`hugebus_memory_bytes{pages="4KiB"} `,
		"hugebus_quota_bytes ",
		`hugebus_published_bytes_total{topic="orders"} 320`,
		`hugebus_frames_total{topic="orders"} 4`,
		`hugebus_repairs_total{topic="orders"} 1`,
		`hugebus_repaired_bytes_total{topic="orders"} 64`,
		`hugebus_redelivered_total{topic="orders"} 0`,
		`hugebus_dead_letters_total{topic="orders"} 0`,
		`hugebus_stall_evictions_total{topic="orders"} 0`,
		`hugebus_violations_total{topic="orders"} 0`,
		`hugebus_missed_wakeups_total{topic="orders"} 0`,
		`hugebus_pending_repairs{topic="orders"} 0`,
		fmt.Sprintf(`hugebus_publisher_frames_total{name="test",pid="%d",slot="0",topic="orders"} 3`, pid),
		fmt.Sprintf(`hugebus_subscriber_frames_total{group="",kind="subscriber",name="test",pid="%d",slot="0",topic="orders"} 1`, pid),
		fmt.Sprintf(`hugebus_subscriber_lag_bytes{name="test",pid="%d",policy="reliable",slot="0",topic="orders"} 256`, pid),
		`hugebus_group_lag_bytes{group="workers",topic="orders"} 320`,
		`hugebus_attaches_total{kind="publisher"} 3`,
		"hugebus_client_deaths_total 1",
		"hugebus_bad_messages_total 1",
		`hugebus_refused_total{right="publish"} 1`,
		`hugebus_quota_refusals_total{quota="quotas.attachments_per_client"} 1`,
		`hugebus_hello_refusals_total{code="version"} 1`,
		"go_goroutines", "process_open_fds",
	}
}

func TestHandlerAfterCloseIsEmptyButWhole(t *testing.T) {
	s := start(t, Config{})
	s.connect(t).create("orders", small)
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	w := &recorder{header: http.Header{}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Handler().ServeHTTP(w, r)
	if !strings.Contains(w.text.String(), "hugebus_topics 0") {
		t.Errorf("metrics after the end: %s", w.text.String())
	}
}

// A recorder is a http.ResponseWriter that keeps what it is given.
type recorder struct {
	header http.Header
	text   strings.Builder
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return r.text.Write(p) }
func (r *recorder) WriteHeader(int)             {}
