/*
 * Groups: claiming frames with the owner in the head's word, helping, and members that die at every step.
 *
 * N members claim one or two of F frames at a time. The head is one word, a position and the member that moved it there;
 * a member's claim is one word, a start and a state, and an end that is written before it. A member: loads head; helps
 * (records the claim that moved head to where it is); writes its end, then INTENT(start); compares and swaps head; writes
 * HELD; finishes frames; writes IDLE. The broker reaps the dead: head first, then the claim.
 *
 * Properties: no frame is claimed twice; the broker takes a range for the dead one's exactly when it was; in the end every
 * frame below head was finished or is redelivered, and redelivered once at most.
 *
 * Left out: orphans, gating and acknowledgements one by one (group-redeliver.pml), weak memory.
 *
 * Twins that must be refuted:
 *   NOHELP     nobody records the claim before his own: the head forgets the claim of one who dies before HELD
 *   SLOTFIRST  the broker reads the claim before the head
 *   ENDLAST    a member writes INTENT before its end
 */
#ifndef N
#define N 2
#endif
#ifndef F
#define F 3
#endif
#define NOBODY 9

#define IDLE 0
#define INTENT 1
#define HELD 2

byte headpos = 0, headby = NOBODY;	/* one word */
byte state[N], start[N];		/* one word */
byte until[N];
bool dead[N], fin[N], reaped[N];

byte holder[F];				/* ghost: who claimed it, + 1 */
bool done[F];				/* ghost: finished by its holder */
bool orphan[F];				/* ghost: to be redelivered */

#define OR_DIE :: atomic { dead[id] = true; goto out }

proctype Member(byte id) {
	byte h, o, e, s;
again:
	do
	::
		if
		:: atomic { h = headpos; o = headby; if :: h >= F -> goto giveup :: else fi }
		OR_DIE
		fi;
#ifndef NOHELP
		if
		:: atomic { o != NOBODY && o != id && state[o] == INTENT -> s = start[o] }	/* the load of the claim's word */
			if
			:: until[o] == h ->
				if	/* a compare-and-swap */
				:: atomic { if :: state[o] == INTENT && start[o] == s -> state[o] = HELD :: else fi; s = 0 }
				OR_DIE
				fi
			:: atomic { until[o] != h -> s = 0 }
			OR_DIE
			fi
		:: atomic { !(o != NOBODY && o != id && state[o] == INTENT) }
		OR_DIE
		fi;
#endif
		if :: e = h + 1 :: h + 2 <= F -> e = h + 2 fi;
#ifdef ENDLAST
		if :: atomic { start[id] = h; state[id] = INTENT } OR_DIE fi;
		if :: until[id] = e OR_DIE fi;
#else
		if :: until[id] = e OR_DIE fi;
		if :: atomic { start[id] = h; state[id] = INTENT } OR_DIE fi;
#endif
		if
		:: atomic { headpos == h && headby == o -> headpos = e; headby = id;
			s = h; do :: s < e -> assert(holder[s] == 0); holder[s] = id + 1; s++ :: else -> break od; s = 0 }
		:: atomic { !(headpos == h && headby == o) -> h = 0; o = 0; e = 0; goto again }
		OR_DIE
		fi;
		if
		:: atomic { assert(start[id] == h && state[id] != IDLE); state[id] = HELD; s = h; h = 0; o = 0 }
		OR_DIE
		fi;
		do
		:: s < e -> if :: atomic { done[s] = true; s++ } OR_DIE fi
		:: else -> break
		od;
		if :: atomic { state[id] = IDLE; s = 0; e = 0 } OR_DIE fi
	od;
giveup:
	if :: state[id] = IDLE OR_DIE fi;
out:
	atomic { fin[id] = true; h = 0; o = 0; e = 0; s = 0 }
}

proctype Broker() {
	byte m, h, o, s, e, k, left = N;
	do
	:: left > 0 ->
		if
		:: atomic { fin[0] && !reaped[0] -> m = 0 }
		:: atomic { fin[1] && !reaped[1] -> m = 1 }
#if N > 2
		:: atomic { fin[2] && !reaped[2] -> m = 2 }
#endif
		fi;
		if
		:: dead[m] ->
#ifdef SLOTFIRST
			atomic { k = state[m]; s = start[m]; e = until[m] }
			atomic { h = headpos; o = headby }
#else
			atomic { h = headpos; o = headby }
			atomic { k = state[m]; s = start[m] }
			e = until[m];
#endif
			atomic {
				if
				:: k == HELD || k == INTENT && o == m && h == e ->
					do :: s < e -> assert(holder[s] == m + 1 && !orphan[s]); orphan[s] = true; s++ :: else -> break od
				:: else
				fi;
				state[m] = IDLE
			}
		:: else
		fi;
		atomic { reaped[m] = true; left--; m = 0; h = 0; o = 0; s = 0; e = 0; k = 0 }
	:: else -> break
	od;
	atomic {
		s = 0;
		do :: s < headpos -> assert(done[s] || orphan[s]); s++ :: else -> break od
	}
}

init {
	byte p = 0;
	atomic { do :: p < N -> run Member(p); p++ :: else -> break od; run Broker() }
}
