package broker

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

const (
	// DefaultCapacity is the capacity of a topic in bytes where nobody says otherwise. A large
	// ring is not waste, it is speed: its lines have left the reader's cache when
	// the next lap writes them.
	DefaultCapacity = 64 << 20
	// DefaultMaxRedeliveries is how often a frame is handed out again by default.
	DefaultMaxRedeliveries = 5
)

// mergeOptions fills what o leaves at zero from d, and what that leaves from the
// built-in defaults.
func mergeOptions(o, d TopicOptions) TopicOptions {
	pick(&o.Capacity, d.Capacity, DefaultCapacity)
	pick(&o.Pages, d.Pages, shm.PagesAuto.String())
	pick(&o.MaxPayload, d.MaxPayload, 0)
	pick(&o.Subscribers, d.Subscribers, ring.DefaultSubscribers)
	pick(&o.Groups, d.Groups, ring.DefaultGroups)
	pick(&o.MaxRedeliveries, d.MaxRedeliveries, DefaultMaxRedeliveries)
	pick(&o.NUMANode, d.NUMANode, nil)
	pick(&o.Lock, d.Lock, false)
	pick(&o.Exclusive, d.Exclusive, false)
	if o.Exclusive {
		pick(&o.Publishers, 1, 1)
	}
	pick(&o.Publishers, d.Publishers, ring.DefaultPublishers)
	return o
}

// pick replaces a zero value by the first of the alternatives that is not.
func pick[T comparable](v *T, alternatives ...T) {
	var zero T
	for _, a := range alternatives {
		if *v != zero {
			return
		}
		*v = a
	}
}

// checkOptions tells what is wrong with merged options.
func checkOptions(o TopicOptions) error {
	if _, err := shm.ParsePages(o.Pages); err != nil {
		return err
	}
	if err := checkCapacity(o.Capacity); err != nil {
		return err
	}
	switch {
	case o.MaxPayload < 0 || o.MaxPayload > math.MaxUint32:
		return fmt.Errorf("max_payload of %d bytes is not from 1 to %d", o.MaxPayload, ring.MaxPayload(uint64(o.Capacity)))
	case o.Exclusive && o.Publishers != 1:
		return fmt.Errorf("an exclusive topic has 1 publisher, not %d: leave publishers out", o.Publishers)
	case o.NUMANode != nil && *o.NUMANode < 0:
		return fmt.Errorf("numa_node %d is negative: leave it out for no preference", *o.NUMANode)
	}
	return ringConfig(o).Check()
}

func checkCapacity(n int64) error {
	switch {
	case n < ring.MinCapacity || n > ring.MaxCapacity:
		return fmt.Errorf("capacity %d is not from %d (%s) to %d (%s)", n,
			ring.MinCapacity, shm.FormatSize(ring.MinCapacity), int64(ring.MaxCapacity), shm.FormatSize(ring.MaxCapacity))
	case n&(n-1) != 0:
		below := int64(1) << (bits.Len64(uint64(n)) - 1)
		if above := 2 * below; above <= ring.MaxCapacity {
			return fmt.Errorf("capacity %d is not a power of two: the next one is %d (%s), the one before %d (%s)",
				n, above, shm.FormatSize(above), below, shm.FormatSize(below))
		}
	}
	return nil
}

// ringConfig is the part of the options that the ring knows.
func ringConfig(o TopicOptions) ring.Config {
	return ring.Config{
		Capacity: uint64(o.Capacity), MaxPayload: uint32(o.MaxPayload),
		Publishers: o.Publishers, Subscribers: o.Subscribers, Groups: o.Groups, Exclusive: o.Exclusive,
	}
}

// footprint is the memory that a topic with these options takes, in whole 4 KiB pages.
func footprint(o TopicOptions) (sizes ring.Sizes, total int64, err error) {
	sizes, err = ringConfig(o).Footprint()
	if err != nil {
		return sizes, 0, err
	}
	const page = 4096
	for _, n := range []*int64{&sizes.Ctl, &sizes.Cursors} {
		*n = (*n + page - 1) / page * page
	}
	return sizes, sizes.Ctl + sizes.Cursors + sizes.Data, nil
}
