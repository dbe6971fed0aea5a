package session

import (
	"bytes"
	"slices"
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
	pin      pinKind
	waits    *command // what it is when called with BLOCK
	always   bool     // answered here in every state of the connection
	barred   bool     // not to be queued in a transaction, and unknown to Redis or to be kept from it
	script   scriptKind
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
// take it over run on a connection of the client's own, or are answered here, or are refused: a shifted or foreign
// reply would reach the wrong client.
var (
	stateful = []command{
		{name: "multi", pin: pinMulti},
		{name: "exec", pin: pinExec},
		{name: "discard", pin: pinDiscard},
		{name: "watch", pin: pinWatch},
		{name: "unwatch", pin: pinUnwatch},
		{name: "subscribe", pin: pinSubscribe},
		{name: "unsubscribe", pin: pinSubscribe},
		{name: "psubscribe", pin: pinSubscribe},
		{name: "punsubscribe", pin: pinSubscribe},
		{name: "ssubscribe", pin: pinSubscribe},
		{name: "sunsubscribe", pin: pinSubscribe},
		{name: "blpop", pin: pinBlock},
		{name: "brpop", pin: pinBlock},
		{name: "brpoplpush", pin: pinBlock},
		{name: "blmove", pin: pinBlock},
		{name: "blmpop", pin: pinBlock},
		{name: "bzpopmin", pin: pinBlock},
		{name: "bzpopmax", pin: pinBlock},
		{name: "bzmpop", pin: pinBlock},
		{name: "xread", waits: &command{name: "xread", pin: pinBlock, readOnly: true}},
		{name: "xreadgroup", waits: &command{name: "xreadgroup", pin: pinBlock}},
		{name: "wait", pin: pinWait},
		{name: "waitaof", pin: pinWait},
		{name: "client|tracking", pin: pinTracking},
		{name: "client|caching"},
		{name: "client|trackinginfo"},
		// They hold up the connection they come on, or need one that is not held up.
		{name: "client|pause", pin: pinAlone},
		{name: "client|unpause", pin: pinAlone},
	}

	// Refused unless --allow names them.
	optional = []command{
		{name: "monitor", pin: pinMonitor},
		{name: "debug", pin: pinAlone},
	}

	refused = []string{
		// The replication protocol: REPLCONF ACK has no reply, CLUSTER SYNCSLOTS takes over.
		"SYNC", "PSYNC", "REPLCONF", "CLUSTER|SYNCSLOTS",
		// The same in Redis' kin: KeyDB, Dragonfly.
		"RREPLAY", "DFLY",
		// An interactive session with Redis' script debugger.
		"SCRIPT|DEBUG",
		// State of the connection that only Redis' kin have.
		"CLIENT|IMPORT-SOURCE",
	}

	answered = []command{
		{name: "auth", barred: true, arity: -2, open: true, run: (*Session).auth},
		{name: "hello", barred: true, arity: -1, open: true, run: (*Session).hello},
		{name: "select", arity: 2, run: (*Session).selectDB},
		{name: "reset", always: true, arity: 1, open: true, run: (*Session).reset},
		{name: "quit", always: true, open: true, run: (*Session).quit},
		// Redis hangs up on these two, the first words of an HTTP request made by a browser.
		{name: "post", always: true, open: true, run: (*Session).crossProtocol},
		{name: "host:", always: true, open: true, run: (*Session).crossProtocol},
		{name: "readonly", arity: 1, run: (*Session).noCluster},
		{name: "readwrite", arity: 1, run: (*Session).noCluster},
		{name: "asking", arity: 1, run: (*Session).noCluster},
		// The connection that runs a script does not listen for its end.
		{name: "script|kill", open: true, run: (*Session).apart},
		{name: "function|kill", open: true, run: (*Session).apart},
		{name: "info", open: true, run: (*Session).info},
		{name: "client", arity: -2, open: true, run: unknownSubcommand},
		{name: "client|id", arity: 2, run: (*Session).clientID},
		{name: "client|setname", arity: 3, run: (*Session).clientSetName},
		{name: "client|getname", arity: 2, run: (*Session).clientGetName},
		{name: "client|setinfo", arity: 4, run: (*Session).clientSetInfo},
		{name: "client|capa", arity: -3, run: (*Session).clientCapa},
		{name: "client|info", arity: 2, run: (*Session).clientInfo},
		{name: "client|list", arity: -2, run: (*Session).clientList},
		{name: "client|getredir", arity: 2, run: (*Session).clientGetRedir},
		{name: "client|kill", arity: -3, barred: true, run: (*Session).clientKill},
		{name: "client|unblock", arity: -3, barred: true, run: (*Session).clientUnblock},
		{name: "client|reply", arity: 3, barred: true, run: (*Session).clientReply},
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
func newTable(allow, deny []string, learned []*command) *table {
	t := &table{commands: make(map[string]*command, len(learned)+len(answered)+len(stateful)), learned: len(learned) > 0}
	for _, c := range learned {
		t.put(c)
	}
	for _, c := range answered {
		t.put(&c)
	}
	for _, c := range scripted {
		t.put(&c)
	}
	for _, c := range stateful {
		t.put(&c)
	}
	for _, c := range optional {
		if !slices.ContainsFunc(allow, func(name string) bool { return strings.EqualFold(name, c.name) }) {
			c = *refusal(c.name, "is off in lockproxy, --allow "+c.name+" switches it on")
		}
		t.put(&c)
	}
	for _, name := range refused {
		t.put(refusal(name, "is not supported by lockproxy"))
	}
	for _, v := range commands.Verbs() {
		t.put(&command{name: strings.ToLower(v.Name), open: true, barred: true,
			run: func(s *Session, args [][]byte) { s.runVerb(v, args) }})
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
	return &command{name: strings.ToLower(name), open: true, barred: true, run: func(s *Session, _ [][]byte) { s.error(line) }}
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

// noCluster is Redis' answer to what only a cluster's node would take.
func (s *Session) noCluster([][]byte) { s.error("ERR This instance has cluster support disabled") }

func unknownSubcommand(s *Session, args [][]byte) {
	s.error("ERR unknown subcommand '" + clip(args[1]) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP.")
}

// clip shortens what is quoted in an error, as Redis does, to which a zero byte is the end.
func clip(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b[:min(len(b), 128)])
}
