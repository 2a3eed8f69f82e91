/*
 * A claim of a living publisher that the operator takes away (hugebus topic unstick).
 *
 * Nobody but its own process can tell when a publisher will not write to its claim any more: a check and the store behind it
 * are two instructions, and it may stand between them for an hour. So the broker asks the process, and repairs only when it
 * has answered, by giving the slot back, or has died. In the process the claim is in the hands of its user (held says where),
 * who may write to it at any time, or of the library, which is about to commit it. The library's other thread, the revoker,
 * sets revoked, calls membarrier, and looks at held: if the user has the claim, it puts private memory in the place of the
 * window by which the user reaches it (the fence), and only then gives the slot back. The owner's store of held stays in its
 * store buffer at first, and the load of revoked behind it may pass it.
 *
 * One process: an owner that makes K claims, one after the other, and a revoker that is asked for the first. The process may die
 * at any step. The broker repairs the cell of the first claim; others publish there then.
 *
 * Properties: once the broker has repaired, nothing of the process reaches the cell; who was told that its claim is revoked has not
 * committed it, and the cell is padding in the end; who was told that it is committed finds it so; the cell is never left open.
 *
 * Left out: the broker's own steps (claim-repair.pml: a publisher that has given its slot back is like a dead one).
 *
 * Twins that must be refuted:
 *   NOFENCE    the window stays as it is: the user writes over somebody else's frame
 *   NOBARRIER  no membarrier: the owner commits what was taken away
 *   NOLOCK     the owner believes revoked at once: its claim is given up by both, or by none
 *   IMPATIENT  the broker repairs without an answer
 *   ANYCLAIM   the revoker does not compare positions: it takes a later claim for the one that is meant
 */
#ifndef K
#define K 2
#endif
#define MINE 1
#define PADDING 2

byte stamp[K];		/* of the cells of the claims */
bool reused;		/* others may have published over the first cell by now */
byte held, buffered;	/* claim in the user's hands, + 1; as the owner has stored it, and as the revoker sees it */
bool pending;		/* the store is in the owner's buffer */
bool revoked, decided, lock, fenced, given, dead;
bool told_revoked, told_committed;	/* of the first claim */
byte running = 2;

#define OR_DIE :: atomic { dead = true; goto out }
#define OR_DEAD :: dead -> goto out

inline put(v) { if :: pending -> held = buffered :: else fi; buffered = v; pending = true }
inline drain() { if :: pending -> held = buffered; pending = false :: else fi }

/* The buffer empties by itself at any time. */
active proctype Time() {
end:	do :: atomic { pending -> drain() } od
}

proctype Owner() {
	byte c = 0;
	do
	:: c < K ->
		if :: atomic { !dead -> drain(); put(c + 1) } OR_DEAD fi;	/* the compare-and-swap of tail drains */
		do	/* the user has it */
		:: atomic { !dead -> if :: !fenced || c > 0 -> assert(c > 0 || !reused) :: else fi }
		:: break
		OR_DIE
		OR_DEAD
		od;
		/* Commit */
		if :: atomic { !dead -> put(0) } OR_DIE OR_DEAD fi;
		if
		:: atomic { !dead && revoked -> skip }
#ifdef NOLOCK
			if :: c == 0 -> told_revoked = true :: else fi; goto next;
#endif
			if :: atomic { !lock && !dead -> lock = true; drain() } OR_DEAD fi;
			if
			:: decided -> lock = false; told_revoked = true; break
			:: else -> lock = false
			fi
		:: atomic { !dead && !revoked -> skip }
		OR_DEAD
		fi;
		if
		:: atomic { !dead -> assert(stamp[c] == 0); stamp[c] = MINE; if :: c == 0 -> told_committed = true :: else fi }
		OR_DIE
		OR_DEAD
		fi;
next:		c++
	:: else -> break
	od;
out:
	running--
}

proctype Revoker() {
	if :: atomic { !lock && !dead -> lock = true } OR_DEAD fi;
	if :: atomic { !dead -> revoked = true } OR_DEAD fi;
#ifndef NOBARRIER
	if :: atomic { !dead -> drain() } OR_DEAD fi;
#endif
	if
#ifdef ANYCLAIM
	:: atomic { !dead && held != 0 -> decided = true }
	:: atomic { !dead && held == 0 -> revoked = false; lock = false; goto out }
#else
	:: atomic { !dead && held == 1 -> decided = true }
	:: atomic { !dead && held != 1 -> revoked = false; lock = false; goto out }
#endif
	OR_DEAD
	fi;
#ifndef NOFENCE
	if :: atomic { !dead -> fenced = true } OR_DEAD fi;
#endif
	if :: atomic { !dead -> lock = false } OR_DEAD fi;
	if :: atomic { !dead -> given = true } OR_DEAD fi;
out:
	running--
}

active proctype Broker() {
	if
	:: given || dead -> skip
#ifdef IMPATIENT
	:: skip
#endif
	:: running == 0 && !dead && !given -> goto done	/* there is nothing to repair */
	fi;
	atomic { if :: stamp[0] == 0 -> stamp[0] = PADDING :: else fi; reused = true }
done:
	running == 0;
	assert(dead || stamp[0] != 0);
	assert(!told_revoked || stamp[0] == PADDING);
	assert(!told_committed || stamp[0] == MINE)
}

init { atomic { run Owner(); run Revoker() } }
