package resp

import "strconv"

// reply is what a connection answers, as it grows.
type reply struct {
	b     []byte
	proto int // 2 or 3
}

func (r *reply) line(kind byte, text string) {
	r.b = append(r.b, kind)
	for i := range len(text) {
		if c := text[i]; c == '\r' || c == '\n' {
			r.b = append(r.b, ' ')
		} else {
			r.b = append(r.b, c)
		}
	}
	r.b = append(r.b, '\r', '\n')
}

func (r *reply) simple(text string)  { r.line('+', text) }
func (r *reply) failure(text string) { r.line('-', text) }
func (r *reply) integer(n int)       { r.b = header(r.b, ':', n) }
func (r *reply) array(n int)         { r.b = header(r.b, '*', n) }
func (r *reply) bulk(s string)       { r.b = bulk(r.b, s) }

// push begins what is sent without being asked for: of its own kind in RESP3.
func (r *reply) push(n int) { r.b = header(r.b, pushKind(r.proto), n) }

// dict begins a map of n pairs, which is a flat array in RESP2.
func (r *reply) dict(n int) {
	if r.proto == 3 {
		r.b = header(r.b, '%', n)
		return
	}
	r.array(2 * n)
}

func (r *reply) null() {
	if r.proto == 3 {
		r.b = append(r.b, "_\r\n"...)
		return
	}
	r.b = append(r.b, "$-1\r\n"...)
}

func (r *reply) nullArray() {
	if r.proto == 3 {
		r.null()
		return
	}
	r.b = append(r.b, "*-1\r\n"...)
}

func header(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

func bulk[T string | []byte](b []byte, s T) []byte {
	return append(append(header(b, '$', len(s)), s...), '\r', '\n')
}

func pushKind(proto int) byte {
	if proto == 3 {
		return '>'
	}
	return '*'
}

// overhead is how many bytes a message takes beyond its parts.
const overhead = 128

// message appends what a subscriber of a channel is sent.
func message(b []byte, proto int, channel, payload []byte) []byte {
	b = bulk(header(b, pushKind(proto), 3), "message")
	return bulk(bulk(b, channel), payload)
}

// patternMessage appends what a subscriber of a pattern is sent.
func patternMessage(b []byte, proto int, pattern string, channel, payload []byte) []byte {
	b = bulk(header(b, pushKind(proto), 4), "pmessage")
	return bulk(bulk(bulk(b, pattern), channel), payload)
}
