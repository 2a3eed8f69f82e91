/*
 * The broker dies and is started again, while clients attach, use what they have, detach, and die.
 *
 * C clients want one of S slots of a topic, ROUNDS times each. A client says hello, attaches, uses its slot, detaches.
 * It dies at every step. Its requests are carried out by a session of the broker, one at a time, and those of different
 * clients beside each other. The broker dies at every step, or (STOP) is told to stop, DEATHS times in all, and the next one is
 * started at any moment after. What a dead process has sent is still received.
 *
 * Three things know of a slot: the memory itself (FREE, ACTIVE, CONDEMNED), the broker's own table, and the record of the
 * client in the keeper: an attachment's id, and its slot. Ids are counted by the broker: one more than it has ever given or
 * found in a record.
 *   attach:    a slot that is free in the table; ACTIVE, and its id, at once; record; reply
 *   detach:    CONDEMNED (repair), FREE, and free in the table; record away; reply
 *   adopt:     take the lease; records, the latest id first: into the table if the slot is ACTIVE and nobody has it;
 *              then free what is in use and in nobody's record; then serve
 *   reattach:  a client comes back with its secret, and the id that it uses, if it does. That is still its own if its
 *              record says so. What it has in the table and does not name is freed. A client that gives its slot up
 *              while it comes back says so afterwards.
 *   watch:     who has a slot, and has died, and is not connected, never will be: its slot is freed
 *   stop:      no more requests are taken; those that run are finished; only then is the lease given back
 * With TOPIC the topic itself is made and removed meanwhile:
 *   create:    memory; record; reply
 *   remove:    not to be found any more; record that it is removed; reply; record away with the last slot
 *
 * Properties: a slot is used by one client at a time; no broker touches the slot of a client that lives and uses it; who
 * lives gets back what it uses, and no more; a slot is given anew only after the repair of what a dead one left; one broker at a time
 * has the lease and writes records; when all clients are gone and a broker serves, every slot is free in memory, no
 * table and no record has any: nothing leaks. With TOPIC: a topic is there from the reply to its creation to the request
 * of its removal, and never after the reply to that; who uses a slot of it keeps it; and it leaves nothing.
 *
 * Left out: what a claim leaves (claim-repair.pml), groups (group-redeliver.pml), the death of the keeper, kernels that cannot tell
 * whether a process lives (there GRACE is what happens, and the configured time the only guard), weak memory: whoever
 * changes a slot's state here is the broker.
 *
 * Twins that must be refuted:
 *   REPLYFIRST   an attach is answered before it is recorded
 *   SWEEPFIRST   what nobody is recorded to hold is freed before the records are read
 *   EARLIERWINS  of two records that name one slot the one with the lower id has it
 *   IDFIRST      an id is counted before the slot is taken: the order of ids is not that of the slot's owners
 *   NOSECRET     a client that comes back is known by the ids that it names
 *   GRACE        who has not come back for a while is taken for dead
 *   STOPEARLY    (STOP) the lease is given back before the last request is finished
 *   NOSWEEP      what nobody is recorded to hold is left alone
 *   KEEPREST     what a client does not name when it comes back is left to it
 *   UNTOLD       who gives its slot up while it comes back does not say so
 *   MADEFIRST    (TOPIC) a creation is answered before it is recorded
 *   GONEFIRST    (TOPIC) a removal is answered before it is recorded
 *   DROPPED      (TOPIC) the record of a removed topic is deleted while somebody uses it
 */
#ifndef C
#define C 2
#endif
#ifndef S
#define S 1
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define NOBODY 15

#define FREE 0
#define ACTIVE 1
#define CONDEMNED 2

#define NONE 0						/* no topic; no message */
#define MADE 1
#define REMOVED 2

#define ATTACH 1					/* requests */
#define DETACH 2
#define REATTACH 3
#define CREATE 4
#define REMOVE 5
#define END 6						/* the end of a connection */

#define DONE 1						/* replies */
#define REFUSED 2
#define KEPT 3
#define LOST 4

