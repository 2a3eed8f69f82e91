package ring

// More failpoints, by what passes them. Those of publishing, batches, groups, polling and repair that tests step through
// stand beside their code.
const (
	// FailLimitOdd and FailLimitStored are passed by a publisher that computes its limit, while its counter is odd.
	FailLimitOdd    = "ring/limit/odd"
	FailLimitStored = "ring/limit/stored"
	// FailWithdrawn is passed by a publisher that has taken back an intent without a claim, before it wakes others.
	FailWithdrawn = "ring/publish/withdrawn"
	// FailForgotten is passed when an intent is cleared behind a commit, before anybody is woken.
	FailForgotten = "ring/publish/forgotten"
	// FailRestPadded is passed in a commit of less than was claimed, when the rest is padding.
	FailRestPadded = "ring/claim/rest-padded"
	// FailBeforeAbort is passed before an open claim becomes padding.
	FailBeforeAbort = "ring/abort/before-stamp"
	// FailAfterEvict is passed by who has evicted a subscriber.
	FailAfterEvict = "ring/evict/after-swap"
	// FailEvictNoticed is passed by a subscriber that has seen its eviction, before it stops gating.
	FailEvictNoticed = "ring/evict/noticed"
	// FailRoomBeforeRing is passed between taking the word of those who wait for room, or of a group's other members, and
	// ringing for them.
	FailRoomBeforeRing = "ring/room/before-ring"

	// FailAfterCursor is passed when a cursor is stored, before anybody is woken for the room.
	FailAfterCursor = "ring/poll/after-cursor"
	// FailCopied is passed when a reader that may be lapped has copied, before it asks whether it was.
	FailCopied = "ring/poll/copied"

	// FailJoinCursor to FailJoined are passed by who joins, in this order: its cursor is stored; it gates; its cursor was
	// raised; its first frame is found; it is joined.
	FailJoinCursor = "ring/join/cursor"
	FailJoinGates  = "ring/join/gates"
	FailJoinRaised = "ring/join/raised"
	FailJoinFound  = "ring/join/found"
	FailJoined     = "ring/join/joined"

	// FailGroupHelped is passed by a member that has recorded another one's claim.
	FailGroupHelped = "ring/group/helped"
	// FailGroupBeforeIdle is passed when a claim is finished or filed, before its slot says so.
	FailGroupBeforeIdle = "ring/group/before-idle"
	// FailOrphanFilling to FailOrphanReleasing are passed by who files a range among the orphans (its entry is reserved;
	// its bit is set; it is on offer) and by who frees an entry (its bit is cleared).
	FailOrphanFilling   = "ring/orphan/filling"
	FailOrphanBit       = "ring/orphan/bit"
	FailOrphanOffered   = "ring/orphan/offered"
	FailOrphanReleasing = "ring/orphan/releasing"

	// FailRepairCondemned to FailRepairMidFree are passed by the broker that repairs behind a publisher.
	FailRepairCondemned = "ring/repair/condemned"
	FailRepairFilled    = "ring/repair/filled"
	FailRepairMidFree   = "ring/repair/mid-free"
	// FailReapFiled and FailReapIdle are passed by the broker that reaps a member: what it left is filed; its slot is idle.
	FailReapFiled = "ring/reap/filed"
	FailReapIdle  = "ring/reap/idle"
	// FailReleased is passed by the broker when a subscriber does not gate any more, and its slot is not free yet.
	FailReleased = "ring/release/ungated"
)
