package siege

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// chance decides what to do next. What it has decided stands in the schedule, so that it can be done again.
type chance struct {
	random *rand.Rand
	// killed counts the processes that died at each point, and reach is a hit that they come to: twice as late after each
	// success, half as late after each process that ended otherwise.
	killed map[string]int
	reach  map[string]float64
	tries  map[string]int // in vain, since the last success
}

const (
	// between is the mean time between two signals.
	between = 60 * time.Millisecond
	// meanStop and longestStop are how long a process is stopped, and longestRest is how long a berth is empty.
	meanStop    = 250 * time.Millisecond
	longestStop = 2 * time.Second
	longestRest = 30 * time.Millisecond
	// mostHits is the latest hit that acts, and brokerHits that of a broker, which passes most of its points seldom.
	mostHits   = 1 << 12
	brokerHits = 4
	// Enough is how many processes should die at each point in a run that lasts.
	Enough = 10
)

func newChance(seed uint64) *chance {
	return &chance{random: rand.New(rand.NewPCG(seed, 5)), killed: map[string]int{}, reach: map[string]float64{}, tries: map[string]int{}}
}

// pause is the time to the next signal.
func (c *chance) pause() time.Duration {
	return time.Duration(c.random.ExpFloat64() * float64(between))
}

// rest is how long a berth stays empty.
func (c *chance) rest() time.Duration { return time.Duration(c.random.Int64N(int64(longestRest))) }

// standstill is how long a process is stopped.
func (c *chance) standstill() time.Duration {
	return min(time.Duration(c.random.ExpFloat64()*float64(meanStop)), longestStop)
}

// arm chooses some points for the next process, or none: of those at which the fewest have died.
func (c *chance) arm(points []string, n int) (all []*arming) {
	if len(points) == 0 || c.random.IntN(8) == 0 {
		return nil
	}
	left := slices.Clone(points)
	for range min(n, len(points)) {
		a := c.choose(left)
		all = append(all, a)
		left = slices.DeleteFunc(left, func(p string) bool { return p == a.point })
	}
	return all
}

// armBroker chooses points for the next broker, all of one kind: it would never come to those of serving if it died at one of
// adopting. After a broker that never served comes one that does, for a while: clients must be able to tell it that they leave.
func (c *chance) armBroker(served bool) (all []*arming) {
	points, n := servePoints, 3
	if served {
		first := c.choose(brokerPoints).point
		for i, kind := range [][]string{adoptPoints, mendPoints, servePoints} {
			if slices.Contains(kind, first) {
				points, n = kind, i+1
				break
			}
		}
	}
	all = c.arm(points, n)
	for _, a := range all {
		if !served {
			a.at++
		}
	}
	return all
}

// choose chooses one point.
func (c *chance) choose(points []string) *arming {
	total := 0.0
	weight := func(p string) float64 {
		return math.Pow(1+float64(c.killed[p]), -2) * math.Pow(1+float64(c.tries[p]), -0.5)
	}
	for _, p := range points {
		total += weight(p)
	}
	pick, point := c.random.Float64()*total, points[len(points)-1]
	for _, p := range points {
		if pick -= weight(p); pick < 0 {
			point = p
			break
		}
	}
	a := &arming{point: point, action: "kill", at: 1}
	ofBroker := slices.Contains(brokerPoints, point)
	switch rare := c.killed[point] < Enough; {
	case rare && ofBroker: // there is one broker at a time, and all of its points to come to
	case rare && c.random.IntN(8) == 0, !rare && c.random.IntN(3) == 0:
		a.action = "stop"
	}
	if c.reach[point] == 0 {
		c.reach[point] = 32
		if ofBroker {
			c.reach[point] = brokerHits / 2
		}
	}
	a.at = int(math.Exp(c.random.Float64() * math.Log(c.reach[point])))
	return a
}

// fired notes that a process came to its point.
func (c *chance) fired(a *arming) {
	if a.action == "kill" {
		c.killed[a.point]++
	}
	c.tries[a.point] = 0
	most := float64(mostHits)
	if slices.Contains(brokerPoints, a.point) {
		most = brokerHits
	}
	c.reach[a.point] = min(2*c.reach[a.point], most)
}

// missed notes that a process ended before it came there.
func (c *chance) missed(a *arming) {
	c.tries[a.point]++
	c.reach[a.point] = max(c.reach[a.point]/2, 1)
}

// spares reports whether a process is left alone this time: it is on its way to a point at which few have died.
func (c *chance) spares(armed []*arming) bool {
	rare := slices.ContainsFunc(armed, func(a *arming) bool { return c.killed[a.point] < Enough })
	return rare && c.random.IntN(4) > 0
}

// signal chooses what happens to a process.
func (c *chance) signal(b *berth) string {
	n := c.random.IntN(10)
	switch {
	case b.kind == kindAnchor || n == 0:
		return doStop
	case n < 7:
		return doKill
	}
	return doTerm
}
