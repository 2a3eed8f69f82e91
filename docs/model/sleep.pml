/*
 * Sleeping against the doorbell: no wake-up is lost for ever.
 *
 * NP publishers commit F frames in one order of positions and die at every step; NS subscribers read them all and sleep in
 * between; the broker repairs after the dead, and then rings. The commit goes into the publisher's store buffer, and the
 * load of the sleepers' word that follows may pass it. A compare-and-swap (the claim) and an exchange drain the buffer of
 * who does them; time drains it as well, at any moment; membarrier drains all. (With one publisher, EXCLUSIVE, the claim is
 * plain stores.)
 *
 * The doorbell keeps nothing: a ring is an edge, noticed by who has cleared his own edge before. Go's netpoller clears it
 * when a wait begins, so a sleeper: clears the edge, sets his bit, looks, and sleeps at first for a bounded time (which may
 * end at any moment here); when that ran out, he clears the edge, sets his bit, calls membarrier, looks, and only then
 * sleeps without bound. Who rings takes the whole word by an exchange first.
 *
 * FENCED: commits are exchanges, and the first sleep is without bound already.
 * SHARED: all subscribers share one bit (there are more slots than bits). Nobody takes it back then.
 *
 * Property: when nobody can do anything any more, every subscriber has read all frames.
 *
 * Left out: the other reorderings of a machine weaker than x86-TSO; publishers that wait for room (the same protocol with
 * the parts exchanged); contexts and deadlines, which only add ways to wake.
 *
 * Twins that must be refuted:
 *   NOBARRIER     sleeps without bound and without membarrier
 *   BARRIERFIRST  calls membarrier before he sets his bit again
 *   EARLYBIT      sets his bit (and calls membarrier) before the edge is cleared: the ring that took the bit, for a frame
 *                 of another publisher, is cleared with it, and he sleeps with no bit set
 *   NOBIT         does not set his bit again before the sleep without bound
 *   NORING        the broker does not ring for a publisher that died between the exchange and the ring
 *   RINGFIRST     the broker rings before it repairs
 *   TAKEBACK      with SHARED: who finds a frame takes the bit back, which is another's as well
 */
#ifndef NP
#define NP 2
#endif
#ifndef NS
#define NS 2
#endif
#ifndef F
#define F 2
#endif
#ifdef SHARED
#define BIT(s) word[0]
#else
#define BIT(s) word[s]
#endif

byte tail = 0;
byte stamp[F];			/* 0: not there; 1: in its publisher's store buffer; 2: visible */
byte owner[F];			/* the intents, as far as repair needs them: who claimed the position, + 1 */
bool word[NS];			/* the sleepers' word */
bool edge[NS];			/* noticed since it was cleared */
bool dead[NP], repaired[NP];
byte running = NP;
byte cursor[NS];			/* the cursors */

#define DIED(x) (dead[x] && !repaired[x])
#define OR_DIE :: atomic { dead[id] = true; goto out }

/* Stores in buffers become visible: of one publisher, or of all (p == NP). */
inline drain(p) {
	k = 0;
	do
	:: k < F -> if :: stamp[k] == 1 && (p == NP || owner[k] == p + 1) -> stamp[k] = 2 :: else fi; k++
	:: else -> k = 0; break
	od
}

inline ring() {
	k = 0;
	do :: k < NS -> edge[k] = true; k++ :: else -> k = 0; break od
}

/* Takes the whole word: got is whether any bit was set. */
inline exchange() {
	k = 0; got = false;
	do :: k < NS -> got = got || word[k]; word[k] = false; k++ :: else -> k = 0; break od
}

