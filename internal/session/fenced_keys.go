package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// noKeys is Redis' answer to COMMAND GETKEYS of a command without keys.
const noKeys = "ERR The command has no key arguments"

// fencedKeys is COMMAND GETKEYS, or GETKEYSANDFLAGS, of FENCED: the lock, and what Redis says of the command within.
func (s *Session) fencedKeys(v *commands.Verb, args [][]byte) {
	inner := v.Inner(args[2:])
	if len(inner) == 0 {
		s.error("ERR Invalid number of arguments specified for command")
		return
	}
	if len(inner) == 1 { // Redis wants an argument
		inner = append(inner[:1:1], nil)
	}
	answer, err := s.askRaw(encode(append([][]byte{args[0], args[1]}, inner...)))
	line, bad := isError(answer)
	r, ok := resp.ParseReply(answer)
	if err != nil || bad && line != noKeys || !bad && !ok {
		s.relay(answer, err)
		return
	}
	out := resp.AppendArray(s.batch.out, 1+len(r.Elems))
	if key := args[3]; strings.EqualFold(string(args[1]), "GETKEYSANDFLAGS") {
		flags := v.KeyFlags()
		out = resp.AppendBulk(resp.AppendArray(out, 2), key)
		out = resp.AppendSet(out, s.ident.Proto, len(flags))
		for _, flag := range flags {
			out = resp.AppendSimple(out, flag)
		}
	} else {
		out = resp.AppendBulk(out, key)
	}
	for _, e := range r.Elems {
		out = append(out, e.Raw...)
	}
	s.batch.out = out
}
