/*
 * Groups: ranges that their member did not finish go to other members, gate until they are finished, and may be orphaned
 * again.
 *
 * N members share F frames. A member takes an orphaned range if one is offered, and claims one or two frames otherwise
 * (group-claim.pml says how, and why). It acknowledges frame by frame. It dies at every step; and (REFUSE) the handler may
 * refuse a frame, or stop behind one, and then the member files the rest itself. The broker reaps the dead. One publisher computes,
 * once and at any moment, how far the group lets it overwrite: the lowest of head (read first), the members' claims, and
 * the orphans, in that order.
 *
 * An orphan's entry is a word of state, owner and count, a start and an end, and a bit in the group's bitmap of orphans.
 *   file:    FREE -> FILLING (compare-and-swap), start and end, bit, OFFERED; only then is the claim's word cleared
 *   take:    bit seen, OFFERED -> TAKEN (compare-and-swap); start moves up with each frame
 *   release: bit cleared, then FREE
 *   reap:    for each entry of the dead: FILLING -> bit cleared, FREE; TAKEN with its bit -> OFFERED, once more; TAKEN
 *            without: FREE. Then the member's own claim is filed.
 *
 * Properties: what the publisher's gate passes is finished, and nobody will read it again; a frame that was handed out
 * before is handed out with a mark; the broker files only what the dead one held; when all is over every claimed frame is
 * finished, or stands in an entry or in a claim that gates and is still to be reaped; and no entry is lost.
 *
 * Left out: dead letters (the broker takes an entry like a member), a broker that dies, the count beyond one, corrupt
 * values, weak memory.
 *
 * Twins that must be refuted:
 *   CLEARFIRST    a claim's word is cleared before the entry is visible
 *   ORPHANSFIRST  the publisher looks at the orphans before the claims
 *   HEADLAST      the publisher looks at the claims before the head
 *   FREEFIRST     release frees the entry before it clears the bit, and clears the bit of who files there next
 *   BITLESS       reaping offers a taken entry again without looking at its bit: it is never seen, and never free
 *   BITLAST       an entry is offered before its bit is set: who takes it at once, from a look at the bits that is older,
 *                 and dies, leaves an entry that looks finished
 */
#ifndef N
#define N 2
#endif
#ifndef F
#define F 2
#endif
#ifndef E
#define E 1
#endif
#define NOBODY 9
#define BROKER 8

#define IDLE 0
#define INTENT 1
#define HELD 2

#define FREE 0
#define OFFERED 1
#define TAKEN 2
#define FILLING 3

byte headpos = 0, headby = NOBODY;			/* one word */
byte state[N], start[N], until[N];			/* state and start are one word; until is written before it */
byte estate[E], eowner[E];				/* one word, with marked */
bool marked[E];						/* the count is above nought */
byte estart[E], euntil[E];
bool ebit[E];						/* the bitmap: one word */

bool dead[N], fin[N], reaped[N];
bool done[F];						/* ghost: a handler returned */
bool handed[F];						/* ghost: a handler was called */
byte owed[F];						/* ghost: in how many claims and entries it stands unfinished */
byte truly[F];						/* ghost: who claimed it, + 1 */

#define OR_DIE :: atomic { dead[id] = true; goto out }
#define NO_DEATH

/* One load of the bitmap. */
#define SNAPSHOT set = ebit[0]; if :: E > 1 && ebit[E - 1] -> set = set + 2 :: else fi
#define BIT(i) ((set >> (i)) % 2 == 1)

/* owed[from..to) + by */
#define OWE(from, to, by) \
	q = from; do :: q < to -> owed[q] = owed[q] + by; q++ :: else -> q = 0; break od

#ifdef BITLAST
#define SHOW(offer, bit) offer; bit
#define OFFERED_IS_VISIBLE seen
#else
#define SHOW(offer, bit) bit; offer
#define OFFERED_IS_VISIBLE true
#endif

/* Files from..to; i is the entry, or E where none was free. */
#define FILE(from, to, mark, by, OR_ELSE) \
	i = 0; \
	do \
	:: i < E -> \
		if \
		:: atomic { estate[i] == FREE -> estate[i] = FILLING; eowner[i] = by; marked[i] = mark; break } \
		:: atomic { estate[i] != FREE -> i++ } \
		OR_ELSE \
		fi \
	:: else -> break \
	od; \
	if \
	:: i < E -> \
		if :: estart[i] = from OR_ELSE fi; \
		SHOW(if :: atomic { euntil[i] = to; estate[i] = OFFERED; OWE(from, to, 1) } OR_ELSE fi, if :: ebit[i] = true OR_ELSE fi) \
	:: else \
	fi

