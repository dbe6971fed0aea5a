package commands

import (
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// inner is the command within a call of a verb that Wraps one; empty: there is none.
func (v *Verb) inner(args [][]byte) [][]byte {
	if !v.Wraps || len(args) < 2 {
		return nil
	}
	return args[2+optionsAhead(v.Options, args[2:]):]
}

// optionsAhead is how many tokens at the beginning are options with their values.
func optionsAhead(options []Option, tokens [][]byte) int {
	n := 0
	for n < len(tokens) {
		o := find(options, tokens[n])
		if o == nil {
			break
		}
		if n++; o.kind != noValue {
			n++
		}
	}
	return min(n, len(tokens))
}

func fenced(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	inner := v.inner(args)
	g, err := parse(v.Options, args[2:len(args)-len(inner)])
	switch {
	case err != nil:
		return appendSyntax(out, err)
	case len(inner) == 0:
		return resp.AppendError(out, commandtable.WrongArity(v.Name))
	}
	err = c.Session.Fenced(lock.HoldRequest{DB: c.Identity().DB, Key: string(args[1]), Owner: g.word("OWNER"),
		Side: side(g)}, inner)
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	return out
}
