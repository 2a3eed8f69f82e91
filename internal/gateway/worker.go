package gateway

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

// A worker is what a connection borrows for a turn: a lane to publish on, a buffer to read into, and room for the
// frames that are found in it. There are no others, so memory for reading does not grow with connections.
type worker struct {
	lane   Lane
	buf    []byte
	frames [][]byte // empty; its capacity bounds a batch
	count  traffic
}

// traffic is what went through one worker. Its holder adds, anybody may load.
type traffic struct {
	frames       atomic.Uint64  // frames published
	bytes        atomic.Uint64  // payload bytes published
	batches      atomic.Uint64  // PublishBatch calls
	reads        atomic.Uint64  // read calls, those that found nothing included
	received     atomic.Uint64  // bytes read
	datagrams    atomic.Uint64  // those thrown away included
	publishing   atomic.Int64   // nanoseconds in PublishBatch
	backpressure atomic.Int64   // nanoseconds of these in calls that took longer than slowPublish
	batchSizes   door.Histogram // frames of each PublishBatch call
	readTimes    door.Histogram // nanoseconds of each read call of a connection
	publishTimes door.Histogram // nanoseconds of each PublishBatch call
}

// slowPublish tells a wait for room from the work of copying: no batch takes as long as this to copy.
const slowPublish = time.Millisecond

func (t *traffic) addBatch(frames, bytes int, took time.Duration) {
	t.frames.Add(uint64(frames))
	t.bytes.Add(uint64(bytes))
	t.batches.Add(1)
	t.publishing.Add(int64(took))
	if took > slowPublish {
		t.backpressure.Add(int64(took))
	}
	t.batchSizes.Add(uint64(frames))
	t.publishTimes.Time(took)
}

// laneLook is how often lanes are asked whether they are over, while nothing is published on them.
const laneLook = 200 * time.Millisecond

// laneOver is why a lane is of no use any more, or nil. Lanes that cannot tell say so when something is published.
func laneOver(lane Lane) error {
	if l, ok := lane.(interface{ Err() error }); ok {
		return l.Err()
	}
	return nil
}

// closeLanes closes all of the lanes, and returns the errors that this made.
func closeLanes(lanes []Lane) error {
	var errs []error
	for _, lane := range lanes {
		if err := lane.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close a lane: %w", err))
		}
	}
	return errors.Join(errs...)
}
