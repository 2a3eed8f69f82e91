package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"pgregory.net/rapid"
)

// outcome is what a stream comes to: its frames, and whether it broke.
type outcome struct {
	frames [][]byte
	broken bool
	rest   []byte // bytes that belong to no frame
}

// cutAll feeds stream to a new cutter in segments of the given lengths (the last one takes what is left), as a caller of
// Cutter does, and checks each answer against the contract of Cutter.
func cutAll(t fataler, c codec.Codec, limit, batch int, stream []byte, segments ...int) outcome {
	cutter := c.NewCutter(limit)
	dst := make([][]byte, 0, batch)
	var out outcome
	var held []byte
	for len(stream) > 0 {
		n := len(stream)
		if len(segments) > 0 {
			n, segments = min(n, segments[0]), segments[1:]
		}
		held = append(held, stream[:n]...)
		stream = stream[n:]
		for {
			frames, used, need, err := cutter.Cut(dst[:0], held)
			if used < 0 || used > len(held) || len(frames) > batch {
				t.Fatalf("%s: Cut took %d of %d bytes and %d frames with room for %d", c.Name(), used, len(held), len(frames), batch)
			}
			for _, f := range frames {
				out.frames = append(out.frames, bytes.Clone(f))
			}
			held = held[used:]
			if err != nil {
				checkFrameError(t, c, limit, err)
				out.broken, out.rest = true, append(held, stream...)
				return out
			}
			if len(frames) == batch {
				continue
			}
			if need <= len(held) || need > limit+c.Overhead() {
				t.Fatalf("%s: Cut needs %d bytes, with %d there, limit %d", c.Name(), need, len(held), limit)
			}
			break
		}
	}
	if frame, whole := cutter.Last(held); whole {
		out.frames, held = append(out.frames, bytes.Clone(frame)), nil
	}
	out.rest = held
	return out
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func checkFrameError(t fataler, c codec.Codec, limit int, err error) {
	var fe *codec.FrameError
	if !errors.As(err, &fe) || fe.Codec != c.Name() || fe.Limit != limit || (fe.Size != 0 && fe.Size <= uint64(limit)) {
		t.Fatalf("%s: error %#v with limit %d", c.Name(), err, limit)
	}
}

func (o outcome) equal(p outcome) bool {
	return o.broken == p.broken && bytes.Equal(o.rest, p.rest) && slices.EqualFunc(o.frames, p.frames, bytes.Equal)
}

func len32(size uint32, payload string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, size), payload...)
}

func TestCutLen32Lengths(t *testing.T) {
	const limit = 5
	for _, tc := range []struct {
		name   string
		stream []byte
		frames []string
		rest   int
		err    string
	}{
		{"nothing", nil, nil, 0, ""},
		{"length 0 is an empty frame", len32(0, ""), []string{""}, 0, ""},
		{"length 1", len32(1, "a"), []string{"a"}, 0, ""},
		{"the greatest length", len32(5, "abcde"), []string{"abcde"}, 0, ""},
		{"one more than the greatest", len32(6, "abcdef"), nil, 10, "a frame of 6 bytes is above the limit of 5 bytes"},
		{"2^31", len32(1<<31, "x"), nil, 5, "a frame of 2147483648 bytes"},
		{"2^32 - 1", len32(1<<32-1, ""), nil, 4, "a frame of 4294967295 bytes"},
		{"three of them", slices.Concat(len32(1, "a"), len32(0, ""), len32(2, "bc")), []string{"a", "", "bc"}, 0, ""},
		{"a torn header", []byte{0, 0, 0}, nil, 3, ""},
		{"a torn payload", len32(3, "ab"), nil, 6, ""},
		{"good frames before a bad one", slices.Concat(len32(2, "ab"), len32(9, "")), []string{"ab"}, 4, "a frame of 9 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkCut(t, codec.Len32{}, limit, tc.stream, tc.frames, tc.rest, tc.err)
		})
	}
}

func TestCutLines(t *testing.T) {
	const limit = 5
	for _, tc := range []struct {
		name   string
		stream string
		frames []string
		rest   int
		err    string
	}{
		{"nothing", "", nil, 0, ""},
		{"an empty line is an empty frame", "\n", []string{""}, 0, ""},
		{"two lines", "ab\ncd\n", []string{"ab", "cd"}, 0, ""},
		{"a carriage return stays", "ab\r\n\r\n", []string{"ab\r", "\r"}, 0, ""},
		{"the longest line", "abcde\n", []string{"abcde"}, 0, ""},
		{"a line that is too long", "abcdef\n", nil, 7, "a frame of 6 bytes is above the limit of 5 bytes"},
		{"a line without end", "abcdefgh", nil, 8, "a frame did not end within the limit of 5 bytes"},
		{"good lines before a bad one", "ab\nabcdef\n", []string{"ab"}, 7, "a frame of 6 bytes"},
		{"a last line without newline", "ab\ncd", []string{"ab", "cd"}, 0, ""},
		{"a last line of the greatest length", "abcde", []string{"abcde"}, 0, ""},
		{"any other byte", "\x00\xff\n", []string{"\x00\xff"}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkCut(t, codec.Line{}, limit, []byte(tc.stream), tc.frames, tc.rest, tc.err)
		})
	}
}

