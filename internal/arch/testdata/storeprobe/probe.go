// Package storeprobe is what TestStoreReleaseIsOneInstruction compiles and looks at.
package storeprobe

import (
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
)

// Store is StoreRelease alone.
func Store(p *atomic.Uint64, v uint64) { arch.StoreRelease(p, v) }
