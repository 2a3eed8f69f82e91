package ring

import (
	"fmt"
	"math/bits"
)

const (
	// DefaultPublishers, DefaultSubscribers and DefaultGroups are used where a Config
	// leaves a count at 0.
	DefaultPublishers  = 64
	DefaultSubscribers = 64
	DefaultGroups      = 16
)

// A Config describes a ring. Format writes it to the header, where it never
// changes; Attach reads it back.
type Config struct {
	// TopicID tells rings apart; both ctl and cursors carry it.
	TopicID [16]byte
	// Epoch is the incarnation of the broker that made the ring.
	Epoch uint64
	// Capacity is the size of the data memory in bytes, a power of two from MinCapacity
	// to MaxCapacity.
	Capacity uint64
	// MaxPayload is the largest payload in bytes; 0 means MaxPayload(Capacity).
	MaxPayload uint32
	// Publishers and Subscribers are numbers of slots, 1 to MaxSlots; 0 means the
	// default. Group members use subscriber slots.
	Publishers, Subscribers int
	// Groups is the number of groups, 1 to MaxGroups; 0 means the default.
	Groups int
	// Key is the stamp key. Its lowest bit is set by Format.
	Key uint64
	// PageSize is what the data memory was made of, in bytes. For information.
	PageSize uint64
	// Created is the time of creation in nanoseconds since 1970. For information.
	Created int64
	// Exclusive means that there is one publisher slot, so one publisher at a time, whose
	// claims need no compare-and-swap.
	Exclusive bool
	// Fenced makes every commit and every store of a cursor a full fence, for hosts
	// without membarrier(2).
	Fenced bool
	// Start is the first position; 0 outside tests.
	Start Position
}

// MaxPayload is the largest payload in bytes that a ring of this capacity can carry: a
// quarter of it, header included, so that a claim with its padding always fits. It is 0
// below MinCapacity.
func MaxPayload(capacity uint64) uint32 {
	if capacity < MinCapacity {
		return 0
	}
	return uint32(min(capacity/4, maxClaim) - HeaderSize)
}

// CapacityFor is the smallest capacity in bytes that carries payloads of n bytes, or
// 0 where none does.
func CapacityFor(n int) uint64 {
	if n < 0 || uint64(n) > maxClaim-HeaderSize {
		return 0
	}
	need := max(frameSize(uint64(n))*4, MinCapacity)
	return 1 << bits.Len64(need-1)
}

// withDefaults fills in what was left at 0.
func (c Config) withDefaults() Config {
	if c.MaxPayload == 0 && c.Capacity >= MinCapacity {
		c.MaxPayload = MaxPayload(c.Capacity)
	}
	if c.Publishers == 0 {
		c.Publishers = DefaultPublishers
		if c.Exclusive {
			c.Publishers = 1
		}
	}
	if c.Subscribers == 0 {
		c.Subscribers = DefaultSubscribers
	}
	if c.Groups == 0 {
		c.Groups = DefaultGroups
	}
	c.Key |= 1
	return c
}

// Check tells what is wrong with c, naming the value, the limit and the remedy. The
// error is an ErrConfig.
func (c Config) Check() error {
	c = c.withDefaults()
	switch {
	case c.Capacity < MinCapacity || c.Capacity > MaxCapacity:
		return fmt.Errorf("%w: capacity %d is not from %d to %d bytes", ErrConfig, c.Capacity, uint64(MinCapacity), uint64(MaxCapacity))
	case c.Capacity&(c.Capacity-1) != 0:
		return fmt.Errorf("%w: capacity %d is not a power of two: use %d or %d", ErrConfig, c.Capacity,
			uint64(1)<<(bits.Len64(c.Capacity)-1), uint64(1)<<bits.Len64(c.Capacity))
	case c.MaxPayload > MaxPayload(MaxCapacity):
		return fmt.Errorf("%w: maximum payload %d is above the %d that any capacity allows: send less in one frame", ErrConfig,
			c.MaxPayload, MaxPayload(MaxCapacity))
	case c.MaxPayload > MaxPayload(c.Capacity):
		return fmt.Errorf("%w: maximum payload %d is above the %d that a capacity of %d allows: use a capacity of %d", ErrConfig,
			c.MaxPayload, MaxPayload(c.Capacity), c.Capacity, CapacityFor(int(c.MaxPayload)))
	case c.Publishers < 1 || c.Publishers > MaxSlots:
		return fmt.Errorf("%w: %d publisher slots are not from 1 to %d", ErrConfig, c.Publishers, MaxSlots)
	case c.Exclusive && c.Publishers != 1:
		return fmt.Errorf("%w: an exclusive ring has 1 publisher slot, not %d", ErrConfig, c.Publishers)
	case c.Subscribers < 1 || c.Subscribers > MaxSlots:
		return fmt.Errorf("%w: %d subscriber slots are not from 1 to %d", ErrConfig, c.Subscribers, MaxSlots)
	case c.Groups < 1 || c.Groups > MaxGroups:
		return fmt.Errorf("%w: %d groups are not from 1 to %d", ErrConfig, c.Groups, MaxGroups)
	case !c.Start.Aligned():
		return fmt.Errorf("%w: start %d is not a multiple of %d", ErrConfig, c.Start, CellSize)
	}
	return nil
}

// flags are the header's flag word.
func (c Config) flags() (flags uint64) {
	if c.Exclusive {
		flags |= flagExclusive
	}
	if c.Fenced {
		flags |= flagFenced
	}
	return flags
}

// Sizes are the bytes that each piece of a ring's memory takes.
type Sizes struct {
	Ctl, Cursors, Data int64
}

// Footprint is the memory that a ring of this Config needs, in bytes. The error is
// that of Check.
func (c Config) Footprint() (Sizes, error) {
	if err := c.Check(); err != nil {
		return Sizes{}, err
	}
	c = c.withDefaults()
	return Sizes{
		Ctl:     offPublishers + int64(c.Publishers)*slotSize,
		Cursors: offSubscribers + int64(c.Subscribers)*slotSize + int64(c.Groups)*groupSize,
		Data:    int64(c.Capacity),
	}, nil
}
