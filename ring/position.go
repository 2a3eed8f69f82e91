package ring

import "github.com/hugebus/hugebus/internal/arch"

const (
	// CellSize is the unit of positions and frames in bytes: one cache line, so that
	// a small frame is one miss for its reader.
	CellSize = 64
	// HeaderSize is the size in bytes of a frame's header.
	HeaderSize = 16
	// MinCapacity is the smallest capacity in bytes: 64 cells.
	MinCapacity = 4096
	// MaxCapacity is the largest capacity in bytes.
	MaxCapacity = 1 << 40
	// MaxSlots is the most publisher slots, and the most subscriber slots, of a ring.
	MaxSlots = 1024
	// MaxGroups is the most groups of a ring: one bit each in one word.
	MaxGroups = 64
	// MaxMembers is the most members of a group: their number is in the low six bits of
	// the group's head, which a position leaves free.
	MaxMembers = 64

	// maxClaim bounds what one claim may hold, so that a padding frame's length
	// always fits the header's 32 bits.
	maxClaim = 1 << 30
)

// apart keeps what one goroutine writes for every frame off the lines of its neighbours
// on the heap: a publisher and a subscriber of the same process are often allocated
// one after the other, and used by two cores.
type apart [arch.FalseSharing]byte

// A Position counts the bytes of a ring since it began. It is a multiple of
// CellSize, only grows, and wraps at 2^64: compare two only with Before and Sub.
type Position uint64

// Before reports whether p comes before q. It is right as long as the two are less
// than 2^63 bytes apart.
func (p Position) Before(q Position) bool { return int64(p-q) < 0 }

// Sub is the number of bytes from q to p; it is negative when p comes first.
func (p Position) Sub(q Position) int64 { return int64(p - q) }

// Add is the position n bytes after p.
func (p Position) Add(n uint64) Position { return p + Position(n) }

// Aligned reports whether p is a multiple of CellSize, as every true position is.
func (p Position) Aligned() bool { return p%CellSize == 0 }

// frameSize is the number of bytes, a multiple of CellSize, that a frame with n
// bytes of payload takes.
func frameSize(n uint64) uint64 { return (n + HeaderSize + CellSize - 1) &^ (CellSize - 1) }

// FrameSize is the number of bytes of a ring that a frame with a payload of n bytes
// takes: header and payload, rounded up to whole cells.
func FrameSize(n int) int { return int(frameSize(uint64(n))) }
