package commands

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/glob"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// LOCKPROXY, by which an operator sees and steers this proxy at redis-cli.

// operatorCommand is its name.
const operatorCommand = "lockproxy"

// IsOperation says whether c is a subcommand of LOCKPROXY.
func IsOperation(c *commandtable.Command) bool { return strings.HasPrefix(c.Name, operatorCommand+"|") }

// Subcommand is one subcommand of LOCKPROXY.
type Subcommand struct {
	Name    string // lower case
	takes   string // its arguments as HELP shows them, each a word; those in brackets may be left out
	Summary string
	open    bool // to all users
	do      func(c *Client, args [][]byte, out []byte) []byte
}

func (s *Subcommand) fullName() string { return operatorCommand + "|" + s.Name }

// arity is as in COMMAND.
func (s *Subcommand) arity() int {
	n := 2
	for _, word := range strings.Fields(s.takes) {
		if word[0] == '[' {
			return -n
		}
		n++
	}
	return n
}

// answer is the subcommand's Answer.
func (s *Subcommand) answer(c *Client, args [][]byte, out []byte) []byte {
	switch {
	case !s.open && !c.Access.Operates():
		return resp.AppendError(out,
			"NOPERM this user has no permissions to run the '"+s.fullName()+"' command: lockproxy's --operators does not name it")
	case len(args) > 2+len(strings.Fields(s.takes)):
		return resp.AppendError(out, wrongSubcommand(args[1]))
	}
	return s.do(c, args, out)
}

// wrongSubcommand is what Redis says of one that is unknown, or has too many words.
func wrongSubcommand(word []byte) string {
	return "ERR unknown subcommand or wrong number of arguments for '" + Clip(word, ClipMost) + "'. Try LOCKPROXY HELP."
}

