package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Of each reason this many lines are logged in this much time; the next line after it says how many were left out. A
// port scan or a broken client in a loop must not fill a disk.
const (
	logBurst  = 10
	logPeriod = 10 * time.Second
)

// rateLog logs warnings, few of each reason. It is safe for concurrent use.
type rateLog struct {
	log *slog.Logger
	now func() time.Duration // since any fixed moment

	mu     sync.Mutex
	spells [reasons]spell
}

// spell is what was logged of one reason in its current period.
type spell struct {
	began   time.Duration
	lines   int
	omitted int
}

// warn logs one line, unless too many of its reason have been.
func (r *rateLog) warn(why reason, message string, attrs ...slog.Attr) {
	now := r.now()
	r.mu.Lock()
	s := &r.spells[why]
	omitted := 0
	if s.lines == 0 || now-s.began >= logPeriod {
		omitted = s.omitted
		*s = spell{began: now}
	}
	if s.lines == logBurst {
		s.omitted++
		r.mu.Unlock()
		return
	}
	s.lines++
	r.mu.Unlock()

	attrs = append(attrs, slog.String("reason", why.String()))
	if omitted > 0 {
		attrs = append(attrs, slog.Int("omitted", omitted))
	}
	r.log.LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
}

// flush logs how many lines were left out and not told of yet.
func (r *rateLog) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for why := range r.spells {
		if omitted := r.spells[why].omitted; omitted > 0 {
			r.log.LogAttrs(context.Background(), slog.LevelWarn, "more of these were not logged",
				slog.String("reason", reason(why).String()), slog.Int("omitted", omitted))
			r.spells[why].omitted = 0
		}
	}
}
