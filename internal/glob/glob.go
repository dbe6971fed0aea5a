// Package glob matches names against patterns as Redis' KEYS and SCAN do.
package glob

// MaxLength is the length in bytes that a pattern of LOCKLIST and COMMAND LIST may have. With it a name is compared in some milliseconds at
// most, whatever the pattern.
const MaxLength = 1024

// Pattern is one: * ? [abc] [^a] [a-z] and \\ before a literal byte.
type Pattern []element

// element is what one byte of a name is compared with; or any number of bytes.
type element struct {
	any bool      // *
	set [4]uint64 // the bytes that fit, a bit each
}

func (e *element) addByte(b byte)   { e.set[b/64] |= 1 << (b % 64) }
func (e *element) fits(b byte) bool { return e.set[b/64]&(1<<(b%64)) != 0 }

// not makes all bytes fit that did not.
func (e *element) not() {
	for i := range e.set {
		e.set[i] = ^e.set[i]
	}
}

// New takes a pattern apart.
func New(pattern string) (g Pattern) {
	for i := 0; i < len(pattern); {
		var e element
		switch c := pattern[i]; {
		case c == '*':
			e.any = true
		case c == '?':
			e.not()
		case c == '[':
			i += e.class(pattern[i:])
			g = append(g, e)
			continue
		case c == '\\' && i+1 < len(pattern):
			i++
			e.addByte(pattern[i])
		default:
			e.addByte(c)
		}
		g = append(g, e)
		i++
	}
	return g
}

// class reads [...] and returns its length; one that is not closed goes to the pattern's end, as in Redis.
func (e *element) class(pattern string) (size int) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			e.addByte(pattern[i])
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			for b := int(low); b <= int(high); b++ {
				e.addByte(byte(b))
			}
			i += 2
		default:
			e.addByte(pattern[i])
		}
	}
	if not {
		e.not()
	}
	return min(i+1, len(pattern))
}

// Matches says whether a name fits.
func (g Pattern) Matches(name string) bool {
	star, resume := -1, 0 // the last *, and where in name it stopped taking bytes
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(g) && g[p].any:
			star, resume = p, n
			p++
		case p < len(g) && g[p].fits(name[n]):
			p++
			n++
		case star < 0:
			return false
		default:
			resume++
			p, n = star+1, resume
		}
	}
	for p < len(g) && g[p].any {
		p++
	}
	return p == len(g)
}
