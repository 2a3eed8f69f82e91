// Package arch holds the few things that differ between processors: the cache
// line, spin-wait hints, release stores, prefetches and the barriers that
// sync/atomic does not name.
//
// The ordering contract is the same everywhere; only its price differs:
//
//   - StoreRelease: no load or store before it, in program order, becomes
//     visible after it. It does not order a later load (no store-load fence).
//   - StoreStore: stores before it become visible before stores after it.
//   - LoadLoad: loads before it are done before loads after it.
//
// Three builds of the same contract exist: assembly or plain instructions where
// they are cheaper (amd64, arm64), and sync/atomic alone under the build tag
// purego, under the race detector and on any other processor.
package arch

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
