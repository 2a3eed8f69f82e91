package resp

import (
	"bytes"
	"fmt"
)

const (
	extra      = 1 << 20  // bytes of a command beyond one argument of the largest size: names of channels
	maxInline  = 64 << 10 // bytes of a command that is a line
	maxNumeral = 20       // bytes of a number's line

	tlsHandshake = 0x16 // the first byte that a TLS client sends
)

// span is a part of the parsed bytes: b[from:to].
type span struct{ from, to int }

func (s span) of(b []byte) []byte { return b[s.from:s.to:s.to] }

// A protocolError ends a connection: what follows in its stream means nothing any more.
type protocolError struct {
	text  string
	limit bool // a limit of Config was passed
}

func (e *protocolError) Error() string { return "Protocol error: " + e.text }

func broken(format string, args ...any) error {
	return &protocolError{text: fmt.Sprintf(format, args...)}
}

// above is broken for what is above a limit.
func above(format string, args ...any) error {
	return &protocolError{text: fmt.Sprintf(format, args...), limit: true}
}

// A parser cuts commands from a stream. It keeps nothing between calls but memory.
type parser struct {
	maxBulk int // bytes of an argument
	// stranger says that maxBulk is so small because it is not known yet who the client is.
	stranger bool
	maxArgs  int // arguments of a command: of SUBSCRIBE, that is
	args     []span
}

// next parses the command at the start of b: an array of bulk strings, or a line of words. It returns its arguments,
// which are none for an empty one, and how many bytes it took: 0 if it is not whole, and then it has at least need bytes.
func (p *parser) next(b []byte) (args []span, used, need int, err error) {
	if len(b) == 0 {
		return nil, 0, 1, nil
	}
	switch {
	case b[0] == '*':
	case b[0] == tlsHandshake:
		return nil, 0, 0, broken("this looks like TLS, and the gateway has none here: give it --tls-cert and --tls-key, or let the client do without")
	case b[0] > '~' || b[0] < ' ' && b[0] != '\r' && b[0] != '\n' && b[0] != '\t':
		return nil, 0, 0, broken("no command begins with %q", b[:1])
	default:
		return p.inline(b)
	}
	count, at, err := number(b, 1)
	switch {
	case err != nil || at == 0:
		return nil, 0, len(b) + 1, err
	case count > p.maxArgs:
		return nil, 0, 0, above("%d arguments are above the limit of %d: raise --max-channels", count, p.maxArgs)
	}
	p.args = p.args[:0]
	for range count {
		if at == len(b) {
			return nil, 0, at + 4, nil
		}
		if b[at] != '$' {
			return nil, 0, 0, broken("expected '$', got %q", b[at])
		}
		size, from, err := number(b, at+1)
		switch {
		case err != nil || from == 0:
			return nil, 0, len(b) + 1, err
		case size < 0:
			return nil, 0, 0, broken("an argument of length %d", size)
		case size > p.maxBulk:
			return nil, 0, 0, above("an argument of %d bytes is above the limit of %d: %s", size, p.maxBulk, p.remedy())
		case from+size > p.maxBulk+extra:
			return nil, 0, 0, above("a command of more than %d bytes: %s, or send several", p.maxBulk+extra, p.remedy())
		case len(b) < from+size+2:
			return nil, 0, from + size + 2, nil
		case b[from+size] != '\r' || b[from+size+1] != '\n':
			return nil, 0, 0, broken("an argument does not end where it should")
		}
		p.args = append(p.args, span{from, from + size})
		at = from + size + 2
	}
	return p.args, at, 0, nil
}

// number parses the decimal number at b[at:], which ends with \r\n, and returns where what follows begins: 0 if it has not
// come whole.
func number(b []byte, at int) (n, next int, err error) {
	rest := b[at:]
	end := bytes.IndexByte(rest[:min(len(rest), maxNumeral)], '\r')
	switch {
	case end < 0 && len(rest) >= maxNumeral:
		return 0, 0, broken("a number is too long")
	case end < 0 || end+1 == len(rest):
		return 0, 0, nil
	case rest[end+1] != '\n':
		return 0, 0, broken("a number does not end with a newline")
	}
	digits := rest[:end]
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 10 {
		return 0, 0, broken("%.*q is no length", maxNumeral, rest[:end])
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, 0, broken("%.*q is no length", maxNumeral, rest[:end])
		}
		n = 10*n + int(d-'0')
	}
	if negative {
		n = -n
	}
	return n, at + end + 2, nil
}

// remedy is what to do about maxBulk.
func (p *parser) remedy() string {
	if p.stranger {
		return "authenticate first (AUTH)"
	}
	return "raise --max-frame"
}
