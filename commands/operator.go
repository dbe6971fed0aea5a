package commands

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/hottest"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// LOCKPROXY, by which an operator sees and steers this proxy at redis-cli.

// operatorCommand is its name.
const operatorCommand = "lockproxy"

// IsOperation says whether c is a subcommand of LOCKPROXY.
func IsOperation(c *commandtable.Command) bool { return strings.HasPrefix(c.Name, operatorCommand+"|") }

// Subcommand is one subcommand of LOCKPROXY.
type Subcommand struct {
	Name    string   // lower case
	Counts  bool     // it takes a count
	Actions []string // before that, one of them
	Pauses  bool     // it takes milliseconds, and then WRITE or ALL, or neither
	Summary string
	open    bool // to all users
	do      func(c Client, args [][]byte, out []byte) []byte
}

func (s *Subcommand) fullName() string { return operatorCommand + "|" + s.Name }

// arity is as in COMMAND.
func (s *Subcommand) arity() int {
	switch {
	case s.Actions != nil, s.Pauses:
		return -3
	case s.Counts:
		return -2
	}
	return 2
}

// usage is the subcommand with its arguments, as HELP prints it.
func (s *Subcommand) usage() string {
	text := strings.ToUpper(s.Name)
	if s.Actions != nil {
		text += " (" + strings.Join(s.Actions, "|") + ")"
	}
	if s.Counts {
		text += " [<count>]"
	}
	if s.Pauses {
		text += " <milliseconds> [WRITE|ALL]"
	}
	return text
}

// answer is the subcommand's Answer.
func (s *Subcommand) answer(c Client, args [][]byte, out []byte) []byte {
	switch {
	case !s.open && !c.Operates():
		return resp.AppendError(out, "NOPERM this user has no permissions to run the '"+s.fullName()+"' command: lockproxy's --operators does not name it")
	case len(args) > 1-s.arity() && (s.Counts || s.Pauses):
		return resp.AppendError(out, wrongSubcommand(args[1]))
	}
	return s.do(c, args, out)
}

// wrongSubcommand is what Redis says of one that is unknown, or has too many words.
func wrongSubcommand(word []byte) string {
	return "ERR unknown subcommand or wrong number of arguments for '" + Clip(word, ClipMost) + "'. Try LOCKPROXY HELP."
}

// operatorHelp is LOCKPROXY HELP, as Redis' own HELP subcommands are.
func operatorHelp(_ Client, _ [][]byte, out []byte) []byte {
	lines := []string{"LOCKPROXY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, s := range operatorCommands() {
		lines = append(lines, s.usage(), "    "+s.Summary)
	}
	out = resp.AppendArray(out, len(lines))
	for _, line := range lines {
		out = resp.AppendSimple(out, line)
	}
	return out
}

// usualCount is how much a list shows that was given no count.
const usualCount = 100

// countIn reads the count of a call; line is the error that Redis gives for one that is none.
func countIn(args [][]byte, usual int) (n int, line string) {
	if len(args) == 2 {
		return usual, ""
	}
	count, ok := resp.Integer(args[2])
	switch {
	case !ok || count < -1:
		return 0, "ERR count should be greater than or equal to -1"
	case count == -1:
		return math.MaxInt, ""
	}
	return int(count), ""
}

// counted answers a call with a list of as many things as it asks for, each as fields.
func counted[T any](c Client, args [][]byte, out []byte, list func(n int) []T, fields func(T) []field) []byte {
	n, line := countIn(args, usualCount)
	if line != "" {
		return resp.AppendError(out, line)
	}
	all := list(n)
	m := mapping{out: resp.AppendArray(out, len(all)), proto: c.Proto()}
	for _, one := range all {
		m.fields(fields(one))
	}
	return m.out
}

// field is one of a map.
type field struct {
	name  string
	value any // an integer, or text
}

// fields appends a map.
func (m *mapping) fields(all []field) {
	m.out = resp.AppendMap(m.out, m.proto, len(all))
	for _, f := range all {
		switch v := f.value.(type) {
		case int:
			m.number(f.name, int64(v))
		case int64:
			m.number(f.name, v)
		case time.Duration:
			m.number(f.name, v.Milliseconds())
		case bool:
			m.number(f.name, map[bool]int64{true: 1}[v])
		default:
			m.text(f.name, fmt.Sprint(v))
		}
	}
}