/* What outlives everybody: the topic's memory, and the keeper. */
byte mem[S];
byte rid[C], rslot[C];					/* a client's record: an attachment's id, or 0 */
byte rtopic;						/* the topic's record */
byte lease = 0;						/* the broker that has it */

byte user[S] = NOBODY;					/* ghost: who lives and uses it */
bool dirty[S];						/* ghost: its user has died, and it is not repaired */
byte born = 0, bury = 0;				/* ghost, TOPIC: 1 asked for, 2 answered */

/* Brokers: the number of each is its epoch. There may be two at a time, each with memory of its own. */
byte epoch = 0, serving = 0, stopping = 0;
byte live[2];						/* the broker that lives in this place */
byte slots[2 * S], held[2 * C], where[2 * C], lastid[2], busy[2], topic[2];

/* Clients: connection, request, reply. */
byte conn[C], req[C], reqid[C], rep[C], repid[C], repslot[C];
bool hung[C], dead[C];
byte ended = 0, deaths = 0;

#define ALIVE(b) (live[(b) % 2] == (b))
#define BROKEN(c) (conn[c] == 0 || hung[c] || !ALIVE(conn[c]))

/* A step of broker e, which may be dead. */
#define STEP(x) atomic { if :: ALIVE(e) -> x :: else -> goto gone fi }
/* A write to the keeper takes the lease. */
#ifdef STOPEARLY
#define RECORD(x) STEP(x)
#else
#define RECORD(x) STEP(assert(lease == e); x)
#endif
#define REPLY(what, a, sl) STEP(if :: conn[c] == e && !hung[c] && !dead[c] -> rep[c] = what; repid[c] = a; repslot[c] = sl :: else fi)

/* Frees the slot of client x, and forgets it. */
#define LETGO(x) \
	STEP(s = where[p * C + x]; assert(user[s] == NOBODY); mem[s] = CONDEMNED); \
	STEP(mem[s] = FREE; dirty[s] = false; slots[p * S + s] = 0; held[p * C + x] = 0); \
	RECORD(rid[x] = 0; s = 0); \
	TOPICUNUSED

#ifdef TOPIC
#define UNUSED (slots[p * S] == 0 && slots[p * S + S - 1] == 0)
#define TOPICUNUSED RECORD(if :: topic[p] == REMOVED && UNUSED && rtopic == REMOVED -> topic[p] = NONE; rtopic = NONE :: else fi)
#define THERE (topic[p] == MADE)
#define TOPICQUIET (bury == 0 || rtopic == NONE)
#else
#define TOPICUNUSED skip
#define THERE true
#define TOPICQUIET true
#endif

/* Takes a free slot. Ids grow with the slot's owners, since both change at once. */
#define TAKE(newid) \
	s = 0; \
	do :: s < S && slots[p * S + s] != 0 -> s++ :: else -> break od; \
	if \
	:: s < S && THERE -> \
		assert(mem[s] == FREE && !dirty[s]); \
		newid; \
		mem[s] = ACTIVE; slots[p * S + s] = c + 1; held[p * C + c] = a; where[p * C + c] = s \
	:: else -> a = 0; s = 0 \
	fi

