package codec_test

import (
	"bytes"
	"testing"

	"github.com/hugebus/hugebus/internal/gateway/codec"
)

func FuzzLen32(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 'a'}, []byte{3, 1}, uint8(4))
	f.Add([]byte{0x80, 0, 0, 0, 'x'}, []byte{}, uint8(255))
	f.Add([]byte{0, 0, 0, 5, 'a', 'b'}, []byte{1, 1, 1, 1, 1}, uint8(5))
	f.Fuzz(func(t *testing.T, stream, cuts []byte, limit uint8) {
		fuzzCodec(t, codec.Len32{}, stream, cuts, int(limit))
	})
}

func FuzzLine(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccc"), []byte{2, 1}, uint8(4))
	f.Add([]byte("no end in sight"), []byte{}, uint8(3))
	f.Add([]byte("\n\n\n"), []byte{1, 1, 1}, uint8(0))
	f.Fuzz(func(t *testing.T, stream, cuts []byte, limit uint8) {
		fuzzCodec(t, codec.Line{}, stream, cuts, int(limit))
	})
}

// fuzzCodec checks that a stream comes to the same frames whatever its segments are, that frames and what is left over
// are all that was sent, and that no frame is above the limit. cutAll checks that no answer asks for more memory than a
// frame of the limit takes.
func fuzzCodec(t *testing.T, c codec.Codec, stream, cuts []byte, limit int) {
	segments := make([]int, len(cuts))
	for i, n := range cuts {
		segments[i] = int(n)
	}
	whole := cutAll(t, c, limit, 64, stream)
	split := cutAll(t, c, limit, 1+len(cuts)%7, stream, segments...)
	if !whole.equal(split) {
		t.Fatalf("in one piece: %q, broken %t, rest %q\nin segments %v: %q, broken %t, rest %q",
			whole.frames, whole.broken, whole.rest, cuts, split.frames, split.broken, split.rest)
	}
	var again []byte
	for _, f := range whole.frames {
		if len(f) > limit {
			t.Fatalf("a frame of %d bytes with a limit of %d", len(f), limit)
		}
		var err error
		if again, err = c.Append(again, f); err != nil {
			t.Fatal(err)
		}
	}
	again = append(again, whole.rest...)
	// A line codec's last line may have come without its newline; Append gave it one.
	if !bytes.Equal(again, stream) && !bytes.Equal(again, append(bytes.Clone(stream), '\n')) {
		t.Fatalf("frames and rest join to %q, not to the stream %q", again, stream)
	}
}
