package commandtable

import (
	"bytes"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// WaitsFor is for how long a call of a command that may wait does at most; 0: for ever, or nobody knows.
func (c *Command) WaitsFor(args [][]byte) time.Duration {
	at, unit := c.timeout(args)
	n, err := strconv.ParseFloat(string(wordAt(args, at)), 64)
	if err != nil || n > 1e9 {
		return 0
	}
	return max(time.Duration(n*float64(unit)), 0)
}

// timeout finds the word of a command that may wait that says for how long, and in what unit. 0: there is none.
func (c *Command) timeout(args [][]byte) (at int, unit time.Duration) {
	switch c.Name {
	case "blpop", "brpop", "bzpopmin", "bzpopmax", "brpoplpush", "blmove":
		return len(args) - 1, time.Second
	case "blmpop", "bzmpop":
		return 1, time.Second
	case "wait":
		return 2, time.Millisecond
	case "waitaof":
		return 3, time.Millisecond
	case "xread", "xreadgroup":
		for i := 1; i+1 < len(args); i++ {
			if bytes.EqualFold(args[i], []byte("BLOCK")) {
				return i + 1, time.Millisecond
			}
		}
	}
	return 0, 0
}

// TimeLeft is a call of a blocking command as it is to be sent when so much of its time has passed.
func (c *Command) TimeLeft(args [][]byte, passed time.Duration) []byte {
	whole := c.WaitsFor(args)
	if whole == 0 { // or Redis says what is wrong
		return resp.Command(args)
	}
	at, unit := c.timeout(args)
	left := max(whole-passed, time.Millisecond)
	words := append([][]byte(nil), args...)
	if unit == time.Second {
		words[at] = strconv.AppendFloat(nil, left.Seconds(), 'f', 3, 64)
	} else {
		words[at] = strconv.AppendInt(nil, left.Milliseconds(), 10)
	}
	return resp.Command(words)
}
