/*
 * Batches: one claim for several frames, of which the first is stamped last, with publishers that die at every step.
 *
 * NP publishers claim 1 to MAXN cells each. Any cell behind the first may be the start of an inner frame (a frame of the
 * batch, or the frame behind the padding before the wrap). Inner frames are stamped in order, with the INNER flag, and
 * then the first one without it: that store commits all of them. One broker repairs after the dead. A reader joins at
 * some cell and looks for a place to start.
 *
 * Properties: repair fills only what the dead claimed and did not commit; at the end, a walk from frame to frame meets a
 * stamp everywhere and ends at tail; a batch is there as a whole or not at all; and the same holds for the walk from where
 * a joiner started: the first stamp without INNER at or behind the cell that it wanted, or else tail.
 *
 * Left out: room and laps, the wrap (a filler that wraps is two, stamped like a batch), repair that dies.
 *
 * Twins that must be refuted:
 *   NOFLAG     repair's walk takes an inner stamp for a boundary: the filler ends in the middle of a batch, and behind
 *              the stamped inner frame is a hole for ever
 *   JOINANY    a joiner starts at an inner frame: of a batch that is not committed, and is filled behind its back
 *   FIRSTFIRST the first frame is stamped before the inner ones: a reader walks into a batch that is not finished
 */
#ifndef NP
#define NP 2
#endif
#ifndef CELLS
#define CELLS 4
#endif
#ifndef MAXN
#define MAXN 3
#endif
#ifndef K
#define K 1
#endif
#define NONE 255
#define PADDING 100

byte tail = 0;
byte intent[NP] = NONE;
byte stamp[CELLS];		/* 0: none; publisher + 1; PADDING */
bool inner[CELLS];		/* the INNER flag, part of the header that the stamp commits */
byte size[CELLS];		/* the header's length, in cells */

bool dead[NP], repaired[NP];
byte running = NP;
byte owner[CELLS];		/* ghost: who claimed this cell, + 1, for every cell of a claim */
byte first[CELLS];		/* ghost: where the claim that holds this cell begins */
byte started = NONE;		/* where the joiner started */

#define OR_DIE :: atomic { dead[id] = true; goto out }
#define DIED(x) (dead[x] && !repaired[x])

proctype Publisher(byte id) {
	byte t, n, q, e, k = 0;
	do
	:: k < K ->
		if :: n = 1 :: MAXN > 1 -> n = 2 :: MAXN > 2 -> n = 3 fi;
retry:
		if
		:: atomic { t = tail; if :: t + n > CELLS -> goto giveup :: else fi }
		OR_DIE
		fi;
		if :: intent[id] = t OR_DIE fi;
		if
		:: atomic { tail == t -> tail = t + n;
			q = t; do :: q < t + n -> assert(owner[q] == 0); owner[q] = id + 1; first[q] = t; q++ :: else -> break od;
			q = t + 1 }
		:: atomic { tail != t -> goto retry }
		OR_DIE
		fi;
#ifdef FIRSTFIRST
		atomic { stamp[t] = id + 1; size[t] = 1 };
#endif
		/* A frame begins at e and ends where the next one begins, or the claim ends. The first one begins at t. */
		e = t;
		do
		:: q < t + n ->
			if
			:: atomic { size[e] = q - e; e = q; q++;
				/* the extent of the inner frame at e, known to its writer before it stamps */
				if :: q < t + n -> q++; size[e] = 2 :: size[e] = 1 fi;
				assert(stamp[e] == 0); inner[e] = true; stamp[e] = id + 1 }
			:: n > 1 && e == t -> q++	/* the first frame is longer */
			OR_DIE
			fi
		:: else -> break
		od;
		if
		:: atomic { if :: e == t -> size[t] = n :: else fi; assert(stamp[t] != PADDING); stamp[t] = id + 1 }
		OR_DIE
		fi;
		if :: atomic { intent[id] = NONE; k++; t = 0; n = 0; q = 0; e = 0 } OR_DIE fi
	:: else -> break
	od;
giveup:
	if :: intent[id] = NONE OR_DIE fi;
out:
	atomic { running--; t = 0; n = 0; q = 0; e = 0; k = 0 }
}

#ifdef NOFLAG
#define BOUNDARY(q) (stamp[q] != 0)
#else
#define BOUNDARY(q) (stamp[q] != 0 && !inner[q])
#endif

proctype Broker() {
	byte i, j, t, q, end;
	bool busy;
	do
	::
		if
		:: atomic { DIED(0) -> i = 0 }
#if NP > 1
		:: atomic { DIED(1) -> i = 1 }
#endif
#if NP > 2
		:: atomic { DIED(2) -> i = 2 }
#endif
		:: atomic { running == 0 && started != NONE;
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
		if :: stamp[t] != 0 && !inner[t] -> goto done :: else fi;
		atomic { end = tail; q = t + 1 }
		do
		:: q < end ->
			j = 0;
			do
			:: j < NP -> if :: !dead[j] && intent[j] == q -> busy = true :: else fi; j++
			:: else -> break
			od;
			if :: busy -> break :: else fi;
			if :: BOUNDARY(q) -> break :: else fi;
			q++
		:: else -> break
		od;
		atomic {
			j = t;
			do
			:: j < q -> assert(dead[owner[j] - 1] && (stamp[first[j]] == 0 || stamp[first[j]] == PADDING)); j++
			:: else -> break
			od;
			assert(!inner[t]);
			stamp[t] = PADDING; size[t] = q - t
		}
done:
		atomic { intent[i] = NONE; repaired[i] = true; i = 0; j = 0; t = 0; q = 0; end = 0; busy = false }
	od;
	atomic {
		t = 0;
		do
		:: t < tail ->
			assert(stamp[t] != 0);
			assert(stamp[t] == PADDING || stamp[t] == owner[t]);
			assert(!inner[t] || stamp[first[t]] == owner[t]);	/* no half of a batch */
			t = t + size[t]
		:: else -> break
		od;
		assert(t == tail);
		t = started;
		do
		:: t < tail ->
			assert(stamp[t] != 0);
			assert(!inner[t] || stamp[first[t]] == owner[t]);
			t = t + size[t]
		:: else -> break
		od;
		assert(t == tail)
	}
}

#ifdef JOINANY
#define START(q) (stamp[q] != 0)
#else
#define START(q) (stamp[q] != 0 && !inner[q])
#endif

proctype Joiner() {
	byte q, end;
	end = tail;
	if :: q = 0 :: q = 1 :: q = 2 fi;
	do
	:: q < end -> if :: START(q) -> break :: else fi; q++
	:: else -> break
	od;
	started = (q < end -> q : end)
}

init {
	byte p = 0;
	atomic { do :: p < NP -> run Publisher(p); p++ :: else -> break od; run Broker(); run Joiner() }
}
