// Package commands has the grammar and the replies of all that lockproxy answers itself: the lock verbs, in a table of name, arity,
// flags, keys and help, and HELLO, CLIENT, COMMAND, CLUSTER and INFO. What a lock is, internal/lock knows; what is so of a client,
// the session says.
package commands

import (
	"bytes"
	"context"
	"sort"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Client is the connection a verb runs for.
type Client interface {
	Proto() int // 2 or 3
	DB() int
	Locks() *lock.Client
	// May asks Redis whether this client's own user may write, or read, key. The error is Redis' answer.
	May(key []byte, write bool) error
	// MayDelete asks Redis whether this client's own user may delete a key that it may write. The error is Redis' answer.
	MayDelete(key []byte) error
	// SeesClients asks Redis whether this client's own user may see who other clients are: may run CLIENT LIST.
	SeesClients() bool
	// Wait flushes the replies so far and runs run with a context that ends when the client goes away.
	Wait(run func(ctx context.Context))
	// Fenced runs a command if the lock is held as asked, and has its reply given. Only if there is none yet it returns an
	// error, which the verb is to answer.
	Fenced(r lock.HoldRequest, command [][]byte) error
}

// Verb is one row of the table.
type Verb struct {
	Name    string   // lower case, as COMMAND lists it
	Arity   int      // as in COMMAND: the verb counts, negative means at least
	Flags   []string // as in COMMAND
	keys    keyPlace // where its keys are
	Wraps   bool     // behind the options comes another command, which has keys of its own
	Summary string
	Group   string
	Since   string
	Options []Option
	run     func(c Client, args [][]byte, out []byte) []byte
}

// Usage is the verb with its arguments, as docs/VERBS.md and redis-cli print it.
func (v *Verb) Usage() string { return usage(v) }

var table = map[string]*Verb{}

func init() {
	for _, v := range verbs() {
		table[v.Name] = v
	}
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
	return table[string(lower[:len(name)])]
}

// Verbs lists all verbs by name.
func Verbs() []*Verb {
	all := make([]*Verb, 0, len(table))
	for _, v := range table {
		all = append(all, v)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// Run answers one call of the verb: it appends exactly one reply to out, or none if the client has been given it. args[0] is the verb as it was sent.
func (v *Verb) Run(c Client, args [][]byte, out []byte) []byte {
	if v.Arity > 0 && len(args) != v.Arity || len(args) < -v.Arity {
		return resp.AppendError(out, "ERR wrong number of arguments for '"+v.Name+"' command")
	}
	if err := v.checkKeys(args); err != nil {
		return appendSyntax(out, err)
	}
	return v.run(c, args, out)
}

// same compares a token of a command with an upper-case keyword, letter case aside.
func same(token []byte, keyword string) bool {
	return len(token) == len(keyword) && bytes.EqualFold(token, []byte(keyword))
}
