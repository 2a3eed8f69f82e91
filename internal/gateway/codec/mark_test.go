package codec_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/hugebus/hugebus/internal/gateway/codec"
)

// TestMarks: what tells of a gap is as the documentation has it, within its 64 bytes, and no frame can be taken for it.
func TestMarks(t *testing.T) {
	for _, tc := range []struct {
		c             codec.Codec
		frames, bytes uint64
		want          string
	}{
		{codec.Len32{}, 12, 3456, "\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x0d\x80"},
		{codec.Len32{}, 0, math.MaxUint64, "\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"},
		{codec.Line{}, 12, 3456, "!gap frames=12 bytes=3456\n"},
		{codec.Line{}, math.MaxUint64, math.MaxUint64, "!gap frames=18446744073709551615 bytes=18446744073709551615\n"},
	} {
		before := []byte("before")
		got := tc.c.(codec.Marker).Mark(bytes.Clone(before), tc.frames, tc.bytes)
		if string(got) != "before"+tc.want || len(tc.want) > 64 {
			t.Errorf("%s: %q, want %q after what was there", tc.c.Name(), got, tc.want)
		}
	}
	// A reader that knows nothing of gaps does not take one for a frame.
	mark := codec.Len32{}.Mark(nil, 1, 1)
	if frames, _, _, err := (codec.Len32{}).NewCutter(1<<20).Cut(make([][]byte, 0, 1), mark); err == nil || len(frames) > 0 {
		t.Errorf("a mark was cut as %q, %v", frames, err)
	}
}
