package session

import (
	"bytes"
	"strings"

	"github.com/lockproxy/lockproxy/commands"
)

// command is what the proxy knows of one command name. A name it does not know is forwarded.
type command struct {
	name     string // as Redis writes it: lower case, "client|kill"
	arity    int    // of commands answered here, checked before anything else; 0: not checked
	readOnly bool   // Redis says that it changes nothing
	open     bool   // may be run by clients that have not authenticated
	run      answer // answers it here; nil: forwarded
	look     func(args [][]byte) (forbidden string)
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

// Commands that would leave a shared connection in another state, answer with anything but one reply, block it or
// take it over, or that the proxy must answer itself. A shifted or foreign reply would reach the wrong client, so
// what is not done yet is refused, never forwarded.
var (
	notYet = []string{
		// Transactions: state of the connection.
		"MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH",
		// Subscriptions: a reply for each channel, and messages afterwards.
		"SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE",
		// Blocking: all others would wait too. WAIT would count another client's writes.
		"BLPOP", "BRPOP", "BRPOPLPUSH", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "WAIT", "WAITAOF",
		// Endless output, or the replication protocol: REPLCONF ACK has no reply, CLUSTER SYNCSLOTS takes over.
		"MONITOR", "SYNC", "PSYNC", "REPLCONF", "CLUSTER|SYNCSLOTS",
		// The same in Redis' kin: KeyDB, Dragonfly.
		"RREPLAY", "DFLY",
		// State of the connection; DEBUG PROTOCOL also answers with pushes, DEBUG SEGFAULT and SLEEP not at all.
		"ASKING", "READONLY", "READWRITE", "DEBUG", "SCRIPT|DEBUG",
		// Of CLIENT, what this proxy does not do for its own clients yet.
		"CLIENT|REPLY", "CLIENT|TRACKING", "CLIENT|TRACKINGINFO", "CLIENT|CACHING", "CLIENT|GETREDIR", "CLIENT|PAUSE",
		"CLIENT|UNPAUSE", "CLIENT|UNBLOCK", "CLIENT|CAPA", "CLIENT|IMPORT-SOURCE",
	}

	answered = []command{
		{name: "auth", arity: -2, open: true, run: (*Session).auth},
		{name: "hello", arity: -1, open: true, run: (*Session).hello},
		{name: "select", arity: 2, run: (*Session).selectDB},
		{name: "reset", arity: 1, open: true, run: (*Session).reset},
		{name: "quit", open: true, run: (*Session).quit},
		// Redis hangs up on these two, the first words of an HTTP request made by a browser.
		{name: "post", open: true, run: (*Session).crossProtocol},
		{name: "host:", open: true, run: (*Session).crossProtocol},
		{name: "xread", look: blocks},
		{name: "xreadgroup", look: blocks},
		// The connection that runs a script does not listen for its end.
		{name: "script|kill", open: true, run: (*Session).apart},
		{name: "function|kill", open: true, run: (*Session).apart},
		{name: "info", open: true, run: (*Session).info},
		{name: "client", arity: -2, open: true, run: unknownSubcommand},
		{name: "client|id", arity: 2, run: (*Session).clientID},
		{name: "client|setname", arity: 3, run: (*Session).clientSetName},
		{name: "client|getname", arity: 2, run: (*Session).clientGetName},
		{name: "client|setinfo", arity: 4, run: (*Session).clientSetInfo},
		{name: "client|info", arity: 2, run: (*Session).clientInfo},
		{name: "client|list", arity: -2, run: (*Session).clientList},
		{name: "client|kill", arity: -3, run: (*Session).clientKill},
		{name: "client|no-evict", arity: 3, run: (*Session).clientNoEvict},
		{name: "client|no-touch", arity: 3, run: (*Session).clientNoTouch},
		{name: "client|help", arity: 2, run: (*Session).clientHelp},
		// Redis itself refuses the unauthenticated here: what it answers is only added to.
		{name: "command", open: true, run: (*Session).commandAll},
		{name: "command|count", open: true, run: (*Session).commandCount},
		{name: "command|info", open: true, run: (*Session).commandInfo},
		{name: "command|docs", open: true, run: (*Session).commandDocs},
		{name: "command|list", open: true, run: (*Session).commandList},
		{name: "command|getkeys", open: true, run: (*Session).commandGetKeys},
		{name: "command|getkeysandflags", open: true, run: (*Session).commandGetKeys},
	}
)

// newTable puts together what is answered or refused here, the lock verbs, the operator's deny list, and what Redis
// told of its own commands.
func newTable(deny []string, learned []*command) *table {
	t := &table{commands: make(map[string]*command, len(learned)+len(answered)+len(notYet)), learned: len(learned) > 0}
	for _, c := range learned {
		t.put(c)
	}
	for _, c := range answered {
		t.put(&c)
	}
	for _, name := range notYet {
		t.put(refusal(name, "is not supported by lockproxy yet"))
	}
	for _, v := range commands.Verbs() {
		t.put(&command{name: strings.ToLower(v.Name), open: true, run: func(s *Session, args [][]byte) { s.runVerb(v, args) }})
	}
	for _, name := range deny {
		t.put(refusal(name, "is denied by lockproxy's --deny"))
	}
	return t
}

// put adds c, or replaces what stood for its name; "a|b" goes under "a".
func (t *table) put(c *command) {
	name, sub, isSub := strings.Cut(strings.ToUpper(c.name), "|")
	if !isSub {
		if old := t.commands[name]; old != nil && !c.readOnly {
			c.readOnly = old.readOnly
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
	if c.look != nil {
		if line := c.look(args); line != "" {
			return c, func(s *Session, _ [][]byte) { s.error(line) }
		}
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
		if line := s.refused(); line != "" {
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

func refusal(name, why string) *command {
	line := "ERR '" + strings.ReplaceAll(strings.ToUpper(name), "|", " ") + "' " + why
	return &command{name: strings.ToLower(name), open: true, run: func(s *Session, _ [][]byte) { s.error(line) }}
}

// blocks refuses XREAD and XREADGROUP with BLOCK. Options it does not know are passed over one word at a time: a
// BLOCK too many is refused rather than one forwarded.
func blocks(args [][]byte) string {
	for i := 1; i < len(args); i++ {
		switch {
		case bytes.EqualFold(args[i], []byte("STREAMS")):
			return ""
		case bytes.EqualFold(args[i], []byte("GROUP")):
			i += 2
		case bytes.EqualFold(args[i], []byte("BLOCK")):
			return "ERR '" + strings.ToUpper(string(args[0])) + " BLOCK' is not supported by lockproxy yet"
		}
	}
	return ""
}

func unknownSubcommand(s *Session, args [][]byte) {
	s.error("ERR unknown subcommand '" + clip(args[1]) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP.")
}

// clip shortens what is quoted in an error, as Redis does.
func clip(b []byte) string { return string(b[:min(len(b), 128)]) }
