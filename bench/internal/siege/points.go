package siege

import (
	"slices"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/ring"
)

// Failpoints, by who passes them.
var (
	publisherPoints = []string{
		ring.FailAfterIntent, ring.FailAfterClaim, ring.FailMidCopy, ring.FailBeforeCommit, ring.FailMidWrap, ring.FailAfterCommit,
		ring.FailForgotten, ring.FailBeforeRing, ring.FailRoomBeforeRing, ring.FailLimitOdd, ring.FailLimitStored, ring.FailWithdrawn,
	}
	batchPoints = []string{ring.FailMidBatch}
	claimPoints = []string{ring.FailRestPadded, ring.FailBeforeAbort}
	// evictingPoints are those of publishers where somebody may be evicted.
	evictingPoints = []string{ring.FailAfterEvict}

	pollPoints  = []string{ring.FailMidPoll, ring.FailBeforeCursor, ring.FailAfterCursor, ring.FailRoomBeforeRing}
	lossyPoints = []string{ring.FailCopied, ring.FailBeforeCursor, ring.FailAfterCursor}
	evictPoints = []string{ring.FailEvictNoticed}
	joinPoints  = []string{ring.FailJoined, ring.FailJoinCursor, ring.FailJoinGates, ring.FailJoinRaised, ring.FailJoinFound}

	memberPoints = []string{
		ring.FailGroupFound, ring.FailGroupAfterIntent, ring.FailGroupAfterHead, ring.FailGroupHelped, ring.FailGroupMidWork,
		ring.FailGroupBeforeIdle, ring.FailGroupAfterAck, ring.FailGroupAfterTake, ring.FailOrphanFilling, ring.FailOrphanBit,
		ring.FailOrphanOffered, ring.FailOrphanReleasing, ring.FailRoomBeforeRing,
	}

	// adoptPoints are passed by each broker that adopts, most of them before it serves.
	adoptPoints = []string{
		broker.FailReattach, broker.FailAdoptLoaded, broker.FailAdoptTopic, broker.FailAdoptClients, broker.FailAdoptSwept,
		keeper.FailBeforeRequest, keeper.FailAfterRequest, keeper.FailAfterReply,
	}
	// mendPoints are passed by a broker when a client has died, and when it adopts what is left of one.
	mendPoints = []string{
		ring.FailRepairCondemned, ring.FailRepairBeforeStamp, ring.FailRepairFilled, ring.FailRepairBeforeFree, ring.FailRepairMidFree,
		ring.FailReapFiled, ring.FailReapIdle, ring.FailReleased, broker.FailDepartFreed,
	}
	// servePoints are passed by a broker that serves.
	servePoints = []string{
		broker.FailGroupOpened, broker.FailGroupClosed, broker.FailCreateMade, broker.FailCreateRecorded, broker.FailRemoveRecorded,
		broker.FailRemoveClosed, broker.FailAttachAdmitted, broker.FailAttachRecorded,
	}
	brokerPoints = joined(adoptPoints, mendPoints, servePoints)

	sleepPoints  = []string{client.FailSleepAfterBit, client.FailSleepArmed, client.FailSleepUnbound, client.FailSleepWoken}
	attachPoints = []string{
		client.FailBeforeAttach, client.FailAttachSent, client.FailAttachReceived, client.FailAttachReplied, client.FailAttachMapped, client.FailAttached,
		client.FailBeforeDetach, client.FailDetachSent, client.FailReattachGreeted, client.FailReattachSent, client.FailReattachAnswered,
	}
)

// joined is all of some lists, each point once.
func joined(lists ...[]string) (all []string) {
	for _, l := range lists {
		for _, p := range l {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}
