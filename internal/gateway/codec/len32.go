package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// len32Header is the size of a len32 frame's header: the payload's length, in big-endian order.
const len32Header = 4

// Len32 puts the payload's length in front of it, as four bytes in big-endian order. Any payload can be carried, the
// empty one too. A stream that ends inside a frame tears it: what was there of it is no frame.
type Len32 struct{}

// Name returns "len32".
func (Len32) Name() string { return "len32" }

// Overhead returns the four bytes of the length.
func (Len32) Overhead() int { return len32Header }

// NewCutter returns a Cutter for a len32 stream. A length above maxFrame breaks the stream as soon as it is read.
func (Len32) NewCutter(maxFrame int) Cutter {
	return &len32Cutter{limit: uint32(min(uint64(max(maxFrame, 0)), math.MaxUint32))}
}

// Append appends the length and the payload. It fails for payloads of 4 GiB and more.
func (Len32) Append(dst, payload []byte) ([]byte, error) {
	if uint64(len(payload)) > math.MaxUint32 {
		return dst, fmt.Errorf("len32: a payload of %d bytes has no length in four bytes: send at most %d bytes",
			len(payload), uint32(math.MaxUint32))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...), nil
}

// len32Cutter needs no memory of what it has seen: looking at a torn frame again costs one load.
type len32Cutter struct {
	limit uint32
}

func (c *len32Cutter) Cut(dst [][]byte, b []byte) (frames [][]byte, used, need int, err error) {
	for len(dst) < cap(dst) {
		if len(b)-used < len32Header {
			return dst, used, len32Header, nil
		}
		size := binary.BigEndian.Uint32(b[used:])
		if size > c.limit {
			return dst, used, 0, &FrameError{Codec: "len32", Size: uint64(size), Limit: int(c.limit)}
		}
		end := used + len32Header + int(size)
		if end > len(b) {
			return dst, used, len32Header + int(size), nil
		}
		dst = append(dst, b[used+len32Header:end:end])
		used = end
	}
	return dst, used, 0, nil
}

func (c *len32Cutter) Last(rest []byte) (frame []byte, whole bool) {
	return nil, false
}
