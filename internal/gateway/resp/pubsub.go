package resp

import "sync"

// audience is who has subscribed to one channel or pattern.
type audience struct {
	members []*conn
	index   map[*conn]int
}

func (a *audience) add(c *conn) {
	a.index[c] = len(a.members)
	a.members = append(a.members, c)
}

func (a *audience) remove(c *conn) {
	i, last := a.index[c], len(a.members)-1
	a.members[i] = a.members[last]
	a.index[a.members[i]] = i
	a.members[last] = nil
	a.members = a.members[:last]
	delete(a.index, c)
}

// audiences are all of them, by name.
type audiences map[string]*audience

func (as audiences) add(name string, c *conn) {
	a := as[name]
	if a == nil {
		a = &audience{index: make(map[*conn]int)}
		as[name] = a
	}
	a.add(c)
}

func (as audiences) remove(name string, c *conn) {
	a := as[name]
	if a.remove(c); len(a.members) == 0 {
		delete(as, name)
	}
}

// A hope is a subscription that is confirmed once its topics are read.
type hope struct {
	name    string
	pattern bool
}

// pubsub is who has subscribed to what. Hubs read it for each batch; connections change it.
type pubsub struct {
	mu       sync.RWMutex
	channels audiences
	patterns audiences
	hopes    map[hope]int
}

// expect counts a hope: from now on what it is about is wanted.
func (p *pubsub) expect(h hope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hopes[h]++
}

// settle counts the hope out, and calls then, if it is not nil, before anything is dispatched.
func (p *pubsub) settle(h hope, then func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hopes[h]--; p.hopes[h] == 0 {
		delete(p.hopes, h)
	}
	if then != nil {
		then()
	}
}

// receivers is how many subscriptions a message of this channel meets.
func (p *pubsub) receivers(channel []byte) int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	n := 0
	if a := p.channels[string(channel)]; a != nil {
		n = len(a.members)
	}
	for pattern, a := range p.patterns {
		if glob(pattern, string(channel)) {
			n += len(a.members)
		}
	}
	return n
}

// wanted says whether somebody wants a channel, or, with "", anything at all.
func (p *pubsub) wanted(channel string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if channel == "" {
		return len(p.channels)+len(p.patterns)+len(p.hopes) > 0
	}
	if p.channels[channel] != nil {
		return true
	}
	for pattern := range p.patterns {
		if glob(pattern, channel) {
			return true
		}
	}
	for h := range p.hopes {
		if h.name == channel && !h.pattern || h.pattern && glob(h.name, channel) {
			return true
		}
	}
	return false
}

func (p *pubsub) hasPatterns() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.patterns) > 0
}
