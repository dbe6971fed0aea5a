// Package commands answers every command that lockproxy answers itself: table.go names each, the lock verbs among them,
// with who answers it. Their grammar and their replies are here. What a lock is, internal/lock knows; what is so of a
// client, and changes, the client and its session say: see Client.
package commands

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Verb is one row of the table.
type Verb struct {
	Name    string      // lower case, as COMMAND lists it
	Arity   int         // as in COMMAND: the verb counts, negative means at least
	Flags   []string    // as in COMMAND
	keys    keyPosition // where its keys are
	Wraps   bool        // behind the options comes another command, which has keys of its own
	Summary string
	Group   string
	Since   string
	Options []Option
	do      func(v *Verb, c *Client, args [][]byte, out []byte) []byte
}

// longestName is the length of a buffer for names in lower case.
const longestName = 16

// Lookup finds a verb by its name in any letter case; nil means it is not ours.
func Lookup(name []byte) *Verb {
	if len(name) > longestName {
		return nil
	}
	var lower [longestName]byte
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return verbs[string(lower[:len(name)])]
}

// sortedVerbs are all verbs by name.
func sortedVerbs() []*Verb {
	return slices.SortedFunc(maps.Values(verbs), func(a, b *Verb) int { return strings.Compare(a.Name, b.Name) })
}

// answer is the verb's Answer to a call that has its arity. What it cannot do it says in its own words: no error closes
// the client.
func (v *Verb) answer(c *Client, args [][]byte, out []byte) []byte {
	c.Told() // the verb's reply may lack what is lost from now on
	if err := v.checkKeys(args); err != nil {
		return appendSyntax(out, err)
	}
	return v.do(v, c, args, out)
}

// same compares a token of a command with an upper-case keyword, letter case aside.
func same(token []byte, keyword string) bool {
	return len(token) == len(keyword) && bytes.EqualFold(token, []byte(keyword))
}
