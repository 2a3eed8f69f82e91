/*
 * A ring without reliable subscribers: what keeps publishers from lapping a claim that is not committed yet, and repair
 * from taking a lapped frame for an uncommitted one.
 *
 * NP publishers claim cells one at a time, up to position MAXT, in a ring of CAP cells, and die at every step. Each caches
 * its limit: CAP + the lowest of tail (read first) and the others' intents. An intent that is more than CAP behind the tail
 * that was read is ignored: its owner's compare-and-swap will fail. One broker repairs after the dead.
 *
 * Properties: a cell is written for a new lap only when the frame that stood there was finished by its publisher or by
 * repair; repair finishes only frames of the dead, once; in the end every claimed position was finished.
 *
 * Left out: claims of several cells (claim-repair.pml, batch-repair.pml), reliable subscribers, weak memory.
 *
 * Twins that must be refuted:
 *   NOGATE  limits ignore the intents of others: a slow claim is lapped while it is written
 *   NOLAP   repair does not look at tail last: a stale intent of a lapped position is taken for an open claim
 *   FREEFIRST  repair clears the intent, which gates, before it fills the hole
 */
#ifndef NP
#define NP 2
#endif
#ifndef MAXT
#define MAXT 5
#endif
#define CAP 2
#define NONE 255

byte tail = 0;
byte intent[NP] = NONE;
byte limit[NP] = 0;		/* private to its publisher here */
byte cell[CAP];			/* stamp: position + 1 */

bool dead[NP], repaired[NP];
byte running = NP;
byte owner[MAXT];		/* ghost: who claimed the position, + 1 */
bool finished[MAXT];		/* ghost: committed or filled */

#define OR_DIE :: atomic { dead[id] = true; goto out }
#define DIED(x) (dead[x] && !repaired[x])

proctype Publisher(byte id) {
	byte t, m, low, j, v;
	do
	::
		if
		:: atomic { t = tail; if :: t >= MAXT -> goto giveup :: else fi }
		OR_DIE
		fi;
		if
		:: t + 1 > limit[id] ->
			atomic { m = tail; low = m; j = 0 }
#ifndef NOGATE
			do
			:: atomic { j < NP && j == id -> j++ }
			:: atomic { j < NP && j != id ->
				v = intent[j];
				if :: v < low && m - v <= CAP -> low = v :: else fi;
				v = 0; j++ }
			:: atomic { j == NP -> j = 0; break }
			od;
#endif
			atomic { limit[id] = low + CAP; low = 0; m = 0 }
		:: else
		fi;
		if
		:: t + 1 > limit[id] -> if :: intent[id] = NONE OR_DIE fi	/* no room: leave no intent behind */
		:: else ->
			if :: intent[id] = t OR_DIE fi;
			if
			:: atomic { tail == t -> tail = t + 1; owner[t] = id + 1 }
				if
				:: atomic { assert(t < CAP || finished[t - CAP]) }	/* the payload's bytes are written now */
				OR_DIE
				fi;
				if
				:: atomic { assert(!finished[t]); cell[t % CAP] = t + 1; finished[t] = true }
				OR_DIE
				fi;
				if :: intent[id] = NONE OR_DIE fi
			:: atomic { tail != t -> skip }
			OR_DIE
			fi
		fi
	od;
giveup:
	if :: intent[id] = NONE OR_DIE fi;
out:
	atomic { running--; t = 0; m = 0; low = 0; j = 0; v = 0 }
}

proctype Broker() {
	byte i, j, t;
	do
	::
		if
		:: atomic { DIED(0) -> i = 0 }
		:: atomic { DIED(1) -> i = 1 }
#if NP > 2
		:: atomic { DIED(2) -> i = 2 }
#endif
		:: atomic { running == 0;
			j = 0; do :: j < NP && dead[j] == repaired[j] -> j++ :: else -> break od;
			if :: j == NP -> break :: else -> j = 0 fi }
		fi;
		t = intent[i];
		if :: t == NONE || tail <= t -> goto done :: else fi;
again:
		j = 0;
		do
		:: j < NP ->
			if :: !dead[j] && intent[j] == t -> dead[j] || intent[j] != t; goto again :: else fi;
			j++
		:: else -> break
		od;
		if :: cell[t % CAP] == t + 1 -> goto done :: else fi;
#ifndef NOLAP
		if :: tail > t + CAP -> goto done :: else fi;
#endif
#ifdef FREEFIRST
		intent[i] = NONE;
#endif
		atomic {
			assert(!finished[t] && dead[owner[t] - 1]);
			assert(tail <= t + CAP);	/* nobody else writes there */
			cell[t % CAP] = t + 1; finished[t] = true
		}
done:
		atomic { intent[i] = NONE; repaired[i] = true; i = 0; j = 0; t = 0 }
	od;
	atomic {
		t = 0;
		do :: t < tail -> assert(finished[t]); t++ :: else -> break od
	}
}

init {
	byte p = 0;
	atomic { do :: p < NP -> run Publisher(p); p++ :: else -> break od; run Broker() }
}
