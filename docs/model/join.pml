/*
 * Joining a topic, against limits that publishers have cached already.
 *
 * NP publishers claim cells one at a time, up to position MAXT, in a ring of CAP cells. Each caches its limit: CAP + the
 * lowest of tail (read first) and the cursors that gate. The limit is shared, under a counter that is odd while it is
 * computed. One joiner, and, with OLD, a subscriber that was there before and leaves at any time.
 *
 * A cursor that is more than CAP behind the tail that was read gates nobody: no correct subscriber has one, and a hostile
 * one must not stop publishers. (TRUST: publishers gate on every cursor.) A joiner's cursor can look like that for a
 * moment.
 *
 * The joiner, at a position (MODE 0, here the earliest): sets its cursor, sets its bit, and then repeats until nothing
 * changes: for each publisher, wait for an even counter and read the limit; read tail; if the highest of these is above
 * cursor + CAP, raise the cursor.
 *
 * At latest (MODE 1): cursor to tail, bit, then cursor to tail once more; if tail, read after that, is more than CAP beyond
 * the cursor before, then a publisher may have passed over that one, and the joiner raises its cursor again. It looks at
 * no limits.
 *
 * MODE 2 is MODE 1 without the check: what the design's page says.
 *
 * Property: from the moment that the joiner has joined, nothing at or above its cursor is overwritten before it has read
 * it.
 *
 * Left out: publishers that die (a dead one's counter is reset by the broker), claims of several cells, weak memory: the
 * steps marked FENCE are full fences in the code.
 *
 * Twins that must be refuted:
 *   NOTAIL     the joiner does not look at tail: a limit that was used, and then lowered, is missed
 *   LOWERS     joins at tail first and lowers its cursor afterwards
 *   EVENLESS   the joiner does not wait for an even counter
 *   LATETAIL   a publisher judges a cursor by a tail that it reads afterwards: a correct cursor looks impossible
 *   MODE=2     without TRUST: between the second look at tail and the store of it the old cursor may have become
 *              impossible, and a limit computed then reaches too far. With TRUST it is safe.
 *   MODE=2 ONCE  without the second look, even with TRUST
 */
#ifndef CAP
#define CAP 2
#endif
#ifndef NP
#define NP 2
#endif
#ifndef MAXT
#define MAXT 4
#endif
#ifndef MODE
#define MODE 0
#endif

byte tail = 0;
bool oldgates = OLD;
byte oldcursor = 0;
bool gates = false;		/* the joiner's bit */
byte cursor = 0;
bool odd[NP];
byte limit[NP] = 0;

bool joined = false;		/* ghost */
byte mine = 0;			/* ghost: what the joiner has read up to, once it has joined */

#ifdef TRUST
#define POSSIBLE(c, t) true
#else
#define POSSIBLE(c, t) ((t) - (c) <= CAP)
#endif

proctype Publisher(byte id) {
	byte t, m, low, c;
	do
	:: atomic { t = tail; if :: t >= MAXT -> break :: else fi }
		if
		:: t + 1 > limit[id] ->
			odd[id] = true;		/* FENCE */
			atomic { m = tail; low = m }
			if
			:: oldgates ->
				c = oldcursor;
#ifdef LATETAIL
				m = tail;
#endif
				atomic { if :: c < low && POSSIBLE(c, m) -> low = c :: else fi; c = 0 }
			:: else
			fi;
			if
			:: gates ->
				c = cursor;
#ifdef LATETAIL
				m = tail;
#endif
				atomic { if :: c < low && POSSIBLE(c, m) -> low = c :: else fi; c = 0 }
			:: else
			fi;
			limit[id] = low + CAP;
			atomic { odd[id] = false; low = 0; m = 0 }	/* FENCE */
		:: else
		fi;
		if
		:: t + 1 <= limit[id] ->
			atomic {
				if
				:: tail == t -> tail = t + 1;
					/* the cell of position t - CAP is written over */
					assert(!(joined && t >= CAP && t - CAP >= mine))
				:: else
				fi;
				t = 0
			}
		:: else
		fi
	od;
	atomic { t = 0; m = 0; low = 0; c = 0 }
}

proctype Old() {
	do
	:: oldgates && oldcursor < tail -> oldcursor++
	:: oldgates -> oldgates = false; break
	:: !oldgates -> break
	od
}

proctype Joiner() {
	byte c, i, reach;
#if MODE == 0
	c = (tail > CAP -> tail - CAP : 0);
#else
	c = tail;
#endif
#ifdef LOWERS
	atomic { i = c; c = tail }
	cursor = c;
	atomic { c = i; i = 0 }
#else
	cursor = c;
#endif
	gates = true;			/* FENCE */
#if MODE == 1
	do
	::	atomic { i = c; c = tail }	/* i: the cursor before */
		cursor = c;		/* FENCE */
		if :: tail - i <= CAP -> break :: else fi
	od;
#elif MODE == 2
#ifndef ONCE
	c = tail;
	cursor = c;
#endif
#else
again:
	atomic { i = 0; reach = 0 }
	do
	:: i < NP ->
#ifndef EVENLESS
		!odd[i];
#endif
		atomic { if :: limit[i] > reach -> reach = limit[i] :: else fi; i++ }
	:: else -> break
	od;
#ifndef NOTAIL
	if :: tail > reach -> reach = tail :: else fi;
#endif
	if
	:: reach > c + CAP -> c = reach - CAP; cursor = c; goto again
	:: else
	fi;
#ifdef LOWERS
	cursor = c;
#endif
#endif
	atomic { joined = true; mine = c; i = 0; reach = 0; assert(tail <= mine + CAP); c = 0 }
	do
	:: atomic { mine < tail -> mine++ } cursor = mine
	:: tail == MAXT && mine == tail -> break
	od
}

init {
	byte p = 0;
	atomic { do :: p < NP -> run Publisher(p); p++ :: else -> break od; run Old(); run Joiner() }
}