// checkCut cuts the stream in one piece and byte by byte, with room for many frames and for one at a time.
func checkCut(t *testing.T, c codec.Codec, limit int, stream []byte, frames []string, rest int, message string) {
	t.Helper()
	if message != "" {
		_, _, _, err := c.NewCutter(limit).Cut(make([][]byte, 0, 8), stream)
		if err == nil || !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), "--max-frame") {
			t.Errorf("error %v; want %q and a remedy", err, message)
		}
	}
	bytewise := slices.Repeat([]int{1}, len(stream))
	for _, batch := range []int{1, 8} {
		for _, segments := range [][]int{nil, bytewise} {
			out := cutAll(t, c, limit, batch, stream, segments...)
			var got []string
			for _, f := range out.frames {
				got = append(got, string(f))
			}
			if !slices.Equal(got, frames) || len(out.rest) != rest || out.broken != (message != "") {
				t.Errorf("batch %d, segments %v: frames %q, rest %q, broken %t; want %q, %d bytes, %t",
					batch, segments, got, out.rest, out.broken, frames, rest, message != "")
			}
		}
	}
}

func TestAppendAndCutAreMirrors(t *testing.T) {
	for _, name := range codec.Names() {
		c, err := codec.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			frames := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 20).Draw(t, "frames")
			var stream []byte
			var carried [][]byte
			for _, f := range frames {
				longer, err := c.Append(stream, f)
				if err != nil {
					if len(longer) != len(stream) {
						t.Fatalf("%s: a failed Append appended %d bytes", name, len(longer)-len(stream))
					}
					continue
				}
				if added := len(longer) - len(stream); added > len(f)+c.Overhead() {
					t.Fatalf("%s: %d bytes on the wire for %d, overhead %d", name, added, len(f), c.Overhead())
				}
				stream, carried = longer, append(carried, f)
			}
			segments := rapid.SliceOf(rapid.IntRange(0, 64)).Draw(t, "segments")
			batch := rapid.IntRange(1, 5).Draw(t, "batch")
			got := cutAll(t, c, 300, batch, stream, segments...)
			if !got.equal(outcome{frames: carried}) {
				t.Fatalf("%s: got %d frames and %d bytes over, sent %d", name, len(got.frames), len(got.rest), len(carried))
			}
		})
	}
}

func TestAppendRefusesWhatCanNotBeCarried(t *testing.T) {
	b, err := codec.Line{}.Append([]byte("kept"), []byte("two\nlines"))
	if !errors.Is(err, codec.ErrNewline) || string(b) != "kept" {
		t.Errorf("Append = %q, %v", b, err)
	}
}

func TestLookup(t *testing.T) {
	if names := codec.Names(); !slices.Equal(names, []string{"len32", "line"}) {
		t.Errorf("Names() = %v", names)
	}
	for _, name := range codec.Names() {
		if c, err := codec.Lookup(name); err != nil || c.Name() != name {
			t.Errorf("Lookup(%q) = %v, %v", name, c, err)
		}
	}
	if c, err := codec.Lookup(codec.Default); err != nil || c.Name() != "len32" {
		t.Errorf("the default codec: %v, %v", c, err)
	}
	_, err := codec.Lookup("Len32")
	if err == nil || err.Error() != `unknown codec "Len32": use one of len32, line` {
		t.Errorf("unknown codec: %v", err)
	}
}

func TestCutAllocatesNothing(t *testing.T) {
	for _, name := range codec.Names() {
		c, err := codec.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		var stream []byte
		for i := range 1000 {
			if stream, err = c.Append(stream, fmt.Appendf(nil, "frame %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		cutter := c.NewCutter(100)
		dst := make([][]byte, 0, 64)
		allocs := testing.AllocsPerRun(100, func() {
			for b := stream; ; {
				frames, used, _, err := cutter.Cut(dst, b)
				if err != nil {
					t.Fatal(err)
				}
				b = b[used:]
				if len(frames) < cap(dst) {
					break
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations to cut 1,000 frames", name, allocs)
		}
	}
}
