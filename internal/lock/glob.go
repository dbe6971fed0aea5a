package lock

// glob says whether name matches a pattern of Redis' KEYS and SCAN: * ? [abc] [^a] [a-z] and \\ before a literal byte.
// It is linear in memory and at worst len(pattern) x len(name) in time, whatever the pattern.
func glob(pattern, name string) bool {
	star, resume := -1, 0 // the last *, and where in name it stopped taking bytes
	p, n := 0, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if size, ok := one(pattern[p:], name[n]); ok {
				p += size
				n++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, n = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one matches a byte with the first element of a pattern, which is size bytes long.
func one(pattern string, b byte) (size int, ok bool) {
	switch {
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == b
	case pattern[0] == '[':
		return class(pattern, b)
	}
	return 1, pattern[0] == b
}

// class matches a byte with [...]; one that is not closed goes to the pattern's end, as in Redis.
func class(pattern string, b byte) (size int, ok bool) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			ok = ok || pattern[i] == b
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			ok = ok || low <= b && b <= high
			i += 2
		default:
			ok = ok || pattern[i] == b
		}
	}
	return min(i+1, len(pattern)), ok != not
}