// operatorStats is LOCKPROXY STATS.
func operatorStats(c Client, _ [][]byte, out []byte) []byte {
	var all []field
	p := c.Proxy()
	p.tell(func(name string, value any) {
		all = append(all, field{strings.TrimPrefix(name, "lockproxy_"), value})
	})
	if p.Locks != nil {
		hold, wait := p.Locks.Ages()
		all = append(all, field{"oldest_hold_ms", hold}, field{"longest_wait_ms", wait})
	}
	m := mapping{out: out, proto: c.Proto()}
	m.fields(all)
	return m.out
}

// operatorLocks is LOCKPROXY LOCKS.
func operatorLocks(c Client, args [][]byte, out []byte) []byte {
	return counted(c, args, out, c.Proxy().Locks.HeldLongest, func(e lock.Entry) []field {
		renewed := time.Duration(-1) * time.Millisecond
		if !e.Renewed.IsZero() {
			renewed = time.Since(e.Renewed)
		}
		return append(whose(e), field{"held-ms", e.Held}, field{"holds", e.Holds}, field{"ttl-ms", e.Left}, field{"lease-ms", e.Lease},
			field{"watched", e.Watched}, field{"renewals", e.Renewals}, field{"renewed-ms-ago", renewed})
	})
}

// operatorWaiters is LOCKPROXY WAITERS.
func operatorWaiters(c Client, args [][]byte, out []byte) []byte {
	return counted(c, args, out, c.Proxy().Locks.WaitingLongest, func(e lock.Entry) []field {
		return append(whose(e), field{"waiting-ms", e.Held}, field{"place", e.Place})
	})
}

// operatorHot is LOCKPROXY HOT GET [count] | RESET.
func operatorHot(c Client, args [][]byte, out []byte) []byte {
	locks := c.Proxy().Locks
	switch {
	case same(args[2], "GET"):
		return counted(c, args[1:], out, locks.Hottest, func(e hottest.Entry) []field {
			return []field{{"key", e.Key}, {"db", e.DB}, {"waits", e.Waits}, {"waits-over", e.Over}, {"waited-ms", e.Waited}}
		})
	case same(args[2], "RESET") && len(args) == 3:
		locks.ForgetHottest()
		return appendOK(out)
	}
	return resp.AppendError(out, wrongSubcommand(args[2]))
}

// operatorReload is LOCKPROXY RELOAD.
func operatorReload(c Client, _ [][]byte, out []byte) []byte {
	if err := c.Reload(); err != nil {
		return resp.AppendError(out, "ERR "+err.Error())
	}
	return appendOK(out)
}

// operatorDrain is LOCKPROXY DRAIN. The reply is there before the client is closed.
func operatorDrain(c Client, _ [][]byte, out []byte) []byte {
	c.Drain()
	return appendOK(out)
}

// pauseMost bounds a pause, so that one that nobody ends is no outage.
const pauseMost = 5 * time.Minute

// operatorPause is LOCKPROXY PAUSE milliseconds [WRITE|ALL].
func operatorPause(c Client, args [][]byte, out []byte) []byte {
	ms, ok := resp.Integer(args[2])
	writes := len(args) == 4 && same(args[3], "WRITE")
	switch {
	case !ok:
		return resp.AppendError(out, "ERR timeout is not an integer or out of range")
	case ms < 1 || ms > pauseMost.Milliseconds():
		return resp.AppendError(out, fmt.Sprintf("ERR timeout is out of range, must be between 1 and %d", pauseMost.Milliseconds()))
	case len(args) == 4 && !writes && !same(args[3], "ALL"):
		return resp.AppendError(out, "ERR PAUSE mode must be WRITE or ALL")
	}
	c.Pause(time.Duration(ms)*time.Millisecond, writes)
	return appendOK(out)
}

// operatorResume is LOCKPROXY RESUME.
func operatorResume(c Client, _ [][]byte, out []byte) []byte {
	c.Resume()
	return appendOK(out)
}

// whose says which lock it is, and whose, in the words of LOCKLIST.
func whose(e lock.Entry) []field {
	kind := e.Kind.String()
	if e.Fair {
		kind = "fair"
	}
	return []field{{"key", e.Key}, {"db", e.DB}, {"kind", kind}, {"owner", e.Owner}, {"client-id", e.ClientID}, {"addr", e.Addr}, {"name", e.Name}, {"user", e.User}}
}

// operatorClients is LOCKPROXY CLIENTS.
func operatorClients(c Client, args [][]byte, out []byte) []byte {
	return counted(c, args, out, c.Holders, func(h ClientHolds) []field {
		return []field{{"id", h.ID}, {"addr", h.Addr}, {"name", h.Name}, {"user", h.User}, {"db", h.DB}, {"resp", h.ClientFacts.Proto}, {"lib-name", h.Library[0]},
			{"age-ms", h.Age}, {"idle-ms", h.Idle}, {"cmd", h.Last}, {"locks", h.Locks}, {"waits-for", h.WaitsFor}, {"waiting-ms", h.Waited}}
	})
}

