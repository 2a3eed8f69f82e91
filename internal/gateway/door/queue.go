package door

import (
	"net"

	"github.com/hugebus/hugebus/internal/sys"
)

// A Queue is what is known of the connections that wait to be accepted.
type Queue struct {
	Waiting, Limit int // of the listeners themselves, if they are of TCP

	// What the kernel counts for all listeners in the network namespace: it does not count for each. Overflows are connections
	// that found a queue full, Drops these and what was dropped for other reasons.
	Overflows, Drops uint64
}

// QueueOf looks at the queues of listeners. What cannot be known is 0.
func QueueOf(listeners ...net.Listener) (q Queue) {
	for _, l := range listeners {
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			continue
		}
		raw, err := tcp.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) { // an error: it is closed, and nobody waits
			waiting, limit, err := sys.ListenQueue(int(fd))
			if err == nil {
				q.Waiting, q.Limit = q.Waiting+waiting, q.Limit+limit
			}
		})
	}
	q.Overflows, q.Drops, _ = sys.ListenOverflows()
	return q
}