proctype Member(byte id) {
	byte h, o, e, s, i, q, set;
	bool mark;
poll:
	do
	::
		atomic { SNAPSHOT; i = 0 }
		do
		:: i < E && BIT(i) ->
			if
			:: atomic { estate[i] == OFFERED -> o = eowner[i] }	/* the load of the word */
				if
				:: atomic { estate[i] == OFFERED && eowner[i] == o ->
					estate[i] = TAKEN; eowner[i] = id; s = estart[i]; e = euntil[i]; o = 0; set = 0; goto orphan }
				:: atomic { !(estate[i] == OFFERED && eowner[i] == o) -> i++ }
				OR_DIE
				fi
			:: atomic { estate[i] != OFFERED -> i++ }
			OR_DIE
			fi
		:: i < E && !BIT(i) -> i++
		:: i == E -> set = 0; break
		od;
		atomic { i = 0; h = headpos; o = headby; if :: h >= F -> goto out :: else fi }
		if
		:: atomic { o != NOBODY && o != id && state[o] == INTENT -> s = start[o] }
			if
			:: atomic { until[o] == h ->
				if :: state[o] == INTENT && start[o] == s -> state[o] = HELD :: else fi; s = 0 }	/* compare-and-swap */
			:: atomic { until[o] != h -> s = 0 }
			OR_DIE
			fi
		:: atomic { !(o != NOBODY && o != id && state[o] == INTENT) }
		OR_DIE
		fi;
		if :: e = h + 1 :: h + 2 <= F -> e = h + 2 fi;
		if :: until[id] = e OR_DIE fi;
		if :: atomic { start[id] = h; state[id] = INTENT } OR_DIE fi;
		if
		:: atomic { headpos == h && headby == o -> headpos = e; headby = id;
			OWE(h, e, 1); q = h; do :: q < e -> assert(truly[q] == 0); truly[q] = id + 1; q++ :: else -> q = 0; break od }
		:: atomic { !(headpos == h && headby == o) -> h = 0; o = 0; e = 0; goto poll }
		OR_DIE
		fi;
		if :: atomic { state[id] = HELD; s = h; h = 0; o = 0 } OR_DIE fi;
		do
		:: s < e ->
			if :: atomic { assert(!handed[s]); handed[s] = true } OR_DIE fi;
			if
			:: atomic { done[s] = true }
#ifdef REFUSE
			:: atomic { mark = true; goto putback }		/* refused */
#endif
			OR_DIE
			fi;
			if
			:: atomic { start[id] = s + 1; owed[s]--; s++;
#ifdef REFUSE
				if :: s < e -> goto putback :: s < e :: else fi		/* or stopped here */
#endif
				}
			OR_DIE
			fi
		:: else -> goto idle
		od;
putback:
#ifdef CLEARFIRST
		atomic { state[id] = IDLE; OWE(s, e, -1) }
#endif
		FILE(s, e, mark, id, OR_DIE);
		mark = false;
		if
		:: i < E -> i = 0
		:: else -> goto leave		/* no entry: the claim stays, and gates, until it is reaped */
		fi;
idle:
#ifndef CLEARFIRST
		if :: atomic { state[id] = IDLE; OWE(s, e, -1) } OR_DIE fi;
#else
		if :: atomic { state[id] = IDLE } OR_DIE fi;
#endif
		atomic { s = 0; e = 0; goto poll };
orphan:
		do
		:: s < e ->
			if :: atomic { assert(!handed[s] || marked[i]); handed[s] = true } OR_DIE fi;
			if
			:: atomic { done[s] = true }
#ifdef REFUSE
			:: atomic { marked[i] = true; estate[i] = OFFERED; goto offered }		/* refused */
#endif
			OR_DIE
			fi;
			if :: atomic { estart[i] = s + 1; owed[s]--; s++ } OR_DIE fi
#ifdef REFUSE
		:: s > 0 && s < e -> atomic { estate[i] = OFFERED; goto offered }		/* the limit, or stopped */
#endif
		:: s == e -> break
		od;
#ifdef FREEFIRST
		if :: estate[i] = FREE OR_DIE fi;
		if :: ebit[i] = false OR_DIE fi;
#else
		if :: ebit[i] = false OR_DIE fi;
		if :: estate[i] = FREE OR_DIE fi;
#endif
offered:
		atomic { i = 0; s = 0; e = 0 }
	od;
leave:
	/* It leaves with its claim: to the broker the same as dying. */
	dead[id] = true;
out:
	atomic { fin[id] = true; h = 0; o = 0; e = 0; s = 0; i = 0; q = 0; mark = false }
}

