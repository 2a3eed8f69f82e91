package raw

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/hugebus/hugebus/internal/arch"
)

// The segment:
//
//	offset  size  word     who writes
//	0       8     ping     side A: the number of the round trip
//	256     8     pong     side B: the same number, back
//	512     8     filled   side A: how many blocks are written
//	768     8     emptied  side B: how many blocks are read
//	1024    4     ping bell side A: a futex, the number of the round trip
//	1280    4     pong bell side B: a futex, the same number, back
//	4096    rest  lines    side A
//
// Words that different cores write are two false-sharing distances apart.
const (
	offPing     = 0
	offPong     = 2 * arch.FalseSharing
	offFilled   = 4 * arch.FalseSharing
	offEmptied  = 6 * arch.FalseSharing
	offPingBell = 8 * arch.FalseSharing
	offPongBell = 10 * arch.FalseSharing
	offLines    = 4096
)

// lineWords is the number of 64-bit words of a cache line.
const lineWords = arch.CacheLine / 8

// A line is the unit of the one-way transfer.
type line [lineWords]uint64

// memory is the typed view of a segment.
type memory struct {
	ping, pong, filled, emptied *atomic.Uint64
	pingBell, pongBell          *atomic.Uint32
	lines                       []line
}

// view takes a segment apart. b starts at a page, and outlives the view.
func view(b []byte) (memory, error) {
	if len(b) < offLines+arch.CacheLine {
		return memory{}, fmt.Errorf("raw: a segment of %d bytes is too small: use at least %d", len(b), offLines+arch.CacheLine)
	}
	base := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(base)%arch.CacheLine != 0 {
		return memory{}, fmt.Errorf("raw: a segment must start at a cache line")
	}
	// Sound: every offset is a multiple of 8 inside b, whose first byte is aligned; an
	// atomic.Uint64 is one 64-bit word, an atomic.Uint32 half of one, and a line is words only.
	word := func(off uintptr) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(base, off)) }
	bell := func(off uintptr) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Add(base, off)) }
	return memory{
		pingBell: bell(offPingBell), pongBell: bell(offPongBell),
		ping: word(offPing), pong: word(offPong), filled: word(offFilled), emptied: word(offEmptied),
		lines: unsafe.Slice((*line)(unsafe.Add(base, offLines)), (len(b)-offLines)/arch.CacheLine),
	}, nil
}

// prefetch asks for l in a state that can be written.
func prefetch(l *line) {
	// Sound: only the address is used, as a hint; an atomic.Uint64 is one 64-bit word.
	arch.PrefetchWrite((*atomic.Uint64)(unsafe.Pointer(l)))
}
