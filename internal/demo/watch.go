package demo

import (
	"context"
	"time"
)

const (
	lookEvery     = 2 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	// stallLimit is how long nothing may arrive before what is missing counts as lost.
	stallLimit = 20 * time.Second
)

// A watch looks at the tallies while frames flow.
type watch struct {
	r    *run
	stop chan struct{}
	done chan struct{}
}

// watch begins to report progress.
func (r *run) watch() *watch {
	w := &watch{r: r, stop: make(chan struct{}), done: make(chan struct{})}
	go w.report()
	return w
}

// close ends the reports.
func (w *watch) close() {
	close(w.stop)
	<-w.done
}

func (w *watch) report() {
	defer close(w.done)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			if w.r.Progress != nil {
				a, b := w.r.handled()
				w.r.Progress(min(a, b, w.r.Frames), w.r.Frames)
			}
		}
	}
}

// handled is how many frames the workers together, and the subscriber, have handled.
func (r *run) handled() (byWorkers, bySubscriber uint64) {
	for _, c := range r.children[:workers] {
		byWorkers += c.tally.get(tallyFrames)
	}
	return byWorkers, r.children[workers].tally.get(tallyFrames)
}

// arrived waits until the frames below number end have been handled by the group and by the subscriber, or until
// nothing has come for so long that the rest is lost, which the result then tells.
func (w *watch) arrived(ctx context.Context, end uint64) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var before uint64
	moved := time.Now()
	for time.Since(moved) < w.r.stall {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		a, b := w.r.handled()
		if a+b != before {
			before, moved = a+b, time.Now()
		}
		if a < end || b < end {
			continue
		}
		// A frame that was handed out twice counts twice in these numbers; the broker knows what is unfinished.
		settled, err := w.r.bus.settled(ctx)
		if err != nil || settled {
			return err
		}
	}
	return nil
}
