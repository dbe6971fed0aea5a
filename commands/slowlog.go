package commands

import (
	"fmt"
	"math"
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/slowlog"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// operatorSlowlog is LOCKPROXY SLOWLOG GET [count] | LEN | RESET.
func operatorSlowlog(c *Client, args [][]byte, out []byte) []byte {
	l := c.Operator.Slow()
	switch {
	case same(args[2], "GET"):
		n, line := countIn(args[1:], 10)
		if line != "" {
			return resp.AppendError(out, line)
		}
		return appendSlow(out, c.proto(), l.Latest(n))
	case same(args[2], "LEN") && len(args) == 3:
		return resp.AppendInt(out, int64(l.Len()))
	case same(args[2], "RESET") && len(args) == 3:
		l.Reset()
		return appendOK(out)
	}
	return resp.AppendError(out, wrongSubcommand(args[2]))
}

// appendSlow appends what Redis' SLOWLOG GET says of each entry, and behind it the user, the time that was Redis'
// (null: it was not forwarded), and how many commands were sent together.
func appendSlow(out []byte, proto int, all []slowlog.Entry) []byte {
	entries := list{}
	for _, e := range all {
		args := list{}
		for _, arg := range e.Args {
			args = append(args, arg)
		}
		entry := list{e.ID, e.At.Unix(), e.Took.Microseconds(), args, e.Addr, e.Name, e.User, nil, e.Commands}
		if e.Upstream >= 0 {
			entry[7] = e.Upstream.Microseconds()
		}
		entries = append(entries, entry)
	}
	return appendValue(out, proto, entries)
}

// As much of a command is shown as Redis shows.
const (
	shownArgs  = 32
	shownBytes = 128
)

// Shown are the words of a call as a slow log shows them: not too many, not too long, and without passwords. c is what
// the table says of it; nil: nothing.
func Shown(c *commandtable.Command, args [][]byte) []string {
	shown := make([]string, min(len(args), shownArgs))
	secret := secretsIn(c, args[:len(shown)])
	for i := range shown {
		arg := args[i]
		switch {
		case i == shownArgs-1 && len(args) > shownArgs:
			shown[i] = fmt.Sprintf("... (%d more arguments)", len(args)-i)
		case secret[i]:
			shown[i] = "(redacted)"
		case len(arg) > shownBytes:
			shown[i] = fmt.Sprintf("%s... (%d more bytes)", arg[:shownBytes], len(arg)-shownBytes)
		default:
			shown[i] = string(arg)
		}
	}
	return shown
}

// secretsIn are those words of a call that Redis keeps out of its own slow log, or more: where a password may stand
// nothing is shown. What it says of a word depends only on those before it.
func secretsIn(c *commandtable.Command, args [][]byte) map[int]bool {
	secret := map[int]bool{}
	hide := func(from, to int) {
		for i := from; i < min(to, len(args)); i++ {
			secret[i] = true
		}
	}
	behind := func(keyword string, n int) {
		for i := range args {
			if same(args[i], keyword) {
				hide(i+1, i+1+n)
			}
		}
	}
	known, sub := "", ""
	if c != nil {
		known, _, _ = strings.Cut(c.Name, "|") // redis.conf may have renamed it
	}
	if len(args) > 1 {
		sub = strings.ToLower(string(args[1]))
	}
	is := func(name string) bool { return known == name || same(args[0], strings.ToUpper(name)) }
	switch {
	case is("auth"):
		hide(1, math.MaxInt)
	case is("hello"):
		behind("AUTH", 2)
	case is("migrate"):
		behind("AUTH", 1)
		behind("AUTH2", 2)
	case is("acl") && (sub == "setuser" || sub == "deluser" || sub == "getuser"):
		hide(2, math.MaxInt)
	case is("config") && sub == "set":
		for i := 3; i < len(args); i += 2 {
			secret[i] = true
		}
	case is("fenced"):
		inner := verbs["fenced"].inner(args)
		if len(inner) > 0 {
			for i := range secretsIn(nil, inner) {
				secret[len(args)-len(inner)+i] = true
			}
		}
	}
	return secret
}
