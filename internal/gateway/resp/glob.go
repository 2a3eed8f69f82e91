package resp

// glob says whether a name matches a pattern as Redis has them: * for any bytes, ? for one, [abc], [^a], [a-z], and \ before
// a byte that stands for itself. Its time is bounded by the product of both lengths, whatever the pattern.
func glob(pattern, name string) bool {
	p, n := 0, 0
	star, back := -1, 0 // the last star, and where what it matches ends
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, back = p, n
			p++
			continue
		}
		if next, ok := matchOne(pattern, p, name[n]); ok {
			p = next
			n++
			continue
		}
		if star < 0 {
			return false
		}
		back++
		p, n = star+1, back
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne says whether what stands at pattern[p:] matches one byte, and where it ends.
func matchOne(pattern string, p int, c byte) (next int, ok bool) {
	if p >= len(pattern) {
		return p, false
	}
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	case '[':
		return matchClass(pattern, p+1, c)
	}
	return p + 1, pattern[p] == c
}

// matchClass matches a class, of which p is the first byte. One that does not end goes up to the pattern's end.
func matchClass(pattern string, p int, c byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	found := false
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		low := pattern[p]
		if low == '\\' && p+1 < len(pattern) {
			p++
			low = pattern[p]
		}
		high := low
		if p+2 < len(pattern) && pattern[p+1] == '-' && pattern[p+2] != ']' {
			p += 2
			high = pattern[p]
		}
		if min(low, high) <= c && c <= max(low, high) {
			found = true
		}
	}
	return min(p+1, len(pattern)), found != not
}
