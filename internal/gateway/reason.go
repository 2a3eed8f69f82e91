package gateway

import (
	"fmt"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

// reason is why a connection ended, or was never taken on. Each has a counter.
type reason uint8

const (
	running         reason = iota // it goes on
	endOfStream                   // the peer closed, after a whole frame
	stopped                       // the ingress stops; all that was received is published
	frameTooLarge                 // the codec found a frame above the limit
	partialFrame                  // the peer closed inside a frame
	brokenConn                    // reset, or another error of the connection
	idleTimeout                   // nothing came for too long
	slowFrame                     // a frame was begun and not finished in time
	publishFailed                 // the lane failed; this ends the whole ingress
	aborted                       // Abort, while frames waited for room
	refused                       // one connection more than allowed
	acceptFailed                  // no connection at all: accept itself failed
	handshakeFailed               // it did not become secure
	receiveFailed                 // no connection either: receiving datagrams failed
	reasons
)

var reasonNames = [reasons]string{
	"running", "end_of_stream", "stopped", "frame_too_large", "partial_frame", "connection_error", "idle_timeout",
	"partial_timeout", "publish_failed", "aborted", "too_many_connections", door.AcceptFailed, "handshake_failed",
	"receive_failed",
}

// String returns the reason's name in logs and figures.
func (r reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// isError says whether the reason is one that somebody should look into.
func (r reason) isError() bool { return r >= frameTooLarge && r < reasons }
