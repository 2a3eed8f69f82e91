package crowd

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A driver publishes: at a rate, whatever becomes of what was published before, or, without one, as fast as the clients take it.
type driver struct {
	PushShape
	to      publisher
	clients *clients
	now     func() time.Duration
	quit    chan struct{}
	over    sync.WaitGroup

	start     time.Duration
	published int64
	batch     [][]byte
}

// driveAtOnce is how many frames are published with one call.
const driveAtOnce = 64

var errQuit = errors.New("the clients have given up")

// run finds out that all clients are there, publishes, and ends with the last frame.
func (d *driver) run() error {
	backing := make([]byte, driveAtOnce*d.Size)
	for i := range driveAtOnce {
		b := backing[i*d.Size : (i+1)*d.Size : (i+1)*d.Size]
		fill(b)
		d.batch = append(d.batch, b)
	}
	err := d.warmUp()
	if err == nil {
		d.start = d.now()
		if d.Rate > 0 {
			err = d.atRate()
		} else {
			err = d.flatOut()
		}
	}
	if err != nil {
		return err
	}
	seal(d.batch[0], frame{seq: uint64(d.published), end: true})
	return d.to.publish(d.batch[:1])
}

// warmUp publishes frames that do not count until every client has had one.
func (d *driver) warmUp() error {
	for began := time.Now(); d.clients.warm.Load() < int64(d.Connections); {
		if time.Since(began) > patience {
			return fmt.Errorf("%d of %d clients have got nothing after %v", int64(d.Connections)-d.clients.warm.Load(), d.Connections, patience)
		}
		seal(d.batch[0], frame{conn: warmConn})
		if err := d.to.publish(d.batch[:1]); err != nil {
			return err
		}
		if err := d.pause(20 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) pause(length time.Duration) error {
	select {
	case <-d.quit:
		return errQuit
	case <-time.After(length):
		return nil
	}
}

// publish publishes n frames that were to be sent at due(i).
func (d *driver) publish(n int64, due func(seq int64) time.Duration) error {
	for i := range n {
		seq := d.published + i
		seal(d.batch[i], frame{due: due(seq), seq: uint64(seq)})
	}
	d.published += n
	return d.to.publish(d.batch[:n])
}

func (d *driver) atRate() error {
	last := int64(d.Rate * d.Duration.Seconds())
	due := func(seq int64) time.Duration {
		return d.start + time.Duration(float64(seq)*float64(time.Second)/d.Rate)
	}
	for d.published < last {
		until := d.published
		for now := d.now(); until < last && until-d.published < driveAtOnce && due(until) <= now; until++ {
			continue
		}
		if until == d.published {
			if err := d.pause(min(due(until)-d.now(), time.Second)); err != nil {
				return err
			}
			continue
		}
		if err := d.publish(until-d.published, due); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) flatOut() error {
	for d.now()-d.start < d.Duration {
		room := d.clients.delivered.Load()/int64(d.Connections) + int64(d.Window) - d.published
		n := min(room, driveAtOnce)
		if n < int64(min(driveAtOnce, d.Window)) {
			if err := d.pause(napFor); err != nil {
				return err
			}
			continue
		}
		now := d.now()
		if err := d.publish(n, func(int64) time.Duration { return now }); err != nil {
			return err
		}
	}
	return nil
}
