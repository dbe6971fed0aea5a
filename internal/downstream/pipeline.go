package downstream

import (
	"bytes"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// The lengths of the shortest command, "*1\r\n$0\r\n\r\n", and of the shortest word.
const shortestCommand, shortestWord = 10, 6

// Commands returns what the client has sent, once: first, which redcon has handed over, or the command in place of which
// redcon got that one, and those that came behind it in one read. behind are those of them that redcon has.
func (r *Reader) Commands(first redcon.Command, behind []redcon.Command) (redcon.Command, []redcon.Command) {
	if raw := r.guard.Long(); raw != nil {
		words, _ := resp.CutCommand(nil, raw)
		return redcon.Command{Raw: raw, Args: words}, nil
	}
	if behind == nil {
		behind, r.rest = r.rest, nil
	}
	return first, behind
}

// keepRest keeps for Commands what comes behind the first of the commands that b, which has been read, consists of, and
// returns how much of b redcon is to cut out itself. redcon makes at least three allocations for each command, this
// makes three for all of them. Like redcon it copies them, since whoever runs a command may keep it.
func (r *Reader) keepRest(b []byte) int {
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