proctype Publisher(byte id) {
	byte t, k;
	bool got;
	do
	::
		if
		:: atomic {
			tail < F;
			t = tail; tail++; owner[t] = id + 1;
#ifndef EXCLUSIVE
			drain(id)
#endif
			}
		:: atomic { tail == F -> goto out }
		OR_DIE
		fi;
		if
#ifdef FENCED
		:: atomic { stamp[t] = 2 }
#else
		:: atomic { stamp[t] = 1 }
#endif
		OR_DIE
		fi;
		if
		:: atomic { got = word[0] || word[NS - 1]; if :: got -> skip :: else -> t = 0; goto next fi }
		OR_DIE
		fi;
		if
		:: atomic { drain(id); exchange(); t = 0; if :: got -> skip :: else -> goto next fi }
		OR_DIE
		fi;
		if
		:: atomic { ring(); got = false }
		OR_DIE
		fi;
next:
		skip
	od;
out:
	atomic { running--; t = 0; got = false }
}

/* Time. Of one publisher's stores the older become visible first. */
proctype Time() {
	byte k;
end:
	do
	:: atomic { stamp[0] == 1 -> stamp[0] = 2 }
	:: atomic { stamp[1] == 1 && (stamp[0] != 1 || owner[0] != owner[1]) -> stamp[1] = 2 }
#if F > 2
	:: atomic { stamp[2] == 1 && (stamp[0] != 1 || owner[0] != owner[2]) && (stamp[1] != 1 || owner[1] != owner[2]) ->
		stamp[2] = 2 }
#endif
	od
}

proctype Broker() {
	byte i, k;
end:
	do
	::
		if
		:: atomic { DIED(0) -> i = 0 }
#if NP > 1
		:: atomic { DIED(1) -> i = 1 }
#endif
		fi;
#ifdef RINGFIRST
		atomic { ring() }
#endif
		atomic {
			k = 0;
			do
			:: k < F -> if :: owner[k] == i + 1 -> stamp[k] = 2 :: else fi; k++
			:: else -> k = 0; break
			od;
#ifdef NORING
			repaired[i] = true
#endif
		}
#ifndef NORING
#ifdef RINGFIRST
		repaired[i] = true
#else
		atomic { ring(); repaired[i] = true }
#endif
#endif
	od
}

proctype Subscriber(byte id) {
	byte k;
	do
	:: cursor[id] == F -> break
	:: cursor[id] < F ->
look:
		if :: atomic { stamp[cursor[id]] == 2 -> cursor[id]++; goto found } :: else fi;
#ifndef FENCED
#ifdef EARLYBIT
		BIT(id) = true;
#endif
		edge[id] = false;
#ifndef EARLYBIT
		BIT(id) = true;
#endif
		if :: stamp[cursor[id]] == 2 -> goto awake :: else fi;
		if
		:: edge[id] -> goto look	/* rung: the bit is gone */
		:: skip				/* the time has run out */
		fi;
		if :: stamp[cursor[id]] == 2 -> goto awake :: else fi;
#endif
#ifdef BARRIERFIRST
		atomic { drain(NP) }
#endif
#ifdef EARLYBIT
		BIT(id) = true;
		atomic { drain(NP) }
#endif
		edge[id] = false;
#ifndef EARLYBIT
#ifndef NOBIT
		BIT(id) = true;
#endif
#ifndef NOBARRIER
#ifndef BARRIERFIRST
#ifndef FENCED
		atomic { drain(NP) }
#endif
#endif
#endif
#endif
		if :: stamp[cursor[id]] == 2 -> goto awake :: else fi;
endless:
		edge[id];			/* the sleep without bound */
		goto look;
awake:
#ifdef SHARED
#ifdef TAKEBACK
		BIT(id) = false;
#endif
#else
		BIT(id) = false;
#endif
		skip;
found:
		skip
	od
}

/* When nobody can do anything any more: has everybody read everything? */
proctype Check() {
	byte s;
	timeout;
	atomic {
		do :: s < NS -> assert(cursor[s] == tail); s++ :: else -> break od
	}
}

init {
	byte p = 0;
	atomic {
		do :: p < NP -> run Publisher(p); p++ :: else -> break od;
		p = 0;
		do :: p < NS -> run Subscriber(p); p++ :: else -> break od;
		run Time();
		run Broker();
		run Check()
	}
}
