package commandtable

import (
	"bytes"
	"strconv"
	"time"
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