// operatorHelp is LOCKPROXY HELP, as Redis' own HELP subcommands are.
func operatorHelp(c *Client, _ [][]byte, out []byte) []byte {
	lines := list{simple("LOCKPROXY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")}
	for _, s := range operatorCommands() {
		lines = append(lines, simple(strings.TrimSpace(strings.ToUpper(s.Name)+" "+s.takes)), simple("    "+s.Summary))
	}
	return appendValue(out, c.proto(), lines)
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
func counted[T any](c *Client, args [][]byte, out []byte, find func(n int) []T, fieldsOf func(T) fields) []byte {
	n, line := countIn(args, usualCount)
	if line != "" {
		return resp.AppendError(out, line)
	}
	all := find(n)
	out = resp.AppendArray(out, len(all))
	for _, one := range all {
		out = appendValue(out, c.proto(), fieldsOf(one))
	}
	return out
}

// operatorStats is LOCKPROXY STATS.
func operatorStats(c *Client, _ [][]byte, out []byte) []byte {
	p := c.Proxy.About()
	all := fields{{"version", p.Version}}
	p.tellLines(true, func(name string, value any) {
		all = append(all, field{strings.TrimPrefix(name, "lockproxy_"), value})
	})
	state := c.Operator.InForce()
	all = append(all, field{"config_last_reload", state.Reload.Said()})
	if d := state.Drain; d != nil {
		all = append(all, field{"drain_ms", time.Since(d.Since)}, field{"drain_ends_in_ms", time.Until(d.Until)},
			field{"drain_waits_for", d.Left})
	}
	return appendValue(out, c.proto(), all)
}

// operatorConfig is LOCKPROXY CONFIG [pattern].
func operatorConfig(c *Client, args [][]byte, out []byte) []byte {
	pattern := "*"
	if len(args) == 3 {
		pattern = strings.ToLower(string(args[2]))
	}
	asked, all := glob.New(pattern), list{}
	for _, s := range c.Operator.InForce().Settings {
		if asked.Matches(s.Name) {
			all = append(all, fields{{"name", s.Name}, {"value", s.Value}, {"from", s.From}, {"live", s.Live}, {"waiting", s.Waiting}})
		}
	}
	return appendValue(out, c.proto(), all)
}

// operatorLocks is LOCKPROXY LOCKS [count] [ALL].
func operatorLocks(c *Client, args [][]byte, out []byte) []byte {
	return entries(c, args, out, "held", c.Proxy.About().Locks.HeldLongest, func(l *proxies.Lock) []lock.Entry { return l.Holders },
		func(e lock.Entry) fields {
			return append(whose(e), fields{{"held-ms", e.Held}, {"holds", e.Holds}, {"ttl-ms", e.Left}, {"lease-ms", e.Lease},
				{"watched", e.Watched}, {"renewals", e.Renewals}, {"renewed-ms-ago", e.Renewed}}...)
		})
}

// operatorWaiters is LOCKPROXY WAITERS [count] [ALL].
func operatorWaiters(c *Client, args [][]byte, out []byte) []byte {
	return entries(c, args, out, "", c.Proxy.About().Locks.WaitingLongest, func(l *proxies.Lock) []lock.Entry { return l.Waiters },
		func(e lock.Entry) fields {
			return append(whose(e), field{"waiting-ms", e.Waited}, field{"place", e.Place})
		})
}

// entries answers a call with who holds, or waits: here, or with ALL at all proxies, each with which that is, how old the
// answer is, how many locks there are in all, and who has not answered. More than proxies tell is not shown then.
func entries(c *Client, args [][]byte, out []byte, sort string, here func(n int) []lock.Entry, some func(*proxies.Lock) []lock.Entry,
	fieldsOf func(lock.Entry) fields) []byte {
	last := len(args) - 1
	if last < 2 || !same(args[last], "ALL") {
		if last > 2 {
			return resp.AppendError(out, wrongSubcommand(args[1]))
		}
		return counted(c, args, out, here, fieldsOf)
	}
	var view proxies.Overview
	find := func(n int) (all []lock.Entry) {
		view = c.Operator.Proxies(c.Context(), proxies.Question{Sort: sort, Locks: proxies.MostRows, Of: mostOfEach})
		for i := range view.Locks {
			all = append(all, some(&view.Locks[i])...)
		}
		slices.SortStableFunc(all, func(a, b lock.Entry) int { return cmp.Compare(b.Held+b.Waited, a.Held+a.Waited) })
		return all[:min(n, len(all))]
	}
	return counted(c, args[:last], out, find, func(e lock.Entry) fields {
		return append(fieldsOf(e), fields{{"proxy", e.Proxy}, {"told-ms-ago", time.Since(view.At)}, {"of", view.Of},
			{"silent", strings.Join(view.Silent(), ", ")}}...)
	})
}

// mostOfEach is how many holders and waiters of each lock are shown of all proxies.
const mostOfEach = 16

// operatorProxies is LOCKPROXY PROXIES.
func operatorProxies(c *Client, args [][]byte, out []byte) []byte {
	var view proxies.Overview
	find := func(n int) []proxies.State {
		view = c.Operator.Proxies(c.Context(), proxies.Question{})
		return view.Proxies[:min(n, len(view.Proxies))]
	}
	return counted(c, args, out, find, func(s proxies.State) fields {
		return fields{{"id", s.ID}, {"host", s.Host}, {"version", s.Version}, {"age-ms", time.Since(s.Started)}, {"state", s.State},
			{"state-ms", time.Since(s.Since)}, {"trouble", s.Trouble}, {"holds", s.Holds}, {"waits", s.Waits}, {"told-ms-ago", time.Since(view.At)}}
	})
}

// operatorEvents is LOCKPROXY EVENTS [count] [pattern] [kind].
func operatorEvents(c *Client, args [][]byte, out []byte) []byte {
	asked := append(slices.Clone(args), make([][]byte, 5)...)[:5]
	pattern, kind := string(asked[3]), strings.ToLower(string(asked[4]))
	switch {
	case len(pattern) > glob.MaxLength:
		return resp.AppendError(out, "ERR pattern is too long")
	case kind != "" && !slices.Contains(events.Kinds(), kind):
		return resp.AppendError(out, "ERR kind should be one of "+strings.Join(events.Kinds(), ", "))
	}
	names, all := glob.New(pattern), pattern == "" || pattern == "*"
	find := func(n int) []events.Event {
		return c.Proxy.About().Events.Latest(n, kind, func(e *events.Event) bool { return all || e.Lock && names.Matches(e.Key) })
	}
	return counted(c, args[:min(len(args), 3)], out, find, eventFields)
}

// eventFields are what there is of an event.
func eventFields(e events.Event) fields {
	all := fields{{"id", int64(e.ID)}, {"at", e.Time()}, {"event", e.Kind.String()}}
	if e.Lock {
		all = append(all, field{"key", e.Key}, field{"db", e.DB})
	}
	for _, f := range (fields{{"kind", e.Side}, {"owner", e.Owner}, {"verb", e.Verb}, {"addr", e.Addr}, {"name", e.Name},
		{"user", e.User}, {"waited-ms", e.Waited}, {"held-ms", e.Held}, {"reason", e.Reason}, {"more", e.More}}) {
		if f.value != "" && f.value != time.Duration(0) && f.value != int64(0) {
			all = append(all, f)
		}
	}
	return all
}

// operatorReload is LOCKPROXY RELOAD.
func operatorReload(c *Client, _ [][]byte, out []byte) []byte {
	said, err := c.Operator.Reload(c.Client)
	if err != nil {
		return resp.AppendError(out, "ERR "+err.Error())
	}
	return resp.AppendSimple(out, said)
}

// operatorLogLevel is LOCKPROXY LOGLEVEL [level].
func operatorLogLevel(c *Client, args [][]byte, out []byte) []byte {
	to := ""
	if len(args) == 3 {
		to = Clip(args[2], ClipMost)
	}
	now, err := c.Operator.LogLevel(c.Client, to)
	if err != nil {
		return resp.AppendError(out, "ERR "+err.Error())
	}
	return resp.AppendSimple(out, now)
}

// operatorDrain is LOCKPROXY DRAIN. The reply is there before the client is closed.
func operatorDrain(c *Client, _ [][]byte, out []byte) []byte {
	c.Operator.Drain(c.Client)
	return appendOK(out)
}

// whose says which lock it is, and whose, in the words of LOCKLIST.
func whose(e lock.Entry) fields {
	return append(append(lockOf(&e), connection(e.Holder)...), field{"user", e.User})
}

// operatorClients is LOCKPROXY CLIENTS.
func operatorClients(c *Client, args [][]byte, out []byte) []byte {
	first := func(n int) []ClientHolds {
		some, _ := c.Proxy.Holders(n, "")
		return some
	}
	return counted(c, args, out, first, func(h ClientHolds) fields {
		return fields{{"id", h.ID}, {"addr", h.Addr}, {"name", h.Name}, {"user", h.User}, {"db", h.DB},
			{"resp", h.ClientFacts.Proto}, {"lib-name", h.Library[0]},
			{"age-ms", h.Age}, {"idle-ms", h.Idle}, {"cmd", h.Last}, {"locks", h.Locks}, {"waits-for", h.WaitsFor},
			{"waiting-ms", h.Waited}}
	})
}

// operatorNodes is LOCKPROXY NODES: those that commands go to, and those of a quorum.
func operatorNodes(c *Client, args [][]byte, out []byte) []byte {
	nodes := func(n int) (all []fields) {
		where, _ := c.Proxy.About().Locks.Able()
		for _, node := range c.Operator.Nodes(c.Context(), n) {
			all = append(all, append(memberFields(node), locksAt(where, node.Addr)))
		}
		for _, node := range c.Proxy.About().Locks.Nodes() {
			all = append(all, fields{{"name", node.Name}, {"role", "quorum"}, {"state", node.State},
				{"state-ms", node.Since}, {"counts-in-ms", node.Counts}, {"trouble", node.Trouble},
				locksAt(where, node.Name)})
		}
		return all[:min(n, len(all))]
	}
	return counted(c, args, out, nodes, func(f fields) fields { return f })
}

// locksAt is whether locks can be had at a node: ok, why they cannot, or nothing if it keeps none.
func locksAt(where []lock.Ability, node string) field {
	switch err, keeps := lockstore.At(where, node); {
	case err != nil:
		return field{"locks", err.Error()}
	case keeps:
		return field{"locks", "ok"}
	}
	return field{"locks", ""}
}

func memberFields(n NodeFacts) fields {
	state, trouble := "up", ""
	if n.Trouble != nil {
		state, trouble = "down", n.Trouble.Error()
	}
	all := fields{{"name", n.Addr}, {"role", n.Role}, {"state", state}, {"trouble", trouble}}
	if n.ID != "" {
		all = append(all, field{"id", n.ID}, field{"slots", n.Slots})
	}
	return all
}

// operatorsDescribed is LOCKPROXY as COMMAND tells of it, without its subcommands, which LOCKPROXY HELP lists.
func operatorsDescribed() addition {
	return addition{name: operatorCommand, arity: -2, categories: []string{"@slow"},
		doc: described("A container for commands about this proxy", "server")}
}
