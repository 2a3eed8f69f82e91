package keeper

import (
	"context"
	"log/slog"
)

// Open returns the Store that fits where this process runs: systemd's file descriptor store if there is one for this
// service (SystemdUsable), or else the keeper process of o.Socket. inherited is what Inherit returned; the store takes
// its part of it.
//
// For a broker that is to leave nothing behind (--no-keeper) there is None.
func Open(ctx context.Context, o Options, inherited *Inherited) (Store, error) {
	if SystemdUsable() {
		return Systemd(ctx, inherited, o.Log)
	}
	if len(inherited.stored) > 0 {
		// Not an error: the topics of the last broker are lost, and this one can serve all the same.
		log := o.Log
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		log.Error("systemd has handed over a broker's descriptors, and does not say that it stores more: they are not adopted; "+
			"set Environment="+storeEnv+"= in the unit to the number of FileDescriptorStoreMax=", "descriptors", len(inherited.stored))
	}
	return Start(ctx, o)
}
