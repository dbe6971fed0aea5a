package session

import (
	"bytes"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/commands"
)

// command is what the proxy knows of one command name. A name it does not know is forwarded.
type command struct {
	name     string   // as Redis writes it: lower case, "client|kill"
	note     string   // for docs/COMMANDS.md: why it is not simply forwarded, or how the answer differs from Redis'
	arity    int      // of commands answered here, checked before anything else; 0: not checked
	readOnly bool     // Redis says that it changes nothing
	open     bool     // may be run by clients that have not authenticated
	run      answer   // answers it here; nil: forwarded
	probe    []string // a call that changes nothing, for which Redis would refuse those who may not run it
	pin      pinKind
	waits    *command // what it is when called with BLOCK
	always   bool     // answered here in every state of the connection
	refusal  bool     // all that run does is to say no
	line     string   // of a refusal: what it says
	script   scriptKind
	barred   bool                // not to be queued in a transaction, and unknown to Redis or to be kept from it
	subs     map[string]*command // by name in upper case; one that is missing is treated as the command itself
}

// answer appends exactly one reply to the batch, or ends the connection.
type answer func(s *Session, args [][]byte)

// table is all commands that are not simply forwarded, and what Redis tells of those that are. It never changes:
// what is learned makes a new one.
type table struct {
	commands map[string]*command
	learned  bool // Redis has told all of its own: other names are strangers
}

// newTable puts together what is answered or refused here, the lock verbs, the operator's deny list, and what Redis
// told of its own commands.
func newTable(allow, deny []string, learned []*command) *table {
	t := &table{commands: make(map[string]*command, len(learned)+len(answered)+len(stateful)), learned: len(learned) > 0}
	for _, c := range learned {
		if strings.HasPrefix(c.name, "cluster|") {
			c.run = (*Session).noCluster
		}
		t.put(c)
	}
	for _, c := range answered {
		t.put(&c)
	}
	for _, rows := range [][]command{scripted, stateful, passed} {
		for _, c := range rows {
			t.put(&c)
		}
	}
	for _, c := range optional {
		if !slices.ContainsFunc(allow, func(name string) bool { return strings.EqualFold(name, c.name) }) {
			c = *refusal(c.name, "is off in lockproxy, --allow "+c.name+" switches it on", c.note)
		}
		t.put(&c)
	}
	for _, c := range refused {
		t.put(refusal(c.name, "is not supported by lockproxy", c.note))
	}
	for _, v := range commands.Verbs() {
		t.put(&command{name: strings.ToLower(v.Name), note: v.Summary, open: true, barred: true,
			run: func(s *Session, args [][]byte) { s.runVerb(v, args) }})
	}
	for _, name := range deny {
		t.put(refusal(name, "is denied by lockproxy's --deny", ""))
	}
	return t
}

// put adds c, or replaces what stood for its name; "a|b" goes under "a".
func (t *table) put(c *command) {
	name, sub, isSub := strings.Cut(strings.ToUpper(c.name), "|")
	if !isSub {
		if old := t.commands[name]; old != nil {
			c.readOnly = c.readOnly || old.readOnly
			if c.name == "cluster" && !c.refusal {
				c.subs = old.subs
			}
		}
		t.commands[name] = c
		return
	}
	parent := t.commands[name]
	if parent == nil {
		parent = &command{name: strings.ToLower(name)}
		t.commands[name] = parent
	}
	if parent.subs == nil {
		parent.subs = make(map[string]*command)
	}
	parent.subs[sub] = c
}

// find classifies a command: what the table says of it, if anything, and who answers it here; nil: it is forwarded.
func (t *table) find(args [][]byte) (*command, answer) {
	c := lookUp(t.commands, args[0])
	switch {
	case c != nil:
		return c.find(args)
	case t.learned:
		return nil, (*Session).stranger
	}
	return nil, nil
}

// find is table's for a call of c.
func (c *command) find(args [][]byte) (*command, answer) {
	if c.subs != nil && len(args) > 1 {
		if sub := lookUp(c.subs, args[1]); sub != nil {
			c = sub
		}
	}
	if c.waits != nil && blocks(args) {
		c = c.waits
	}
	if c.run == nil {
		return c, nil
	}
	return c, c.answer
}

// answer checks what Redis would check first, and answers.
func (c *command) answer(s *Session, args [][]byte) {
	if !arityFits(c.arity, len(args)) {
		s.error(wrongArity(c.name))
		return
	}
	if !c.open {
		line := s.refused()
		if line == "" && c.probe != nil {
			line = s.forbidden(c)
		}
		if line != "" {
			s.error(line)
			return
		}
	}
	c.run(s, args)
}

const longestName = 64 // bytes; longer names are nobody's

// lookUp finds a name in any letter case without allocating.
func lookUp(in map[string]*command, name []byte) *command {
	var upper [longestName]byte
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

func refusal(name, why, note string) *command {
	line := "ERR '" + strings.ReplaceAll(strings.ToUpper(name), "|", " ") + "' " + why
	return &command{name: strings.ToLower(name), note: note, refusal: true, line: line, open: true, barred: true, run: func(s *Session, _ [][]byte) { s.error(line) }}
}

// blocks says whether XREAD or XREADGROUP is called with BLOCK. Options it does not know are passed over one word at a
// time: a BLOCK too many only takes a connection of its own.
func blocks(args [][]byte) bool {
	for i := 1; i < len(args); i++ {
		switch {
		case equalFold(args[i], "STREAMS"):
			return false
		case equalFold(args[i], "GROUP"):
			i += 2
		case equalFold(args[i], "BLOCK"):
			return true
		}
	}
	return false
}

// equalFold compares a word of a command with a keyword, letter case aside.
func equalFold(word []byte, keyword string) bool { return bytes.EqualFold(word, []byte(keyword)) }

func unknownSubcommand(s *Session, args [][]byte) {
	s.error("ERR unknown subcommand '" + clip(args[1]) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP.")
}

// clip shortens what is quoted in an error, as Redis does, to which a zero byte is the end.
func clip(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b[:min(len(b), 128)])
}
