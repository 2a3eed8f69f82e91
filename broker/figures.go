package broker

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/control"
)

// figures counts what no topic and no ledger counts. The zero value is ready.
type figures struct {
	malformed atomic.Uint64 // bad messages
	deaths    atomic.Uint64 // clients that ended with attachments
	attaches  [3]atomic.Uint64

	mu      sync.Mutex
	refused map[control.Code]uint64 // hellos, by code
}

// kinds is the order of figures.attaches.
var kinds = [3]control.Kind{control.KindPublisher, control.KindSubscriber, control.KindMember}

func (f *figures) attached(k control.Kind) {
	for i := range kinds {
		if kinds[i] == k {
			f.attaches[i].Add(1)
		}
	}
}

func (f *figures) refuseHello(c control.Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		f.refused = map[control.Code]uint64{}
	}
	f.refused[c]++
}

func (f *figures) helloRefusals() map[control.Code]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[control.Code]uint64, len(f.refused))
	for c, n := range f.refused {
		out[c] = n
	}
	return out
}

// A collector reads the figures when somebody scrapes them, so that an idle broker does
// nothing.
type collector struct {
	broker *Broker
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("hugebus_"+name, help, labels, nil)
}

var (
	descTopics      = desc("topics", "Topics that there are.")
	descClients     = desc("clients", "Clients that are connected.")
	descAttachments = desc("attachments", "What is attached, by kind.", "topic", "kind")
	descGroups      = desc("groups", "Groups that are open.", "topic")
	descMemory      = desc("memory_bytes", "Memory of topics, by the kind of page that was obtained.", "pages")
	descBooked      = desc("quota_bytes", "Memory of topics that counts for quotas, removed ones that are still in use included.")

	descPublished  = desc("published_bytes_total", "Positions that were claimed: tail less the start.", "topic")
	descFrames     = desc("frames_total", "Frames that were published.", "topic")
	descRepairs    = desc("repairs_total", "Open claims of departed publishers that became padding.", "topic")
	descRepaired   = desc("repaired_bytes_total", "Bytes that repairs skipped.", "topic")
	descRedeliver  = desc("redelivered_total", "Ranges that a group handed out again.", "topic")
	descLetters    = desc("dead_letters_total", "Frames that were moved to the dead-letter topic.", "topic")
	descEvictions  = desc("stall_evictions_total", "Subscribers that were evicted because they stood still.", "topic")
	descViolation  = desc("violations_total", "Impossible values that were found in shared memory.", "topic")
	descExpulsion  = desc("expulsions_total", "Subscribers and members that were expelled for impossible words in shared memory.", "topic")
	descMissed     = desc("missed_wakeups_total", "Bounded sleeps that ended with a frame already there.", "topic")
	descPending    = desc("pending_repairs", "Departed publishers and members that wait for repair.", "topic")
	descStuck      = desc("stuck_claims", "Living publishers that hold a claim for longer than stuck_claim.", "topic")
	descStuckTotal = desc("stuck_claims_total", "Claims that were held for longer than stuck_claim.", "topic")
	descStuckFor   = desc("stuck_claim_seconds", "For how long at least a publisher has held a claim, if for too long.", "topic", "slot", "name", "pid")
	descRevoked    = desc("revoked_claims_total", "Claims that an operator took away.", "topic")

	descPublisher = desc("publisher_frames_total", "Frames of one publisher.", "topic", "slot", "name", "pid")
	descSubFrames = desc("subscriber_frames_total", "Frames that one subscriber or member has read.", "topic", "slot", "name", "pid", "kind", "group")
	descLag       = desc("subscriber_lag_bytes", "How far a subscriber is behind tail.", "topic", "slot", "name", "pid", "policy")
	descGaps      = desc("subscriber_gap_bytes_total", "Bytes of positions that a subscriber missed.", "topic", "slot", "name", "pid", "policy")
	descGroupLag  = desc("group_lag_bytes", "How far what a group has not finished is behind tail.", "topic", "group")
	descAttaches  = desc("attaches_total", "Attachments that were made.", "kind")
	descDeaths    = desc("client_deaths_total", "Clients that ended with something attached.")
	descMalformed = desc("bad_messages_total", "Messages of clients that were not understood.")
	descRefused   = desc("refused_total", "Requests that no access rule grants, by right.", "right")
	descQuota     = desc("quota_refusals_total", "Requests that a quota refused, by its key.", "quota")
	descBadHellos = desc("hello_refusals_total", "Connections that were refused, by error code.", "code")
	allDescs      = []*prometheus.Desc{
		descTopics, descClients, descAttachments, descGroups, descMemory, descBooked, descPublished, descFrames, descRepairs,
		descRepaired, descRedeliver, descLetters, descEvictions, descViolation, descExpulsion, descMissed, descPending, descStuck, descStuckTotal, descStuckFor, descRevoked, descPublisher,
		descSubFrames, descLag, descGaps, descGroupLag, descAttaches, descDeaths, descMalformed, descRefused, descQuota, descBadHellos,
	}
)

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range allDescs {
		out <- d
	}
}

// metrics collects samples in memory, so that no lock is held while a scraper reads.
type metrics []prometheus.Metric

func (m *metrics) gauge(d *prometheus.Desc, v float64, labels ...string) {
	*m = append(*m, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
}

func (m *metrics) counter(d *prometheus.Desc, v uint64, labels ...string) {
	*m = append(*m, prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...))
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	var m metrics
	c.general(&m)
	topics := c.broker.topics.all("")
	m.gauge(descTopics, float64(len(topics)))
	pages := map[string]int64{}
	for _, t := range topics {
		t.collect(&m, pages)
	}
	for kind, n := range pages {
		m.gauge(descMemory, float64(n), kind)
	}
	for _, sample := range m {
		out <- sample
	}
}

func (c collector) general(m *metrics) {
	b := c.broker
	used := b.ledger.total()
	m.gauge(descClients, float64(used.clients))
	m.gauge(descBooked, float64(used.bytes))
	for i, k := range kinds {
		m.counter(descAttaches, b.figures.attaches[i].Load(), string(k))
	}
	m.counter(descDeaths, b.figures.deaths.Load())
	m.counter(descMalformed, b.figures.malformed.Load())
	for right, n := range b.access.refusals() {
		m.counter(descRefused, n, string(right))
	}
	for key, n := range b.ledger.refusals() {
		m.counter(descQuota, n, key)
	}
	for code, n := range b.figures.helloRefusals() {
		m.counter(descBadHellos, n, string(code))
	}
}
