/*
 * Claim, commit, abort and repair, with publishers that die at every step.
 *
 * NP publishers make K claims of one or two cells each. One broker repairs after the dead while the living go on.
 *
 * Properties: no cell's stamp is stored twice; repair fills only what the dead claimed; at the end, walking from claim to
 * claim meets a stamp everywhere and ends exactly at tail; a claim of the living is committed as its owner wrote it.
 *
 * Left out: room and laps (lap.pml), batches (batch-repair.pml), the wrap, memory weaker than sequential consistency.
 *
 * Twins that must be refuted:
 *   STAMPFIRST  repair looks at the stamp before it looks at the living intents
 *   KEEPINTENT  a publisher that gives up leaves its intent behind: repair waits for it for ever
 */
#ifndef NP
#define NP 3
#endif
#ifndef K
#define K 1
#endif
#ifndef CELLS
#define CELLS 3
#endif
#define NONE 255
#define PADDING 100             /* stamp of what repair filled; a publisher's is its number + 1, an aborted claim's + 51 */

byte tail = 0;
byte intent[NP] = NONE;
byte stamp[CELLS];              /* 0: none. The header's length goes with it: size. */
byte size[CELLS];

bool dead[NP];                  /* as the kernel tells the broker */
byte running = NP;
byte owner[CELLS];              /* ghost: who claimed the cell as the first of a claim, + 1 */

/* A publisher may die in place of any step. */
#define OR_DIE :: atomic { dead[id] = true; goto out }

proctype Publisher(byte id) {
	byte t, n, k = 0;
	do
	:: k < K ->
		if :: n = 1 :: n = 2 fi;
retry:
		if
		:: atomic { t = tail; if :: t + n > CELLS -> t = 0; n = 0; goto giveup :: else fi }
		OR_DIE
		fi;
		if :: intent[id] = t OR_DIE fi;
		if
		:: atomic { tail == t -> tail = t + n; assert(owner[t] == 0); owner[t] = id + 1; size[t] = n }
		:: atomic { tail != t -> goto retry }
		OR_DIE
		fi;
		if
		:: atomic { assert(stamp[t] == 0); stamp[t] = id + 1 }
#ifdef ABORT
		:: atomic { assert(stamp[t] == 0); stamp[t] = id + 51 }	/* the same store, of padding */
#endif
		OR_DIE
		fi;
		if :: atomic { intent[id] = NONE; k++; t = 0; n = 0 } OR_DIE fi
	:: else -> break
	od;
giveup:
#ifndef KEEPINTENT
	if :: intent[id] = NONE OR_DIE fi;
#endif
	skip;
out:
	atomic { running--; t = 0; n = 0; k = 0 }
}

bool repaired[NP];
#define DIED(x) (x < NP && dead[x] && !repaired[x])

proctype Broker() {
	byte i, j, t, q, end;
	bool busy;
	do
	::	/* the next one that died and is not repaired yet, or the end */
		if
		:: atomic { DIED(0) -> i = 0 }
#if NP > 1
		:: atomic { DIED(1) -> i = 1 }
#endif
#if NP > 2
		:: atomic { DIED(2) -> i = 2 }
#endif
		:: atomic { running == 0 && !DIED(0) && !DIED(1) && !DIED(2) -> break }
		fi;
	t = intent[i];
	if :: t == NONE || tail <= t -> goto repaired1 :: else fi;
again:
#ifdef STAMPFIRST
	if :: stamp[t] != 0 -> goto repaired1 :: else fi;
#endif
	j = 0;
	do
	:: j < NP ->
		/* One of the two lost the compare-and-swap. Wait until this one moves on. */
		if :: !dead[j] && intent[j] == t -> dead[j] || intent[j] != t; goto again :: else fi;
		j++
	:: else -> break
	od;
#ifndef STAMPFIRST
	if :: stamp[t] != 0 -> goto repaired1 :: else fi;
#endif
	atomic { end = tail; q = t + 1 }
	do
	:: q < end ->
		j = 0;
		do
		:: j < NP -> if :: !dead[j] && intent[j] == q -> busy = true :: else fi; j++
		:: else -> break
		od;
		if :: busy -> break :: else fi;
		if :: stamp[q] != 0 -> break :: else fi;
		q++
	:: else -> break
	od;
	atomic {
		assert(stamp[t] == 0 && owner[t] != 0 && dead[owner[t] - 1]);
		stamp[t] = PADDING; size[t] = q - t;
		j = t;
		do :: j < q -> assert(owner[j] == 0 || dead[owner[j] - 1]); j++ :: else -> break od
	}
repaired1:
	atomic { intent[i] = NONE; repaired[i] = true; i = 0; j = 0; t = 0; q = 0; end = 0; busy = false }
	od;
	atomic {	/* what a consumer meets */
		t = 0;
		do
		:: t < tail ->
			assert(stamp[t] != 0);
			assert(stamp[t] == PADDING || stamp[t] % 50 == owner[t]);
			t = t + size[t]
		:: else -> break
		od;
		assert(t == tail)
	}
}

init {
	byte p = 0;
	atomic { do :: p < NP -> run Publisher(p); p++ :: else -> break od; run Broker() }
}