// operatorNodes is LOCKPROXY NODES: those that commands go to, and those of a quorum.
func operatorNodes(c Client, args [][]byte, out []byte) []byte {
	nodes := func(n int) (all [][]field) {
		for _, node := range c.Nodes(n) {
			all = append(all, memberFields(node))
		}
		for _, node := range c.Proxy().Locks.Nodes() {
			all = append(all, []field{{"name", node.Name}, {"role", "quorum"}, {"state", node.State}, {"state-ms", node.Since}, {"counts-in-ms", node.Counts}, {"trouble", node.Trouble}})
		}
		return all[:min(n, len(all))]
	}
	return counted(c, args, out, nodes, func(f []field) []field { return f })
}

func memberFields(n NodeFacts) []field {
	state, trouble := "up", ""
	if n.Trouble != nil {
		state, trouble = "down", n.Trouble.Error()
	}
	all := []field{{"name", n.Addr}, {"role", n.Role}, {"state", state}, {"trouble", trouble}}
	if n.ID != "" {
		all = append(all, field{"id", n.ID}, field{"slots", n.Slots})
	}
	return all
}

// operators is LOCKPROXY as COMMAND tells of it.
type operators struct{}

func (operators) fullName() string { return operatorCommand }

func (operators) subs() (all []addition) {
	for _, s := range operatorCommands() {
		all = append(all, s)
	}
	return all
}

// AppendEntry implements addition.
func (o operators) AppendEntry(out []byte, proto int) []byte {
	out = appendEntryHead(out, proto, operatorCommand, -2, 0, nil, []string{"@slow"})
	out = resp.AppendArray(out, 0) // key specifications
	out = resp.AppendArray(out, len(o.subs()))
	for _, s := range o.subs() {
		out = s.AppendEntry(out, proto)
	}
	return out
}

// AppendDoc implements addition.
func (o operators) AppendDoc(out []byte, proto int) []byte {
	m := mapping{out: resp.AppendBulkString(out, operatorCommand), proto: proto}
	m.out = resp.AppendMap(m.out, proto, 4)
	m.text("summary", "A container for commands about this proxy")
	m.text("since", since)
	m.text("group", "server")
	m.key("subcommands")
	m.out = resp.AppendMap(m.out, proto, len(o.subs()))
	for _, s := range o.subs() {
		m.out = s.AppendDoc(m.out, proto)
	}
	return m.out
}

func (s *Subcommand) subs() []addition { return nil }

// AppendEntry implements addition.
func (s *Subcommand) AppendEntry(out []byte, proto int) []byte {
	flags, categories := []string{"admin", "noscript", "loading", "stale"}, []string{"@admin", "@slow", "@dangerous"}
	if s.open {
		flags, categories = flags[2:], categories[1:2]
	}
	out = appendEntryHead(out, proto, s.fullName(), s.arity(), 0, flags, categories)
	return resp.AppendArray(resp.AppendArray(out, 0), 0) // key specifications, subcommands
}

// AppendDoc implements addition.
func (s *Subcommand) AppendDoc(out []byte, proto int) []byte {
	m := mapping{out: resp.AppendBulkString(out, s.fullName()), proto: proto}
	fields := 3
	if s.Counts || s.Pauses {
		fields++
	}
	m.out = resp.AppendMap(m.out, proto, fields)
	m.text("summary", s.Summary)
	m.text("since", since)
	m.text("group", "server")
	switch {
	case s.Pauses:
		m.key("arguments")
		m.out = resp.AppendArray(m.out, 2)
		m.out = resp.AppendMap(m.out, proto, 2)
		m.text("name", "milliseconds")
		m.text("type", "integer")
		m.choice([]Option{{Keyword: "WRITE", group: "mode"}, {Keyword: "ALL", group: "mode"}})
		return m.out
	case !s.Counts:
		return m.out
	}
	m.key("arguments")
	if s.Actions == nil {
		m.out = resp.AppendArray(m.out, 1)
	} else {
		m.out = resp.AppendArray(m.out, 2)
		m.out = resp.AppendMap(m.out, proto, 3)
		m.text("name", "action")
		m.text("type", "oneof")
		m.key("arguments")
		m.out = resp.AppendArray(m.out, len(s.Actions))
		for _, a := range s.Actions {
			m.option(Option{Keyword: a}, false)
		}
	}
	m.out = resp.AppendMap(m.out, proto, 3)
	m.text("name", "count")
	m.text("type", "integer")
	m.optional()
	return m.out
}
