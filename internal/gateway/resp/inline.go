package resp

import "bytes"

// inline parses a line of words, which people type. A word may have quotes, as redis-cli's do: "a b\n\x00" or 'a b'.
func (p *parser) inline(b []byte) (args []span, used, need int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxInline)], '\n')
	switch {
	case end < 0 && len(b) >= maxInline:
		return nil, 0, 0, broken("too big inline request")
	case end < 0:
		return nil, 0, len(b) + 1, nil
	}
	p.args = p.args[:0]
	line := bytes.TrimSuffix(b[:end], []byte("\r"))
	for at := 0; at < len(line); {
		if isSpace(line[at]) {
			at++
			continue
		}
		if len(p.args) == p.maxArgs {
			return nil, 0, 0, above("more than %d arguments: raise --max-channels", p.maxArgs)
		}
		word, next, ok := unquote(line, at)
		if !ok {
			return nil, 0, 0, broken("unbalanced quotes in request")
		}
		p.args = append(p.args, word)
		at = next
	}
	return p.args, end + 1, 0, nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// unquote takes the word that begins at line[at], and puts it there without its quotes: it is not longer then. It is false if a quote does not
// end, or if the word goes on behind one that does.
func unquote(line []byte, at int) (word span, next int, ok bool) {
	to, quote := at, byte(0)
	for next = at; next < len(line); next++ {
		c := line[next]
		switch {
		case quote == 0 && isSpace(c):
			return span{at, to}, next, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
			continue
		case quote != 0 && c == quote:
			if next+1 < len(line) && !isSpace(line[next+1]) {
				return span{}, 0, false
			}
			quote = 0
			continue
		case c == '\\' && quote != 0 && next+1 < len(line):
			var took int
			c, took = escaped(line[next+1:], quote)
			next += took
		}
		line[to] = c
		to++
	}
	return span{at, to}, next, quote == 0
}

// escaped is the character that b, which comes behind a backslash in quotes, stands for, and how many bytes that takes.
func escaped(b []byte, quote byte) (c byte, took int) {
	switch {
	case quote == '\'' && b[0] == '\'':
		return '\'', 1
	case quote == '\'':
		return '\\', 0 // is itself
	case b[0] == 'x' && len(b) >= 3 && hex(b[1]) >= 0 && hex(b[2]) >= 0:
		return byte(hex(b[1])<<4 | hex(b[2])), 3
	}
	if i := bytes.IndexByte([]byte("nrtba"), b[0]); i >= 0 {
		return "\n\r\t\b\a"[i], 1
	}
	return b[0], 1
}

// hex is the value of a hexadecimal digit, or -1.
func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