proctype Session(byte c)
{
	byte e, p, op, a, s;
end:	do
	:: atomic { req[c] != NONE && !BROKEN(c) && serving == conn[c] && stopping != conn[c] ->
		e = conn[c]; p = e % 2; op = req[c]; a = reqid[c]; req[c] = NONE; busy[p]++ }
		goto carryout
	:: atomic { dead[c] && req[c] == NONE && !BROKEN(c) && serving == conn[c] && stopping != conn[c] ->
		e = conn[c]; p = e % 2; op = END; hung[c] = true; busy[p]++ }
		goto carryout
	:: atomic { ended == C && (conn[c] == 0 || !ALIVE(conn[c]) || hung[c]) && epoch == DEATHS + 1 && serving == epoch ->
		goto out }
	od;

carryout:
	if
	:: op == ATTACH ->
#ifdef IDFIRST
		STEP(lastid[p]++; a = lastid[p]);
		STEP(TAKE(skip));
#else
		STEP(TAKE(lastid[p]++; a = lastid[p]));
#endif
		if
		:: a == 0 -> REPLY(REFUSED, 0, 0)
		:: else ->
#ifdef REPLYFIRST
			REPLY(DONE, a, s);
			RECORD(rid[c] = a; rslot[c] = s)
#else
			RECORD(rid[c] = a; rslot[c] = s);
			REPLY(DONE, a, s)
#endif
		fi
	:: op == DETACH ->
		if
		:: a != 0 && held[p * C + c] == a -> LETGO(c)
		:: else
		fi;
		REPLY(DONE, 0, 0)
	:: op == REATTACH ->
#ifdef NOSECRET
		STEP(s = 0;
			do :: s < C && (a == 0 || held[p * C + s] != a) -> s++ :: else -> break od;
			if
			:: s < C && s != c -> held[p * C + c] = a; where[p * C + c] = where[p * C + s]; held[p * C + s] = 0;
				slots[p * S + where[p * C + c]] = c + 1
			:: else
			fi; s = 0);
#endif
#ifndef KEEPREST
		if
		:: held[p * C + c] != 0 && held[p * C + c] != a -> LETGO(c)
		:: else
		fi;
#endif
		STEP(s = ((a != 0 && held[p * C + c] == a) -> KEPT : LOST));
		REPLY(s, a, 0)
	:: op == END ->
		if
		:: held[p * C + c] != 0 -> LETGO(c)
		:: else
		fi
#ifdef TOPIC
	:: op == CREATE ->
		if
		:: topic[p] == NONE ->
			STEP(topic[p] = MADE);
#ifdef MADEFIRST
			REPLY(DONE, 0, 0);
			RECORD(rtopic = MADE)
#else
			RECORD(rtopic = MADE);
			REPLY(DONE, 0, 0)
#endif
		:: else -> REPLY(REFUSED, 0, 0)
		fi
	:: op == REMOVE ->
		if
		:: topic[p] == MADE ->
			STEP(topic[p] = REMOVED);
#ifdef GONEFIRST
			REPLY(DONE, 0, 0);
#endif
#ifdef DROPPED
			RECORD(rtopic = NONE);
#else
			RECORD(rtopic = REMOVED);
#endif
#ifndef GONEFIRST
			REPLY(DONE, 0, 0);
#endif
			TOPICUNUSED
		:: else -> REPLY(REFUSED, 0, 0)
		fi
#endif
	fi;
gone:	atomic { if :: ALIVE(e) -> busy[p]-- :: else fi; op = 0; a = 0; s = 0; e = 0; p = 0 }
	goto end;
out:	skip
}

#define RESUME(x) \
	STEP(if \
	:: rid[x] != 0 -> \
		if :: lastid[p] < rid[x] -> lastid[p] = rid[x] :: else fi; \
		s = rslot[x]; \
		if \
		:: TOPICKNOWN && mem[s] == ACTIVE && slots[p * S + s] == 0 -> \
			slots[p * S + s] = x + 1; held[p * C + x] = rid[x]; where[p * C + x] = s \
		:: else \
		fi; \
		s = 0 \
	:: else fi)

#ifdef TOPIC
#define TOPICKNOWN (topic[p] != NONE)
#else
#define TOPICKNOWN true
#endif

#ifdef EARLIERWINS
#define FIRST(x, y) (rid[x] < rid[y])
#else
#define FIRST(x, y) (rid[x] > rid[y])
#endif

/* Frees what the memory says is in use, and no record. */
#define SWEEP \
	i = 0; \
	do \
	:: i < S && slots[p * S + i] == 0 && mem[i] != FREE -> \
		STEP(assert(user[i] == NOBODY); mem[i] = CONDEMNED); \
		STEP(mem[i] = FREE; dirty[i] = false); i++ \
	:: i < S && !(slots[p * S + i] == 0 && mem[i] != FREE) -> i++ \
	:: i == S -> i = 0; break \
	od

