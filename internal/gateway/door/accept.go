package door

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// AcceptFailed is what failures of accept are called in logs and figures.
const AcceptFailed = "accept_failed"

const (
	minPause = 5 * time.Millisecond // after it has failed once
	maxPause = time.Second          // after it has failed many times
)

// A Retry tells of what fails and may pass, such as accept without a descriptor, and waits before it is tried again: longer
// each time, up to a second, until it has passed. One goroutine uses it.
type Retry struct {
	Log  *RateLog
	Fail func()          // counts
	Stop <-chan struct{} // ends a wait

	pause time.Duration
}

// Failed counts, logs and waits.
func (r *Retry) Failed(why, message string, err error) {
	r.pause = min(max(2*r.pause, minPause), maxPause)
	r.Fail()
	r.Log.Warn(why, message, slog.Any("error", err), slog.Duration("pause", r.pause), slog.String("remedy", AcceptRemedy(err)))
	Pause(r.Stop, r.pause)
}

// Passed says that it has worked.
func (r *Retry) Passed() { r.pause = 0 }

// Accept takes connections until stopping says so, which it looks at when something has come or Accept of l has ended with an
// error: set a deadline, or close l, to make it look. It returns an error if l was closed and stopping is false.
func Accept(l net.Listener, r *Retry, stopping func() bool, admit func(net.Conn)) error {
	for !stopping() {
		nc, err := l.Accept()
		switch {
		case err == nil:
			r.Passed()
			admit(nc)
		case stopping():
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("the listener on %s was closed by somebody else: %w", l.Addr(), err)
		default:
			r.Failed(AcceptFailed, "accept failed, trying again", err)
		}
	}
	return nil
}
