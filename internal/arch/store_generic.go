//go:build !amd64 || purego || race

package arch

import "sync/atomic"

// StoreRelease stores v in *p with release ordering. sync/atomic's Store is that and
// more; on arm64 it is STLR, which costs no more than a release store should.
func StoreRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
