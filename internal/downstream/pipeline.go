package downstream

import (
	"bytes"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// The lengths of the shortest command, "*1\r\n$0\r\n\r\n", and of the shortest word.
const shortestCommand, shortestWord = 10, 6

// keepRest keeps for Rest what comes behind the first of the commands that b, which has been read, consists of, and
// returns how much of b redcon is to cut out itself. redcon makes at least three allocations for each command, this
// makes three for all of them. Like redcon it copies them, since whoever runs a command may keep it.
func (r *Reader) keepRest(b []byte) int {
	if !r.guard.Whole() {
		return len(b)
	}
	var first [8][]byte
	_, n := resp.CutCommand(first[:0], b)
	if n == 0 || n == len(b) {
		return len(b)
	}
	raw := bytes.Clone(b[n:])
	words := make([][]byte, 0, min(bytes.Count(raw, []byte("$")), len(raw)/shortestWord))
	r.rest = make([]redcon.Command, 0, min(bytes.Count(raw, []byte("*")), len(raw)/shortestCommand))
	for k := 0; len(raw) > 0; raw = raw[k:] {
		at := len(words)
		if words, k = resp.CutCommand(words, raw); k == 0 {
			r.rest = nil
			return len(b)
		}
		r.rest = append(r.rest, redcon.Command{Raw: raw[:k:k], Args: words[at:len(words):len(words)]})
	}
	return n
}

// Rest returns the commands that came together with the one that redcon has handed over, and behind it, and that redcon
// does not have itself. It returns them once.
func (r *Reader) Rest() []redcon.Command {
	rest := r.rest
	r.rest = nil
	return rest
}