proctype Broker() {
	byte m, i, q, h, o, s, e, k;
	bool seen;
	do
	::
		if
		:: atomic { dead[0] && !reaped[0] -> m = 0 }
		:: atomic { dead[1] && !reaped[1] -> m = 1 }
#if N > 2
		:: atomic { dead[2] && !reaped[2] -> m = 2 }
#endif
		:: atomic { fin[0] && fin[1] && (N < 3 || fin[N - 1]) -> break }	/* enough, whatever is left to reap */
		fi;
		i = 0;
		do
		:: i < E ->
			if
			:: atomic { eowner[i] == m && estate[i] != FREE -> k = estate[i] }
				if
				:: k == FILLING && ebit[i] -> ebit[i] = false
				:: else -> seen = ebit[i]
				fi;
#ifdef BITLESS
				seen = true;
#endif
				atomic {
					if
					:: estate[i] == k && eowner[i] == m ->		/* a compare-and-swap of the word */
						if
						:: k == OFFERED && OFFERED_IS_VISIBLE -> skip
						:: k == TAKEN && seen -> estate[i] = OFFERED; eowner[i] = BROKER; marked[i] = true
						:: else -> if :: k == OFFERED -> OWE(estart[i], euntil[i], -1) :: else fi; estate[i] = FREE
						fi
					:: else
					fi;
					k = 0; seen = false
				}
			:: else
			fi;
			i++
		:: else -> break
		od;
		atomic { i = 0; h = headpos; o = headby }
		atomic { k = state[m]; s = start[m]; e = until[m] }
		if
		:: (k == HELD || k == INTENT && o == m && h == e) && s < e ->
			atomic { q = s; do :: q < e -> assert(truly[q] == m + 1); q++ :: else -> q = 0; break od }
#ifdef CLEARFIRST
			atomic { state[m] = IDLE; OWE(s, e, -1) }
#endif
			FILE(s, e, true, BROKER, NO_DEATH);
			if
			:: i < E ->
#ifndef CLEARFIRST
				atomic { state[m] = IDLE; OWE(s, e, -1) }
#endif
				reaped[m] = true
			:: else		/* try again later: it still gates */
			fi
		:: else -> state[m] = IDLE; reaped[m] = true
		fi;
		atomic { m = 0; i = 0; q = 0; h = 0; o = 0; s = 0; e = 0; k = 0 }
	od;
	atomic {	/* nothing is forgotten */
		i = 0;
		do
		:: i < E -> assert(estate[i] == FREE || ebit[i] || (eowner[i] < N && dead[eowner[i]] && !reaped[eowner[i]])); i++
		:: else -> break
		od;
		q = 0;
		do
		:: q < headpos ->
			if
			:: done[q]
			:: !done[q] ->
				i = 0; seen = false;
				do
				:: i < E -> seen = seen || (ebit[i] && (estate[i] == OFFERED || estate[i] == TAKEN) && estart[i] <= q && q < euntil[i]); i++
				:: else -> break
				od;
				i = 0;
				do
				:: i < N -> seen = seen || (dead[i] && !reaped[i] && state[i] != IDLE && start[i] <= q && q < until[i]); i++
				:: else -> break
				od;
				assert(seen)
			fi;
			q++
		:: else -> break
		od
	}
}

inline claims() {
	i = 0;
	do
	:: atomic { i < N -> if :: state[i] != IDLE && start[i] < g -> g = start[i] :: else fi; i++ }
	:: else -> break
	od;
	i = 0
}

inline orphans() {
	atomic { SNAPSHOT; i = 0 }
	do
	:: i < E && BIT(i) ->
		if
		:: estate[i] != FREE -> atomic { if :: estart[i] < g -> g = estart[i] :: else fi; i++ }
		:: estate[i] == FREE -> i++
		fi
	:: i < E && !BIT(i) -> i++
	:: i == E -> break
	od;
	atomic { i = 0; set = 0 }
}

proctype Publisher() {
	byte g, i, set;
#ifdef HEADLAST
	g = F;
	claims();
	if :: headpos < g -> g = headpos :: else fi;
	orphans();
#else
	g = headpos;
#ifdef ORPHANSFIRST
	orphans(); claims();
#else
	claims(); orphans();
#endif
#endif
	atomic {
		i = 0;
		do :: i < g -> assert(done[i] && owed[i] == 0); i++ :: else -> break od
	}
}

init {
	byte p = 0;
	atomic { do :: p < N -> run Member(p); p++ :: else -> break od; run Broker();
#ifndef NOGATE
		run Publisher()
#endif
	}
}
