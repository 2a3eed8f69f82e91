package door

import (
	"maps"
	"sync"
)

// Counters count by name. The zero value is ready. It is safe for concurrent use.
type Counters struct {
	mu sync.Mutex
	by map[string]uint64
}

// Add counts one more of name.
func (c *Counters) Add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[string]uint64)
	}
	c.by[name]++
}

// All are the counts now, as a map of the caller's own.
func (c *Counters) All() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by)
}
