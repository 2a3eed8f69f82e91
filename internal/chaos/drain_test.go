package chaos

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

func TestDrainFindsWhatIsWrong(t *testing.T) {
	const most = 200
	frame := func(publisher uint32, seq uint64) []byte {
		b := make([]byte, Length(publisher, seq, most))
		Fill(b, publisher, seq)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}
	long := uint64(1)
	for Length(3, long, most) < HeaderSize {
		long++
	}
	spoilt := frame(3, long)
	spoilt[len(spoilt)-1] ^= 1
	for name, x := range map[string]struct {
		stream []byte
		frames int
		want   string
	}{
		"in order":     {slices.Concat(frame(3, 0), frame(4, 0), frame(3, long)), 3, ""},
		"torn":         {slices.Concat(frame(3, 0), frame(3, long)[:9]), 1, ""},
		"spoilt":       {slices.Concat(frame(3, 0), spoilt), 1, "nobody has published"},
		"twice":        {slices.Concat(frame(3, long), frame(3, long)), 1, "behind frame"},
		"out of order": {slices.Concat(frame(3, long), frame(3, 0)), 1, "behind frame"},
		"too long":     {binary.BigEndian.AppendUint32(nil, most+1), 0, "the longest payload has 200"},
	} {
		n := 0
		err := Drain(bytes.NewReader(x.stream), most, func() { n++ })
		if n != x.frames || (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %d frames, %v", name, n, err)
		}
	}
}
