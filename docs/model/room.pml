/*
 * Publishers that wait for room, against intents: who waits for a claim of another publisher to end is woken.
 *
 * There is no subscriber. NP publishers publish some frames each, one of them F, into a ring of C cells, a cell for each frame. A claim may not
 * reach further than C cells from any other publisher's intent (lap.pml says why). Who finds no room sets his bit, calls
 * membarrier, looks once more, and sleeps until he is rung for; the wait that comes before that, with a bound, and the edges of the
 * doorbell are those of sleep.pml.
 *
 * Who ends a claim, or gives up an intent whose compare-and-swap was lost, clears his intent. That store goes into his store buffer, and
 * the loads behind it may pass it: of the word of those who wait, and then of tail, by which he decides whether his intent can
 * have been in anybody's way. If so he takes the word and rings. Between the two loads he drains his buffer, by an exchange.
 *
 * Here an intent at t is in the way from tail - t == C on, which is exact for claims of one cell. The code takes a quarter of the
 * capacity: earlier, since claims are larger there. A smaller NEAR only rings more often.
 *
 * Property: when nobody can do anything any more, all frames are published.
 *
 * Left out: cursors (a reader rings for whatever it makes free, as who commits does in sleep.pml), deaths (the broker rings after
 * each repair), the wait for half of the capacity, which is bounded by time and may end at any moment.
 *
 * Twins that must be refuted:
 *   NOFENCE     tail is read while the intent may still be seen
 *   NEAR=3      (with C=2) rings only for who is further behind
 *   NOWITHDRAW  does not ring when an intent is given up without a claim
 *   NOMOVE      rings only for the last of the intents that a claim took, not for the first, which its compare-and-swap lost
 */
#ifndef NP
#define NP 3
#endif
#ifndef F
#define F 2
#endif
/* The first has one frame, and holds up the others; so has the last, unless it is to have MORE. */
#ifdef MORE
#define FRAMES(id) (id == 0 -> 1 : F)
#else
#define FRAMES(id) (id == 1 -> F : 1)
#endif
#ifndef C
#define C 2
#endif
#ifndef NEAR
#define NEAR C
#endif

byte tail = 0;
byte intent[NP];			/* position + 1 as others see it; 0: none */
bool clearing[NP];			/* the store of 0 is in the buffer */
bool word[NP];			/* bits of those who wait */
bool edge[NP];
byte done = 0;

/* What p's buffer holds becomes visible. */
inline drain(p) { if :: clearing[p] -> clearing[p] = false; intent[p] = 0 :: else fi }

inline drainAll() {
	k = 0;
	do :: k < NP -> drain(k); k++ :: else -> k = 0; break od
}

/* The exchange that takes the word, and the ring for those whose bits it took. */
inline ring() {
	drain(id);
	k = 0;
	do :: k < NP -> if :: word[k] -> word[k] = false; edge[k] = true :: else fi; k++ :: else -> k = 0; break od
}

proctype Publisher(byte id) {
	byte n, t, k, first;
	bool room, got;
	do
	:: n == FRAMES(id) -> break
	:: n < FRAMES(id) ->
		/* The limit: tail first, then each intent. */
look:		atomic { t = tail; room = true; k = 0 }
		do
		:: k < NP ->
			atomic {
				if :: k != id && intent[k] != 0 && t + 1 > intent[k] - 1 + C -> room = false :: else fi;
				k++
			}
		:: else -> k = 0; break
		od;
		if
		:: !room && (clearing[id] || intent[id] == 0) -> goto sleep	/* no intent of ours is left */
		:: !room && !clearing[id] && intent[id] != 0 -> got = false; goto clear
		:: room -> skip
		fi;
		/* Stores leave the buffer in their order: an earlier clearing has gone. */
		atomic {
			if :: clearing[id] || intent[id] == 0 -> first = t :: else fi;
			clearing[id] = false; intent[id] = t + 1
		}
		if
		:: atomic { tail == t -> tail++; got = true }
		:: tail != t -> goto look	/* the intent stays, until it is written again or given up */
		fi;
#ifdef NOMOVE
		first = t;
#else
		/* The intent has moved from first to t: that is the end of the one at first. The compare-and-swap was the fence. */
		if
		:: atomic { first == t -> goto clear }
		:: atomic { first != t && !(word[0] || word[1] || word[NP - 1]) -> goto clear }
		:: atomic { first != t && (word[0] || word[1] || word[NP - 1]) -> skip }
		fi;
		if
		:: atomic { tail - first >= NEAR -> ring() }
		:: atomic { tail - first < NEAR -> skip }
		fi;
		first = t;
#endif
clear:		/* of a claim that was committed (got), or given up */
		atomic { clearing[id] = true; t = first; first = 0 }
#ifdef NOWITHDRAW
		if :: got -> skip :: else -> goto cleared fi;
#endif
		if
		:: atomic { word[0] || word[1] || word[NP - 1] -> skip }
		:: atomic { !(word[0] || word[1] || word[NP - 1]) -> goto cleared }
		fi;
#ifndef NOFENCE
		atomic { drain(id) }
#endif
		if
		:: atomic { tail - t >= NEAR -> skip }
		:: atomic { tail - t < NEAR -> goto cleared }
		fi;
		atomic { ring() }
cleared:
		if :: got -> n++; got = false; goto next :: else fi;
sleep:
		edge[id] = false;
		word[id] = true;
		atomic { drainAll() }
		atomic { t = tail; room = true; k = 0 }
		do
		:: k < NP ->
			atomic {
				if :: k != id && intent[k] != 0 && t + 1 > intent[k] - 1 + C -> room = false :: else fi;
				k++
			}
		:: else -> k = 0; break
		od;
		if :: room -> word[id] = false; goto look :: else fi;
endless:
		edge[id];
		goto look;
next:
		skip
	od;
	atomic { done++; t = 0; room = false; first = 0 }
}

proctype Time() {
end:
	do
	:: atomic { clearing[0] -> drain(0) }
	:: atomic { clearing[1] -> drain(1) }
#if NP > 2
	:: atomic { clearing[2] -> drain(2) }
#endif
	od
}

proctype Check() {
	timeout;
	assert(done == NP)
}

init {
	byte p = 0;
	atomic {
		do :: p < NP -> run Publisher(p); p++ :: else -> break od;
		run Time();
		run Check()
	}
}
