// Package codec cuts byte streams into frames, and joins frames into byte streams.
//
// A codec sees bytes in memory only: it opens nothing, reads nothing, and allocates nothing for a frame. The gateway
// reads as much as there is into one buffer and lets a Cutter mark the frames in it where they lie.
//
// A new codec is a type with the methods of Codec, and one line in known.
package codec

import (
	"fmt"
	"strings"
)

// Default is the name of the codec that is used where none is asked for.
const Default = "len32"

// known holds every codec, in the order in which error messages and help texts list them.
var known = []Codec{Len32{}, Line{}}

// A Codec is one way of putting frames into a byte stream. Codecs hold no state, so one value serves all connections.
type Codec interface {
	// Name is what users call the codec: in flags, logs and figures.
	Name() string

	// NewCutter returns a Cutter for one stream. Frames may have up to maxFrame payload bytes (0 or more).
	NewCutter(maxFrame int) Cutter

	// Append appends one frame with the given payload to dst, the way a sender puts it on the wire, and returns the
	// longer slice. It fails, and appends nothing, where the codec has no way to carry the payload.
	Append(dst, payload []byte) ([]byte, error)

	// Overhead is how many bytes of the stream a frame takes at most beyond its payload.
	Overhead() int
}

// A Cutter finds the frames of one stream. It belongs to one goroutine at a time.
type Cutter interface {
	// Cut looks for whole frames at the start of b and appends their payloads to dst, without a copy and without
	// growing dst beyond its capacity: the payloads are parts of b and live as long as it does.
	//
	// Bytes b[:used] are done with. The caller must begin the next call with b[used:], and whatever came after it: a
	// Cutter may remember how far it has looked. If frames has room left, no further whole frame is in b, and the
	// next one takes at least need bytes, counted from b[used:]. A peer can make need as large as the greatest
	// frame, so it says where memory must end, not how much to allocate.
	//
	// An error means that the stream is broken at b[used:] and can not be cut any further. Frames before that point
	// are in frames and are good. The errors are of type *FrameError.
	Cut(dst [][]byte, b []byte) (frames [][]byte, used, need int, err error)

	// Last says what the end of the stream makes of rest, the bytes that Cut left over: a last frame, or, with
	// false, the torn beginning of one.
	Last(rest []byte) (frame []byte, whole bool)
}

// Lookup returns the codec of the given name. The error names those that there are.
func Lookup(name string) (Codec, error) {
	for _, c := range known {
		if c.Name() == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("unknown codec %q: use one of %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all codecs, the default one first.
func Names() []string {
	names := make([]string, len(known))
	for i, c := range known {
		names[i] = c.Name()
	}
	return names
}

// FrameError says that a stream announced or began a frame above the limit.
type FrameError struct {
	Codec string // name of the codec
	Size  uint64 // payload bytes that the frame announced; 0 if it only went on for too long
	Limit int    // payload bytes that a frame may have
}

// Error names the size, the limit and what can be done.
func (e *FrameError) Error() string {
	const remedy = "send smaller frames, or raise the ingress's frame limit (--max-frame) and the topic's"
	if e.Size == 0 {
		return fmt.Sprintf("%s: a frame did not end within the limit of %d bytes: %s", e.Codec, e.Limit, remedy)
	}
	return fmt.Sprintf("%s: a frame of %d bytes is above the limit of %d bytes: %s", e.Codec, e.Size, e.Limit, remedy)
}
