package codec_test

import (
	"fmt"

	"github.com/hugebus/hugebus/internal/gateway/codec"
)

// A stream comes in two pieces; the second frame is torn between them.
func ExampleCutter() {
	lines, err := codec.Lookup("line")
	if err != nil {
		fmt.Println(err)
		return
	}
	cutter := lines.NewCutter(100)
	batch := make([][]byte, 0, 16) // its capacity bounds how many frames one call returns
	var rest []byte
	for _, piece := range []string{"one\ntw", "o\nthree"} {
		rest = append(rest, piece...)
		frames, used, _, err := cutter.Cut(batch, rest)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q\n", frames)
		rest = rest[used:]
	}
	if last, whole := cutter.Last(rest); whole {
		fmt.Printf("%q at the end\n", last)
	}
	// Output:
	// ["one"]
	// ["two"]
	// "three" at the end
}

func ExampleCodec_append() {
	stream, err := codec.Len32{}.Append(nil, []byte("hi"))
	fmt.Println(stream, err)
	// Output: [0 0 0 2 104 105] <nil>
}
