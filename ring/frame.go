package ring

// The frame, at offset position mod capacity of the data memory. A frame never
// wraps. All words are little-endian 64-bit words.
//
//	 offset  size  field    who writes           ordering
//	 0       8     stamp    publisher, repair    release, last of all (SYNC(commit))
//	 8       4     length   publisher, repair    plain, before the stamp
//	 12      1     kind     publisher, repair    plain, before the stamp
//	 13      1     flags    publisher, repair    plain, before the stamp
//	 14      2     source   publisher, repair    plain, before the stamp
//	 16      n     payload  publisher            plain, before the stamp
//	 16+n          rest of the last cell: undefined
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                         stamp (64 bits)                       |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                            length                             |
//	+---------------+---------------+-------------------------------+
//	|     kind      |     flags     |            source             |
//	+---------------+---------------+-------------------------------+
//	|                           payload ...                         |

const (
	// kindData is a frame for the application.
	kindData = 1
	// kindPadding fills what nobody will read: the rest before the wrap, an aborted
	// claim, what a dead publisher left. Its length covers the whole filler.
	kindPadding = 2

	// flagInner marks a frame that is not the first of its claim. Its stamp is stored
	// before the claim is committed, so repair must not take it for a boundary, and
	// a reader that looks for a place to start must not start there.
	flagInner = 1
	// flagRepair marks padding that stands for a dead publisher's claim.
	flagRepair = 2

	offMeta    = 8 // second word: length, kind, flags, source
	offPayload = HeaderSize
)

// A Frame is one message as a subscriber or a group member sees it.
type Frame struct {
	// Payload is borrowed: it points into the ring (or into the subscriber's copy of
	// it), must not be written to, and is valid only until the handler that got
	// it returns.
	Payload []byte
	// Position is where the frame stands in the topic's one total order.
	Position Position
	// Source is the publisher slot that wrote it.
	Source uint16
	// Redelivered is how often the frame was handed to another member before; it is 0
	// for the first delivery, and always outside groups.
	Redelivered uint16
}

// meta packs the second header word.
func meta(length uint32, kind, flags uint8, source uint16) uint64 {
	return uint64(length) | uint64(kind)<<32 | uint64(flags)<<40 | uint64(source)<<48
}

// header is a frame header's second word, taken apart. It is checked, not trusted.
type header uint64

func (h header) length() uint64 { return uint64(uint32(h)) }
func (h header) kind() uint8    { return uint8(h >> 32) }
func (h header) flags() uint8   { return uint8(h >> 40) }
func (h header) source() uint16 { return uint16(h >> 48) }
func (h header) size() uint64   { return frameSize(h.length()) }
func (h header) inner() bool    { return h.flags()&flagInner != 0 }

// sound reports whether h is a header that a correct peer writes at offset off of a ring
// with this capacity and maximum payload.
func (h header) sound(off, capacity, most uint64) bool {
	return off+h.size() <= capacity && (h.kind() == kindPadding || h.kind() == kindData && h.length() <= most)
}

// stampOf is the commit word of the frame at position p: a keyed bijection, so stale
// bytes of another lap, or bytes that a stranger chose without knowing the key, do
// not pass for a frame. The key is odd and p is a multiple of 64, so the
// result is never 0, which is what fresh memory holds.
func stampOf(p, key uint64) uint64 {
	x := (p ^ key) * 0x9E3779B97F4A7C15 // 2^64 / golden ratio: odd, so invertible
	return x ^ x>>32
}