#ifdef GRACE
#define AWAY(x) true
#else
#define AWAY(x) dead[x]
#endif

proctype Broker()
{
	byte e, p, i, s;
start:	atomic {
		lease == 0 && epoch <= DEATHS && live[(epoch + 1) % 2] == 0 ->
		epoch++; e = epoch; p = e % 2; lease = e; live[p] = e; busy[p] = 0; lastid[p] = 0;
		i = 0; do :: i < S -> slots[p * S + i] = 0; i++ :: else -> break od;
		i = 0; do :: i < C -> held[p * C + i] = 0; where[p * C + i] = 0; i++ :: else -> i = 0; break od
#ifdef TOPIC
		; topic[p] = rtopic;
		assert(!(born == 2 && bury == 0) || rtopic == MADE);
		assert(bury < 2 || rtopic != MADE);
		if :: rtopic == NONE -> mem[0] = FREE; mem[S - 1] = FREE; dirty[0] = false; dirty[S - 1] = false :: else fi
#endif
	}
#ifdef SWEEPFIRST
	SWEEP;
#endif
	if
	:: C == 1 -> RESUME(0)
	:: C > 1 && FIRST(0, 1) -> RESUME(0); RESUME(1)
	:: C > 1 && !FIRST(0, 1) -> RESUME(1); RESUME(0)
	fi;
#ifndef NOSWEEP
	SWEEP;
#endif
	do
	:: i < C && rid[i] != 0 && held[p * C + i] == 0 -> RECORD(rid[i] = 0; i++)
	:: i < C && !(rid[i] != 0 && held[p * C + i] == 0) -> i++
	:: i == C -> i = 0; break
	od;
	TOPICUNUSED;
	STEP(serving = e);
end:	do
	:: atomic { !ALIVE(e) || stopping == e -> goto gone }
	:: atomic { ALIVE(e) && stopping != e && held[p * C] != 0 && conn[0] != e && AWAY(0) -> i = 0; busy[p]++ } -> LETGO(i); STEP(busy[p]--)
	:: atomic { ALIVE(e) && stopping != e && C > 1 && held[p * C + C - 1] != 0 && conn[C - 1] != e && AWAY(C - 1) -> i = C - 1; busy[p]++ } -> LETGO(i); STEP(i = 0; busy[p]--)
	od;
gone:	atomic { i = 0; s = 0; p = 0; e = 0 }
	goto start
}

/* Kills the broker that has been started last, or (STOP) tells it to stop. */
proctype Fate()
{
	byte e, i;
end:	do
	:: atomic { deaths < DEATHS && ALIVE(epoch) && epoch != 0 && stopping != epoch ->
		deaths++; live[epoch % 2] = 0;
		if :: lease == epoch -> lease = 0 :: else fi }
#ifdef STOP
	:: atomic { deaths < DEATHS && ALIVE(epoch) && serving == epoch && stopping != epoch ->
		deaths++; e = epoch; stopping = e;
		i = 0;
		do :: i < C && conn[i] == e -> hung[i] = true; i++ :: i < C && conn[i] != e -> i++ :: i == C -> break od;
		i = 0
#ifdef STOPEARLY
		; lease = 0
#endif
		}
		atomic { busy[e % 2] == 0 ->
			live[e % 2] = 0;
			if :: lease == e -> lease = 0 :: else fi;
			e = 0 }
#endif
	od
}

#define IDLE 0
#define USING 1
#define WAITING 2					/* for the reply to sent */

