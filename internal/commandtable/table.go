// Package commandtable is what the proxy knows of commands: what each does to a connection, whether it is forwarded,
// answered here or refused, and what Redis says of those that it has. Package commands has the rows of what is answered here.
package commandtable

import (
	"bytes"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Command is what the proxy knows of one command name.
type Command struct {
	Name    string   // as Redis writes it: lower case, "client|kill"
	Note    string   // for docs/COMMANDS.md: why it is not simply forwarded, or how the answer differs from Redis'
	Conn    ConnKind // what it does to its connection
	Script  bool     // it runs a script or function
	Thread  bool     // Redis may answer it from a thread, while it serves others
	Rights  bool     // it may change what users may do
	Echoes  bool     // an error of it may repeat a client's line ends, so that it looks like several replies
	Open    bool     // may be run by clients that have not authenticated
	Barred  bool     // an error within a transaction: Redis does not know it, or must not get it
	Here    bool     // answered here; else forwarded
	Always  bool     // answered here in every state of the connection
	Arity   int      // how many words a call has, or with a minus sign at least; 0: not known, or any
	Probe   []string // a call that changes nothing, for which Redis would refuse those who may not run it
	Refusal bool     // the answer is to say no
	Line    string   // of a refusal: what it says

	Clustered Clustered // what becomes of it otherwise, in a table for a cluster
	Learned
	variants
}

// Learned is what Redis says of a command.
type Learned struct {
	ReadOnly bool // it changes nothing
	Writes   bool // it writes, or may: Redis has it wait while it pauses writes
	Family   telemetry.Family
	Spec     *CommandSpec // nil: Redis has said nothing
}

// variants are what calls of a command stand for, by their arguments.
type variants struct {
	Subs  map[string]*Command // by name in upper case; one that is missing is treated as the command itself
	told  map[string]*Command // Subs as Redis listed them, of a command whose own are fewer
	waits *Command            // what it is when called with BLOCK
}

// Table is all commands that are not simply forwarded, and what Redis tells of those that are. It never changes:
// what is learned makes a new one.
type Table struct {
	commands map[string]*Command
	learned  bool // Redis has listed all of its commands: other names are unknown
}

// New puts together what is answered here, what is refused, the operator's deny list, and what Redis told of its own commands.
// The rows are the table's from then on. A command comes before its subcommands.
func New(allow, deny []string, here, told []*Command) *Table {
	t := &Table{commands: make(map[string]*Command, len(told)+len(here)+len(stateful)), learned: len(told) > 0}
	for _, c := range told {
		c.Rights = slices.Contains(changesRights, c.Name)
		if name, _, isSub := strings.Cut(c.Name, "|"); isSub {
			if every := anySub(name, here); every != nil {
				c.Here, c.Barred, c.Note = true, every.Barred, every.Note
			}
		}
		t.put(c)
	}
	for _, c := range here {
		if strings.HasSuffix(c.Name, AnySub) {
			continue
		}
		if t.put(c); anySub(c.Name, here) != nil {
			c.Subs = c.told
		}
	}
	for _, rows := range [][]Command{scripted, echoing, threaded, stateful, passed} {
		for _, c := range rows {
			t.put(&c)
		}
	}
	for _, c := range optional {
		if !slices.ContainsFunc(allow, func(name string) bool { return strings.EqualFold(name, c.Name) }) {
			c = *refusal(c.Name, "is off in lockproxy, --allow "+c.Name+" switches it on", c.Note)
		}
		t.put(&c)
	}
	for _, c := range refused {
		t.put(refusal(c.Name, "is not supported by lockproxy", c.Note))
	}
	for _, name := range deny {
		t.put(refusal(name, "is denied by lockproxy's --deny", ""))
	}
	return t
}

// AnySub ends the name of a row for every subcommand that Redis lists of a command.
const AnySub = "|*"

// anySub is the row for every subcommand of a command; nil: there is none.
func anySub(name string, here []*Command) *Command {
	for _, c := range here {
		if c.Name == name+AnySub {
			return c
		}
	}
	return nil
}

// changesRights are the commands after which users may have other rights than before.
var changesRights = []string{"acl|setuser", "acl|deluser", "acl|load", "config|set"}

// Unknown lists those of names, as in "client|kill", that no command has, neither one that Redis told of nor one of these.
func Unknown(names []string, here, told []*Command) (unknown []string) {
	t := New(nil, nil, here, told)
	for _, full := range names {
		name, sub, isSub := strings.Cut(full, "|")
		c := t.Lookup([]byte(name))
		if c == nil || isSub && c.Subs != nil && lookUp(c.Subs, []byte(sub)) == nil {
			unknown = append(unknown, full)
		}
	}
	return unknown
}

// put adds c, or replaces what stood for its name; "a|b" goes under "a".
func (t *Table) put(c *Command) {
	name, sub, isSub := strings.Cut(strings.ToUpper(c.Name), "|")
	if !isSub {
		if old := t.commands[name]; old != nil {
			c.ReadOnly = c.ReadOnly || old.ReadOnly
			c.takeOver(old)
			c.told = old.Subs
		}
		t.commands[name] = c
		return
	}
	parent := t.commands[name]
	if parent == nil {
		parent = &Command{Name: strings.ToLower(name)}
		t.commands[name] = parent
	}
	if parent.Subs == nil {
		parent.Subs = make(map[string]*Command)
	}
	if old := parent.Subs[sub]; old != nil {
		c.takeOver(old)
	} else if old := parent.told[sub]; old != nil {
		c.takeOver(old)
	}
	parent.Subs[sub] = c
}

// takeOver keeps what Redis told of the row that c replaces.
func (c *Command) takeOver(old *Command) {
	if c.Spec == nil {
		c.Spec = old.Spec
	}
	c.Writes = c.Writes || old.Writes
	if c.Family == telemetry.Other {
		c.Family = old.Family
	}
	if c.Arity == 0 {
		c.Arity = old.Arity
	}
	if c.waits != nil {
		waits := *c.waits
		waits.Spec, waits.Family, waits.Arity = c.Spec, c.Family, c.Arity
		c.waits = &waits
	}
}

// Find is what the table says of a call, nil if nothing.
func (t *Table) Find(args [][]byte) *Command {
	c := t.Lookup(args[0])
	if c == nil {
		return nil
	}
	return c.Of(args)
}

// Learned says that Redis has told of its commands.
func (t *Table) Learned() bool { return t.learned }

// Lookup is what the table says of a command, nil if nothing.
func (t *Table) Lookup(name []byte) *Command { return lookUp(t.commands, name) }

// All calls f for every command and subcommand there is something to say of, in no order.
func (t *Table) All(f func(c *Command)) {
	for _, c := range t.commands {
		f(c)
		for _, sub := range c.Subs {
			f(sub)
		}
	}
}

// Title is its name as people write it.
func (c *Command) Title() string { return strings.ToUpper(strings.ReplaceAll(c.Name, "|", " ")) }

// Of is c, or the subcommand or variant of it, of a call.
func (c *Command) Of(args [][]byte) *Command {
	if c.Subs != nil && len(args) > 1 {
		if sub := lookUp(c.Subs, args[1]); sub != nil {
			c = sub
		}
	}
	if c.waits != nil && blocks(args) {
		c = c.waits
	}
	return c
}

// LongestName is how many bytes a command's name may have: no command has a longer one.
const LongestName = 64

// lookUp finds a name in any letter case without allocating.
func lookUp(in map[string]*Command, name []byte) *Command {
	var upper [LongestName]byte
	if len(name) > len(upper) {
		return nil
	}
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper[i] = b
	}
	return in[string(upper[:len(name)])]
}

