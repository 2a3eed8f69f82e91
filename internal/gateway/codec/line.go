package codec

import (
	"bytes"
	"errors"
)

// ErrNewline says that a payload with a newline in it can not be carried as one line.
var ErrNewline = errors.New("line: the payload has a newline in it and would become two frames: use the len32 codec")

// Line makes a frame of each line: what stands before a newline, byte for byte. A carriage return before the newline
// is part of the frame, and an empty line is an empty frame. A last line without a newline is a frame if the stream
// ends in an orderly way (half-close or close); if the connection breaks or times out it is torn, and no frame.
type Line struct{}

// Name returns "line".
func (Line) Name() string { return "line" }

// Overhead returns the one byte of the newline.
func (Line) Overhead() int { return 1 }

// NewCutter returns a Cutter for a stream of lines. A line that goes on for more than maxFrame bytes breaks the stream.
func (Line) NewCutter(maxFrame int) Cutter {
	return &lineCutter{limit: max(maxFrame, 0)}
}

// Append appends the payload and a newline. It returns ErrNewline for a payload that has a newline in it.
func (Line) Append(dst, payload []byte) ([]byte, error) {
	if bytes.IndexByte(payload, '\n') >= 0 {
		return dst, ErrNewline
	}
	return append(append(dst, payload...), '\n'), nil
}

// lineCutter remembers how much of an unfinished line it has searched. Without that, a sender of single bytes would make
// it search the same bytes over and over, and the cost of a line would grow with the square of its length.
type lineCutter struct {
	limit    int
	searched int // bytes at the start of what the last Cut left over that hold no newline
}

func (c *lineCutter) Cut(dst [][]byte, b []byte) (frames [][]byte, used, need int, err error) {
	for len(dst) < cap(dst) {
		line := b[used:]
		size := bytes.IndexByte(line[c.searched:], '\n')
		if size < 0 {
			c.searched = len(line)
			if len(line) > c.limit {
				return dst, used, 0, &FrameError{Codec: "line", Limit: c.limit}
			}
			return dst, used, len(line) + 1, nil
		}
		size += c.searched
		if size > c.limit {
			return dst, used, 0, &FrameError{Codec: "line", Size: uint64(size), Limit: c.limit}
		}
		c.searched = 0
		dst = append(dst, line[:size:size])
		used += size + 1
	}
	return dst, used, 0, nil
}

func (c *lineCutter) Last(rest []byte) (frame []byte, whole bool) {
	if len(rest) == 0 {
		return nil, false
	}
	return rest, true
}