proctype Client(byte c)
{
	byte st = IDLE, id, s, sent, asked, rounds;
	bool back;					/* it comes back: a reattach is under way */
	do
	:: atomic { st == IDLE && !back && !BROKEN(c) && rounds < ROUNDS ->
		rounds++; req[c] = ATTACH; reqid[c] = 0; sent = ATTACH; st = WAITING }
#ifdef TOPIC
	:: atomic { c == 0 && st == IDLE && !back && !BROKEN(c) && born < 2 ->
		born = 1; req[c] = CREATE; sent = CREATE; st = WAITING }
	:: atomic { c == C - 1 && st == IDLE && !back && !BROKEN(c) && born == 2 && bury < 2 ->
		bury = 1; req[c] = REMOVE; sent = REMOVE; st = WAITING }
#endif
	/* It gives its slot up. Where there is no broker, nobody is told. */
	:: atomic { st == USING ->
		user[s] = NOBODY;
		if
		:: !back && !BROKEN(c) -> req[c] = DETACH; reqid[c] = id; sent = DETACH; st = WAITING; asked = id
		:: else -> st = IDLE
		fi;
		id = 0; s = 0 }
	:: atomic { st == WAITING && !back && rep[c] != NONE ->
		if
		:: sent == ATTACH && rep[c] == DONE ->
			id = repid[c]; s = repslot[c];
			assert(user[s] == NOBODY && mem[s] == ACTIVE);
			user[s] = c; st = USING
#ifdef TOPIC
		:: sent == CREATE -> born = 2; st = IDLE	/* REFUSED: it was made before */
		:: sent == REMOVE -> bury = 2; st = IDLE
		:: sent != CREATE && sent != REMOVE && !(sent == ATTACH && rep[c] == DONE) -> st = IDLE
#else
		:: !(sent == ATTACH && rep[c] == DONE) -> st = IDLE
#endif
		fi;
		rep[c] = NONE; repid[c] = 0; repslot[c] = 0; sent = 0; asked = 0 }
	/* The connection ends. What was asked may have been done, or not; an attach is asked for again. */
	:: atomic { BROKEN(c) && (back || rep[c] == NONE) && serving != 0 && ALIVE(serving) && stopping != serving ->
		rep[c] = NONE; repid[c] = 0; repslot[c] = 0;
		conn[c] = serving; hung[c] = false; back = true;
		if
		:: st == WAITING && sent == ATTACH -> rounds--
		:: else
		fi;
		if
		:: st == USING -> asked = id
		:: st == WAITING && sent == DETACH	/* asked is what was given up: it is on the list still */
		:: st != USING -> asked = 0
		fi;
		if :: st == WAITING -> st = IDLE :: else fi;
		sent = 0;
		req[c] = REATTACH; reqid[c] = asked }
	:: atomic { back && rep[c] != NONE && !BROKEN(c) ->
		back = false;
		if
		:: st == USING -> assert(rep[c] == KEPT); asked = 0
#ifndef UNTOLD
		:: st != USING && rep[c] == KEPT -> req[c] = DETACH; reqid[c] = asked; sent = DETACH; st = WAITING
#endif
		:: else -> asked = 0
		fi;
		rep[c] = NONE; repid[c] = 0; repslot[c] = 0 }
	:: atomic { (c != 0 || born != 1) && (c != C - 1 || bury != 1) -> /* it dies, or it ends */
		if
		:: st == USING -> user[s] = NOBODY; dirty[s] = true
		:: st == IDLE && !back && !BROKEN(c) -> assert(rid[c] == 0)
		:: else
		fi;
		break }
	od;
	atomic { dead[c] = true; rep[c] = NONE; repid[c] = 0; repslot[c] = 0; ended++ }
}

/* When all are gone, and a broker serves, nothing is left. If it never comes to that, that is a deadlock here. */
proctype Quiet()
{
	ended == C && epoch == DEATHS + 1 && serving == epoch &&
	mem[0] == FREE && mem[S - 1] == FREE && rid[0] == 0 && rid[C - 1] == 0 &&
	slots[(epoch % 2) * S] == 0 && slots[(epoch % 2) * S + S - 1] == 0 &&
	held[(epoch % 2) * C] == 0 && held[(epoch % 2) * C + C - 1] == 0 && TOPICQUIET
}

init {
	byte i;
	atomic {
#ifndef TOPIC
		rtopic = MADE;
#endif
		run Broker(); run Fate(); run Quiet();
		do :: i < C -> run Client(i); run Session(i); i++ :: else -> break od
	}
}
