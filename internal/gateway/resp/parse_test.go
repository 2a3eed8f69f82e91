package resp

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"a**c", "ac", true},
		{"h?llo", "hello", true}, {"h?llo", "hllo", false}, {"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true},
		{"h[^e]llo", "hello", false}, {"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true}, {`\*`, "*", true}, {`\*`, "a", false}, {`[\]]`, "]", true},
		{"[a", "a", true}, {"[", "a", false}, {"[^", "a", true}, {`a\`, `a\`, true}, {"*.*.x", "a.b.c.x", true}, {"news.*", "news.art", true}, {"news.*", "new.art", false},
		{strings.Repeat("*a", 30) + "b", strings.Repeat("a", 5000), false},
	} {
		if got := glob(tc.pattern, tc.name); got != tc.want {
			t.Errorf("glob(%.40q, %.40q) = %t", tc.pattern, tc.name, got)
		}
	}
}

// FuzzGlob compares with path.Match where both mean the same.
func FuzzGlob(f *testing.F) {
	f.Add("a*[b-d]?", "axxcd")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		got := glob(pattern, name)
		if strings.ContainsAny(pattern, `[]\^`) || strings.ContainsAny(pattern+name, "/") || !ascii(pattern+name) {
			return
		}
		if want, err := path.Match(pattern, name); err != nil || got != want {
			t.Errorf("glob(%q, %q) = %t, path.Match %t, %v", pattern, name, got, want, err)
		}
	})
}

func ascii(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r > 126 }) }

// cut parses a stream that comes in pieces of n bytes, and returns its commands as text, and the error.
func cut(t *testing.T, stream []byte, n, maxBulk int) (commands []string, rest int, err error) {
	t.Helper()
	p := parser{maxBulk: maxBulk, maxArgs: 1 << 16}
	var held []byte
	need := 0
	for len(stream) > 0 {
		k := min(n, len(stream))
		held, stream = append(held, stream[:k]...), stream[k:]
		for {
			args, used, more, err := p.next(held)
			if err != nil {
				return commands, len(held) + len(stream), err
			}
			if used == 0 {
				if more <= len(held) {
					t.Fatalf("needs %d with %d there: %q", more, len(held), held)
				}
				need = more
				break
			}
			if used > len(held) || len(held) < need {
				t.Fatalf("took %d of %d bytes, after it needed %d", used, len(held), need)
			}
			need = 0
			var words []string
			for _, a := range args {
				words = append(words, fmt.Sprintf("%q", a.of(held)))
			}
			commands = append(commands, strings.Join(words, " "))
			held = held[used:]
		}
	}
	return commands, len(held), nil
}

func TestParse(t *testing.T) {
	for _, tc := range []struct{ stream, want, err string }{
		{"*1\r\n$4\r\nPING\r\n", `"PING"`, ""},
		{"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\nPING\r\n", `"ECHO" "a\r\n"|"PING"`, ""},
		{"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", `"ECHO" ""`, ""},
		{"PING\r\n", `"PING"`, ""},
		{"  PING\t a \n\r\nx\n", `"PING" "a"||"x"`, ""},
		{"*0\r\n*-1\r\nPING\n", `||"PING"`, ""},
		{"*1\r\n:4\r\n", "", "expected '$'"},
		{"*1\r\n$-1\r\n", "", "length -1"},
		{"*1\r\n$2147483648\r\n", "", "--max-frame"},
		{"*1\r\n$101\r\n", "", "limit of 100"},
		{"*99999999999\r\n", "", "no length"},
		{"*70000\r\n", "", "70000 arguments"},
		{"*65536\r\n" + strings.Repeat("$100\r\n"+strings.Repeat("x", 100)+"\r\n", 10_000), "", "a command of more than"},
		{"*1\r\n$x\r\n", "", "no length"},
		{"*1\r\n$1\r\nabc\r\n", "", "does not end"},
		{"*11111111111111111111111", "", "too long"},
		{"*1\rx", "", "newline"},
		{strings.Repeat("x", maxInline), "", "inline"},
	} {
		for _, n := range []int{1, 3, 1 << 20} {
			if len(tc.stream) > maxInline && n < len(tc.stream) {
				continue // parsed from its beginning as often as it has bytes
			}
			commands, _, err := cut(t, []byte(tc.stream), n, 100)
			got := strings.Join(commands, "|")
			switch {
			case tc.err == "" && (err != nil || got != tc.want), tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%.60q by %d: %s, %v; want %s, %s", tc.stream, n, got, err, tc.want, tc.err)
			}
		}
	}
}

// FuzzParse wants the same from a stream however it is cut.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"*1\r\n$4\r\nPING\r\n", "PING a b\r\n", "*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$1\r\nb\r\n*", "*-5\r\n$"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, n uint8) {
		whole, rest, err := cut(t, stream, len(stream)+1, 64)
		pieces, rest2, err2 := cut(t, stream, int(n)+1, 64)
		if fmt.Sprint(whole) != fmt.Sprint(pieces) || (err == nil) != (err2 == nil) || err == nil && rest != rest2 {
			t.Errorf("whole: %q, %d, %v; in pieces: %q, %d, %v", whole, rest, err, pieces, rest2, err2)
		}
	})
}

// FuzzJoinFrame checks that a channel and a payload come out as they went in, for every command that parses.
func FuzzJoinFrame(f *testing.F) {
	f.Add("room", "hello", true)
	f.Add("", "", false)
	f.Fuzz(func(t *testing.T, channel, payload string, inline bool) {
		var stream []byte
		if inline {
			stream = []byte("PUBLISH " + channel + " " + payload + "\r\n")
		} else {
			stream = bulk(bulk(bulk(header(nil, '*', 3), "PUBLISH"), channel), payload)
		}
		p := parser{maxBulk: 1 << 20, maxArgs: 1 << 16}
		args, used, _, err := p.next(stream)
		if err != nil || used == 0 || len(args) != 3 {
			return
		}
		wantChannel, wantPayload := bytes.Clone(args[1].of(stream)), bytes.Clone(args[2].of(stream))
		frame, ok := joinFrame(stream[:used], args[1], args[2])
		if !ok {
			if len(wantChannel) <= 0xffff {
				t.Fatalf("no room for %q", wantChannel)
			}
			return
		}
		gotChannel, gotPayload, ok := splitFrame(frame)
		if !ok || !bytes.Equal(gotChannel, wantChannel) || !bytes.Equal(gotPayload, wantPayload) {
			t.Errorf("%q %q became %q %q", wantChannel, wantPayload, gotChannel, gotPayload)
		}
	})
}

func TestQuotes(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string // nil: an error
	}{
		{`PUBLISH a "b c"`, []string{"PUBLISH", "a", "b c"}},
		{`a "" ''`, []string{"a", "", ""}},
		{`"a\n\r\t\b\a\x41\x0a\q\"" x`, []string{"a\n\r\t\b\aA\nq\"", "x"}},
		{`'a\n"\'b' c`, []string{`a\n"'b`, "c"}},
		{`a\ b`, []string{`a\`, "b"}},
		{`pre"fix" x`, []string{"prefix", "x"}},
		{`"\xg1"`, []string{"xg1"}},
		{`"a`, nil},
		{`'a`, nil},
		{`"a\"`, nil},
		{`"a"b`, nil},
	} {
		p := parser{maxBulk: 100, maxArgs: 10}
		b := []byte(c.line + "\r\nrest")
		args, used, _, err := p.next(b)
		var got []string
		for _, a := range args {
			got = append(got, string(a.of(b)))
		}
		if c.want == nil {
			if err == nil || !strings.Contains(err.Error(), "unbalanced quotes") {
				t.Errorf("%s: %q, %v", c.line, got, err)
			}
			continue
		}
		if err != nil || used != len(c.line)+2 || !slices.Equal(got, c.want) || string(b[used:]) != "rest" {
			t.Errorf("%s: %q, used %d, %v", c.line, got, used, err)
		}
	}
}
