package gateway

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestFiguresAddUp(t *testing.T) {
	tp := newTopic(100)
	r := start(t, tp, func(c *Config) { c.BatchFrames = 3; c.Lanes = 1 })
	nc := r.dial()
	send(t, nc, append(len32("a", "bb", "ccc", "dddd"), 0))
	r.awaitStats("it is read", func(s Stats) bool { return s.Received == 4*4+10+1 && s.Batches == 2 && s.BuffersInUse == 0 })
	s := r.Stats()
	if s.Open != 1 || s.Accepted != 1 || s.Frames != 4 || s.Bytes != 10 || s.PartialHeld != minChunk || s.Buffers != 1 {
		t.Errorf("%+v", s)
	}
	if s.BatchSizes.Counts[0] != 1 || s.BatchSizes.Counts[2] != 1 || s.BatchSizes.Sum != 4 || s.Reads < 2 || s.FramesPerRead() != 4/float64(s.Reads) {
		t.Errorf("batches %v, %d reads, %v frames a read", s.BatchSizes, s.Reads, s.FramesPerRead())
	}
	if (Stats{}).FramesPerRead() != 0 {
		t.Error("frames per read before the first read")
	}

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(r.Ingress); err != nil {
		t.Fatal(err)
	}
	got, labels := gather(t, registry)
	for name, want := range map[string]float64{
		"connections": 1, "connections_total": 1, "connections_refused_total": 0, "frames_total": 4, "payload_bytes_total": 10,
		"received_bytes_total": 27, "buffers": 1, "buffers_in_use": 0, "partial_held_bytes": minChunk, "connections_waiting": 0,
		"errors_total/frame_too_large": 0, "batch_frames": 4, "batch_frames/1": 1, "batch_frames/2": 1, "batch_frames/4": 2,
		"batch_frames/65536": 2, "batches_total": 2, "batch_publish_seconds/17.179869184": 2, "read_seconds/1.073741824": float64(s.Reads),
		"reads_total": float64(s.Reads), "listen_queue": 0, "datagrams_total": 0, "dropped_datagrams_total": 0,
	} {
		if v, ok := got["hugebus_ingress_"+name]; !ok || v != want {
			t.Errorf("%s = %v, %t; want %v", name, v, ok, want)
		}
	}
	if got["hugebus_ingress_listen_queue_limit"] < 1 || got["hugebus_ingress_read_seconds"] <= 0 {
		t.Errorf("a queue of %v, %v seconds of reads", got["hugebus_ingress_listen_queue_limit"], got["hugebus_ingress_read_seconds"])
	}
	if want := fmt.Sprintf("codec=len32 listen=%s topic=orders", r.Addr()); labels != want {
		t.Errorf("labels %q, want %q", labels, want)
	}
}

func TestTwoIngressesInOneRegistry(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for range 2 {
		if err := registry.Register(start(t, newTopic(100), nil).Ingress); err != nil {
			t.Error(err)
		}
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// gather returns all figures by name (a histogram's sum by its name, its buckets by name/bound), and the common labels.
func gather(t *testing.T, registry *prometheus.Registry) (values map[string]float64, labels string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values = make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name, common := family.GetName(), []string{}
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" {
					name += "/" + l.GetValue()
				} else {
					common = append(common, l.GetName()+"="+l.GetValue())
				}
			}
			labels = strings.Join(common, " ")
			values[name] = number(m)
			for _, b := range m.GetHistogram().GetBucket() {
				if !math.IsInf(b.GetUpperBound(), 1) {
					values[fmt.Sprintf("%s/%v", name, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return values, labels
}

func number(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Histogram.GetSampleSum()
}

// TestIdleConnectionsHoldNoBuffer has many connections that have been used and are idle, and says what each costs.
func TestIdleConnectionsHoldNoBuffer(t *testing.T) {
	n := min(1000, maxFiles(t)/2-100) // both ends are in this process
	tp := newTopic(100)
	r := start(t, tp, nil)
	heap, stacks := memory()
	for range n {
		send(t, r.dial(), len32("used"))
	}
	tp.awaitFrames(t, n)
	r.awaitStats("all are idle", func(s Stats) bool { return s.Open == n && s.BuffersInUse == 0 })
	if s := r.Stats(); s.PartialHeld != 0 || s.Buffers != 2 {
		t.Errorf("%+v", s)
	}
	heapNow, stacksNow := memory()
	heapEach, stackEach := (heapNow-heap)/int64(n), (stacksNow-stacks)/int64(n)
	t.Logf("%d idle connections: %d bytes of heap (both ends, and the test's) and %d bytes of stacks each", n, heapEach, stackEach)
	// 10,000 are to stay below 100 MiB. A stack is 4 KiB, under the race detector 8.
	if heapEach > 4<<10 || stackEach > 10<<10 {
		t.Errorf("an idle connection costs %d bytes of heap and %d of stack", heapEach, stackEach)
	}
}

// maxFiles returns how many descriptors this process may have.
func maxFiles(t *testing.T) int {
	t.Helper()
	limits, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(limits), "Max open files")
	var n int
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("no limit of open files in:\n%s", limits)
	}
	return n
}

func memory() (heap, stacks int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}
