// Package arch holds the few things that differ between processors: the cache
// line, spin-wait hints, release stores, prefetches and the barriers that
// sync/atomic does not name.
//
// The ordering contract is the same everywhere; only its price differs:
//
//   - StoreRelease: no load or store before it, in program order, becomes
//     visible after it. It does not order a later load (no store-load fence).
//   - StoreFence: a store that does.
//   - StoreStore: stores before it become visible before stores after it.
//   - LoadLoad: loads before it are done before loads after it.
//
// Three builds of the same contract exist: assembly or plain instructions where
// they are cheaper (amd64, arm64), and sync/atomic alone under the build tag
// purego, under the race detector and on any other processor.
package arch

import "sync/atomic"

// StoreFence stores v in *p, and no later load is done before it: a full fence.
//
// sync/atomic's Store is one as well, but not under the race detector, whose stores to memory that it does not watch, as
// mappings are, are release stores; an exchange is one in every build, and costs the same on amd64.
func StoreFence(p *atomic.Uint64, v uint64) { p.Swap(v) }

const (
	// CacheLine is the size in bytes of what cores exchange.
	CacheLine = 64

	// FalseSharing is how far apart, in bytes, two words must be that different
	// processes write often. It is two cache lines, because the adjacent-line
	// prefetcher of x86 processors (Intel optimisation manual, "spatial
	// prefetcher") fetches lines in pairs of 128 bytes, and because some arm64
	// cores have lines of 128 bytes.
	FalseSharing = 128
)
