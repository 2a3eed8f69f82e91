package door

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// A Number is one figure of a snapshot S.
type Number[S any] struct {
	Name, Help string
	Kind       prometheus.ValueType
	Of         func(*S) float64
}

// Gauge is a Number that goes up and down.
func Gauge[S any](name, help string, of func(*S) float64) Number[S] {
	return Number[S]{Name: name, Help: help, Kind: prometheus.GaugeValue, Of: of}
}

// Counter is a Number that only grows.
func Counter[S any](name, help string, of func(*S) float64) Number[S] {
	return Number[S]{Name: name, Help: help, Kind: prometheus.CounterValue, Of: of}
}

// A Family is one figure for each value of a label.
type Family[S any] struct {
	Name, Help, Label string
	Kind              prometheus.ValueType
	Of                func(*S) map[string]float64
}

// A Distribution is a figure that is a histogram: its buckets end at the powers of two from 2^From to 2^To, times Unit.
type Distribution[S any] struct {
	Name, Help string
	From, To   int
	Unit       float64 // of a value: 1e-9 for nanoseconds that are shown as seconds
	Of         func(*S) *Spread
}

// Figures is a prometheus.Collector of something that listens.
type Figures[S any] struct {
	Prefix        string
	Labels        prometheus.Labels // that all figures have, so that one registry can hold several
	Stats         func() S          // a snapshot
	Numbers       []Number[S]
	Families      []Family[S]
	Distributions []Distribution[S]
}

func (f *Figures[S]) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(f.Prefix+name, help, labels, f.Labels)
}

// Describe sends the descriptions of all figures.
func (f *Figures[S]) Describe(to chan<- *prometheus.Desc) {
	for _, n := range f.Numbers {
		to <- f.desc(n.Name, n.Help)
	}
	for _, m := range f.Families {
		to <- f.desc(m.Name, m.Help, m.Label)
	}
	for _, d := range f.Distributions {
		to <- f.desc(d.Name, d.Help)
	}
}

// Collect sends all figures of one snapshot.
func (f *Figures[S]) Collect(to chan<- prometheus.Metric) {
	s := f.Stats()
	for _, n := range f.Numbers {
		to <- prometheus.MustNewConstMetric(f.desc(n.Name, n.Help), n.Kind, n.Of(&s))
	}
	for _, m := range f.Families {
		desc := f.desc(m.Name, m.Help, m.Label)
		for label, value := range m.Of(&s) {
			to <- prometheus.MustNewConstMetric(desc, m.Kind, value, label)
		}
	}
	for _, d := range f.Distributions {
		to <- d.metric(f.desc(d.Name, d.Help), d.Of(&s))
	}
}

func (d *Distribution[S]) metric(desc *prometheus.Desc, s *Spread) prometheus.Metric {
	buckets := make(map[float64]uint64, d.To-d.From+1)
	var count uint64
	for i, n := range s.Counts {
		count += n
		if i >= d.From && i <= d.To {
			buckets[d.Unit*math.Ldexp(1, i)] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, d.Unit*float64(s.Sum), buckets)
}

// Floats are counts as a Family has them.
func Floats[N uint64 | int](counts map[string]N) map[string]float64 {
	floats := make(map[string]float64, len(counts))
	for name, n := range counts {
		floats[name] = float64(n)
	}
	return floats
}

// QueueNumbers are the figures of a Queue.
func QueueNumbers[S any](of func(*S) *Queue) []Number[S] {
	return []Number[S]{
		Gauge("listen_queue", "Connections that wait to be accepted.", func(s *S) float64 { return float64(of(s).Waiting) }),
		Gauge("listen_queue_limit", "Connections that may wait to be accepted.",
			func(s *S) float64 { return float64(of(s).Limit) }),
		Counter("host_listen_overflows_total", "Connections that found a listen queue full, of all listeners in this network namespace.", func(s *S) float64 { return float64(of(s).Overflows) }),
		Counter("host_listen_drops_total", "Connections that were dropped before they were accepted, of all listeners in this network namespace.", func(s *S) float64 { return float64(of(s).Drops) }),
	}
}