func refusal(name, why, note string) *Command {
	line := "ERR '" + strings.ReplaceAll(strings.ToUpper(name), "|", " ") + "' " + why
	return &Command{Name: strings.ToLower(name), Note: note, Refusal: true, Line: line, Barred: true, Here: true}
}

// Refused stands for a call that is answered with that error, whatever the command is. It has no name.
func Refused(line string) *Command {
	return &Command{Refusal: true, Barred: true, Here: true, Line: line}
}

// Unlisted stands for a command that Redis has said it does not have. No other client's commands go over the connection that it is sent
// on: should Redis know it by then, it may do anything to that.
var Unlisted = &Command{Conn: ConnAlone}

// blocks says whether XREAD or XREADGROUP is called with BLOCK. Options it does not know are passed over one word at a
// time: if BLOCK is found by mistake, the call only gets a connection of its own.
func blocks(args [][]byte) bool {
	for i := 1; i < len(args); i++ {
		switch {
		case is(args[i], "STREAMS"):
			return false
		case is(args[i], "GROUP"):
			i += 2
		case is(args[i], "BLOCK"):
			return true
		}
	}
	return false
}

func is(word []byte, keyword string) bool { return bytes.EqualFold(word, []byte(keyword)) }

// ArityFits says whether a call of n words fits Redis' arity: so many, or at least so many if it is negative; 0: any.
func ArityFits(arity, n int) bool {
	switch {
	case arity == 0:
		return true
	case arity < 0:
		return n >= -arity
	}
	return n == arity
}
