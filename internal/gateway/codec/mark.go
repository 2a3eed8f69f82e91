package codec

import (
	"encoding/binary"
	"fmt"
)

// A Marker is a Codec that can tell a receiver, between two frames, what it was not sent.
type Marker interface {
	// Mark appends what says that so many frames, of so many bytes of the stream, are missing here. 0 frames means
	// that nobody knows how many. It takes at most 64 bytes.
	Mark(dst []byte, frames, bytes uint64) []byte
}

// GapLength is the length that says that a len32 frame is no frame but a gap. No payload is as long.
const GapLength = 0xFFFF_FFFF

// Mark appends the length GapLength, and then two numbers of 8 bytes each, most significant byte first: frames and bytes.
func (Len32) Mark(dst []byte, frames, bytes uint64) []byte {
	dst = binary.BigEndian.AppendUint32(dst, GapLength)
	dst = binary.BigEndian.AppendUint64(dst, frames)
	return binary.BigEndian.AppendUint64(dst, bytes)
}

// Mark appends a line such as "!gap frames=12 bytes=3456".
func (Line) Mark(dst []byte, frames, bytes uint64) []byte {
	return fmt.Appendf(dst, "!gap frames=%d bytes=%d\n", frames, bytes)
}
