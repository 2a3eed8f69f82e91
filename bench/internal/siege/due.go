package siege

import (
	"container/heap"
	"time"
)

// Clients need a broker for breath at a time to leave and to come, and that is longestDive ago at most when the next one may not die
// at once.
const (
	breath      = 2 * time.Second
	longestDive = 12 * time.Second
	longestWait = 3 * time.Second // of anybody for a broker
)

// due does what the calendar says for now. An action without a name is for chance to choose.
func (d *director) due() error {
	for len(d.calendar) > 0 && d.calendar[0].At <= time.Since(d.began) {
		a := heap.Pop(&d.calendar).(Action)
		if a.Who == "" {
			d.later(d.chance.pause(), Action{})
			b := d.crew.all[d.chance.random.IntN(len(d.crew.all))]
			a = Action{Who: b.name, Do: d.chance.signal(b)}
			switch {
			case b == d.broker && d.chance.random.IntN(2) == 0 && d.mayKillKeeper():
				a = Action{Who: keeperName, Do: doKill}
			case b == d.broker && d.chance.random.IntN(12) == 0:
				a = Action{Who: keeperName, Do: doStop}
			case !d.may(b, a.Do), d.chance.spares(b.armed):
				continue
			}
		}
		if err := d.do(a); err != nil {
			return err
		}
	}
	return nil
}

// may reports whether chance may do that to b now.
func (d *director) may(b *berth, what string) bool {
	switch {
	case !b.alive() || b.kind == kindBroker && (!b.ready || time.Since(b.since) < time.Second || d.keeperKilled.After(d.refilled) || d.starving()):
		return false
	case what == doStop && b.arena != nil && b.arena.name == quiet:
		// Seldom, or nobody could tell who sleeps too long.
		return time.Since(b.arena.stopped) > 5*time.Second && d.chance.random.IntN(4) == 0
	case what == doTerm && b.kind == kindMember:
		// A group is closed when its last member leaves with everything finished, and begins anew with the next one. So one at a
		// time, while others are there.
		others := 0
		for _, o := range d.crew.all {
			if o.kind == kindMember && o.arena == b.arena && o != b {
				if o.term {
					return false
				}
				if o.ready && o.alive() {
					others++
				}
			}
		}
		return others > 0
	}
	return true
}

// starving reports whether somebody has waited for a broker for so long that the next one is left alone: on a machine that is slow, one
// that dies every second would keep everybody out.
func (d *director) starving() bool {
	for _, b := range d.crew.all {
		if b.kind != kindBroker && b.p != nil && !b.stopped && (!b.ready || b.term) && time.Since(b.since) > longestWait {
			return true
		}
	}
	return false
}
