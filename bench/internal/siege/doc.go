// Package siege runs processes of every kind on a bus, kills and stops them at named points and at random times, starts
// others in their place, and checks all the while that nothing is lost.
//
//	arena   one topic, with the ledger that checks what its readers say
//	berth   a place for one process at a time: the one that dies, and the next one
//	Action  what is done to a berth, and when; all of a run's actions are its schedule, which can be run again
//
// A run is one goroutine, the director, which hears of everything by events: lines that processes say, points at which they
// have stopped, deaths, violations. Chance decides what it does next until the duration is over (or the schedule of an earlier run
// does); then everything is left in peace, read to the end, and compared with what was there at the beginning.
package siege
