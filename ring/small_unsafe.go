package ring

import (
	"unsafe"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Payloads of smallLeast to smallMost bytes are not copied by the runtime's copy: around a call everything that a loop
// has in registers goes through memory, which takes longer than the copy (docs/performance.md). Above, a call is faster.
const (
	smallLeast = 16
	smallMost  = 64
)

// A block is copied by one load and one store.
type block [16]byte

func isSmall(n uint64) bool { return n-smallLeast <= smallMost-smallLeast }

// copySmall copies b, of a length that isSmall, to off, by blocks of which the last two may overlap. Sound: off+len(b) is at most size.
func (m region) copySmall(off uint64, b []byte) {
	to, from, n := unsafe.Add(m.base, off), unsafe.Pointer(unsafe.SliceData(b)), len(b)
	*(*block)(to) = *(*block)(from)
	if n > 32 {
		*(*block)(unsafe.Add(to, 16)) = *(*block)(unsafe.Add(from, 16))
		if n > 48 {
			*(*block)(unsafe.Add(to, 32)) = *(*block)(unsafe.Add(from, 32))
		}
	}
	*(*block)(unsafe.Add(to, n-16)) = *(*block)(unsafe.Add(from, n-16))
}

// fillSmall writes and stamps payloads as inner frames from position at on, as long as they are small. It returns how many it
// did, and where they end. It is what fillInner does, in one loop without a call.
func (p *Publisher) fillSmall(at uint64, payloads [][]byte) (done int, end uint64) {
	data, mask, key := p.data, p.mask, p.key
	upper := meta(0, kindData, flagInner, uint16(p.index))
	for i, b := range payloads {
		n := uint64(len(b))
		if !isSmall(n) {
			return i, at
		}
		off := at & mask
		data.inside(off, offPayload+n)
		data.copySmall(off+offPayload, b)
		data.setPlain(off+offMeta, upper|n)
		arch.StoreRelease(data.word(off), stampOf(at, key)) // SYNC(commit): release
		failpoint.Hit(FailMidBatch)
		at += frameSize(n)
	}
	return len(payloads), at
}
