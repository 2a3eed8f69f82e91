package door

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Of each reason this many lines are logged in this much time; the next line after it says how many were left out. A
// port scan or a broken client in a loop must not fill a disk.
const (
	LogBurst  = 10
	LogPeriod = 10 * time.Second
)

// RateLog logs warnings, few of each reason. Reasons are a fixed few words, not what a peer sends. It is safe for
// concurrent use.
type RateLog struct {
	log *slog.Logger
	now func() time.Duration

	mu     sync.Mutex
	spells map[string]*spell
}

// spell is what was logged of one reason in its current period.
type spell struct {
	began   time.Duration
	lines   int
	omitted int
}

// NewRateLog returns a RateLog; now tells the time since any fixed moment.
func NewRateLog(log *slog.Logger, now func() time.Duration) *RateLog {
	return &RateLog{log: log, now: now, spells: make(map[string]*spell)}
}

// Warn logs one line, unless too many of its reason have been.
func (r *RateLog) Warn(why, message string, attrs ...slog.Attr) {
	now := r.now()
	r.mu.Lock()
	s := r.spells[why]
	if s == nil {
		s = new(spell)
		r.spells[why] = s
	}
	omitted := 0
	if s.lines == 0 || now-s.began >= LogPeriod {
		omitted = s.omitted
		*s = spell{began: now}
	}
	if s.lines == LogBurst {
		s.omitted++
		r.mu.Unlock()
		return
	}
	s.lines++
	r.mu.Unlock()

	attrs = append(attrs, slog.String("reason", why))
	if omitted > 0 {
		attrs = append(attrs, slog.Int("omitted", omitted))
	}
	r.log.LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
}

// Flush logs how many lines were left out and not told of yet.
func (r *RateLog) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.spells))
	for why := range r.spells {
		names = append(names, why)
	}
	slices.Sort(names)
	for _, why := range names {
		if s := r.spells[why]; s.omitted > 0 {
			r.log.LogAttrs(context.Background(), slog.LevelWarn, "more of these were not logged",
				slog.String("reason", why), slog.Int("omitted", s.omitted))
			s.omitted = 0
		}
	}
}
