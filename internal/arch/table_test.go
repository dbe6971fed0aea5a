package arch

import (
	"fmt"
	"slices"
	"strings"
)

// row is one package of the house. A new package starts here.
type row struct {
	pkg   string // folder below the module's root
	floor int    // imports go to lower floors only
	what  string
	may   []string // our packages it may import
	libs  []string // modules it may import beside the standard library; nil is any
	tree  bool     // the row holds for the folders below, too
}

var stdOnly = []string{}

// table is the house. What integration and bench have stands beside the building, counted as a floor 9: nobody imports it.
var table = []row{
	{pkg: "cmd/lockproxy", floor: 8, what: "flags, wiring, signals, exit code",
		may: []string{"internal/events", "internal/proxies", "internal/loglimit", "internal/logqueue", "internal/retry", "internal/session", "internal/downstream", "commands", "internal/lock", "internal/lockstore", "internal/lockstore/sharded", "internal/lockstore/quorum", "internal/lockstore/tally", "cluster", "upstream/sentinel", "upstream", "proto/resp", "scripts", "internal/telemetry", "internal/config", "internal/display", "internal/tlsfiles", "internal/admin", "internal/page", "internal/inforce", "internal/systemd", "internal/backend", "internal/runlock", "internal/top", "internal/embedded"}},
	{pkg: "internal/session", floor: 7, what: "one client connection: read, order, reply, hang up",
		may: []string{"internal/events", "internal/proxies", "internal/client", "internal/retry", "internal/downstream", "internal/commandtable", "internal/backend", "internal/own", "internal/dedicated", "internal/inforce", "commands", "internal/lock", "cluster", "upstream", "proto/resp", "internal/display", "internal/loglimit", "internal/telemetry"}},
	{pkg: "internal/own", floor: 6, what: "what a client has of connections of its own: when, at which node, and what becomes of them",
		may: []string{"internal/client", "commands", "internal/retry", "internal/downstream", "internal/commandtable", "internal/backend", "internal/dedicated", "internal/fenced", "internal/subscription", "internal/lock", "cluster", "upstream", "proto/resp", "internal/telemetry"}},
	{pkg: "internal/backend", floor: 3, what: "how ordinary commands reach Redis: one, or the nodes of a cluster",
		may: []string{"internal/client", "internal/telemetry", "internal/retry", "internal/commandtable", "internal/downstream", "cluster", "upstream", "proto/resp"}},
	{pkg: "internal/client", floor: 2, what: "one client as all below its session see it: who it is, its replies, its locks",
		may: []string{"internal/retry", "internal/commandtable", "internal/downstream", "upstream", "proto/resp", "internal/telemetry"}, libs: stdOnly},
	{pkg: "internal/fenced", floor: 4, what: "a command that is run if a lock is held, in one atomic step",
		may: []string{"internal/client", "internal/backend", "internal/commandtable", "internal/dedicated", "internal/lock", "internal/lockstore", "upstream", "proto/resp", "internal/telemetry"}},
	{pkg: "internal/subscription", floor: 4, what: "what a client is subscribed to with a cluster upstream",
		may: []string{"internal/client", "internal/retry", "internal/commandtable", "internal/downstream", "internal/backend", "internal/dedicated", "cluster", "upstream", "proto/resp"}},
	{pkg: "internal/dedicated", floor: 3, what: "a connection upstream that a client has to itself: its state, and the relay of its replies",
		may: []string{"internal/client", "internal/commandtable", "internal/downstream", "cluster", "upstream", "proto/resp", "internal/telemetry"}},
	{pkg: "commands", floor: 5, what: "every command that is answered here, as one table: its grammar, its replies",
		may: []string{"internal/events", "internal/client", "internal/downstream", "internal/glob", "internal/inforce", "internal/lock", "internal/lockstore", "internal/proxies", "internal/backend", "internal/dedicated", "internal/commandtable", "cluster", "upstream", "proto/resp", "internal/telemetry"}},
	{pkg: "internal/lock", floor: 3, what: "what a lock is: acquire, wait, hand off, renew, lose, release",
		may: []string{"internal/events", "internal/glob", "internal/agenda", "internal/chain", "internal/retry", "internal/tasks", "internal/lockstore", "internal/jitter", "internal/loglimit", "internal/telemetry"}},
	{pkg: "internal/page", floor: 5, what: "the page for people who run the proxy",
		may: []string{"internal/events", "internal/proxies", "internal/inforce", "internal/lock", "internal/lockstore", "internal/display", "internal/webserver", "internal/telemetry"}, libs: stdOnly},
	{pkg: "internal/proxies", floor: 4, what: "how the proxies before one Redis know of each other",
		may: []string{"internal/events", "internal/retry", "internal/lock", "internal/lockstore", "cluster", "upstream"}, libs: []string{"github.com/redis/rueidis"}},
	{pkg: "internal/lockstore/sharded", floor: 4, what: "each lock on one Redis: the only one, or the master of its slot",
		may: []string{"internal/agenda", "internal/retry", "internal/tasks", "internal/lockstore", "internal/lockstore/node", "cluster", "upstream", "scripts", "internal/jitter", "internal/telemetry"}},
	{pkg: "internal/lockstore/quorum", floor: 4, what: "each lock on several Redis servers, of which a majority decides",
		may: []string{"internal/retry", "internal/lockstore", "internal/lockstore/node", "internal/lockstore/tally", "upstream", "scripts", "internal/jitter"}},
	{pkg: "internal/lockstore/node", floor: 3, what: "one Redis that keeps locks: its clock, its account's rights, the scripts of steps, messages from there",
		may: []string{"internal/retry", "internal/lockstore", "upstream", "scripts", "internal/jitter", "internal/telemetry"}},
	{pkg: "internal/lockstore/tally", floor: 3, what: "what the replies of a quorum come to: no I/O", may: []string{"internal/lockstore", "scripts"}, libs: stdOnly},
	{pkg: "internal/lockstore", floor: 2, what: "what is asked of a store of locks, the kinds of a lock, the keys and channels it has in Redis",
		may: []string{"upstream", "scripts"}, libs: stdOnly},
	{pkg: "internal/inforce", floor: -3, what: "what is shown of the operator's settings, their files and a drain: no password is in it", libs: stdOnly},
	{pkg: "internal/glob", floor: 0, what: "patterns of names, as KEYS and SCAN have them", libs: stdOnly},
	{pkg: "internal/events", floor: 0, what: "what has happened to locks, clients and the process: the latest, and as lines", libs: stdOnly},
	{pkg: "internal/logqueue", floor: 0, what: "lines for a reader who may not read, for whom nobody waits", libs: stdOnly},
	{pkg: "internal/chain", floor: 0, what: "a list in the order in which its members came, who carry their links", libs: stdOnly},
	{pkg: "internal/agenda", floor: 0, what: "things to do at a time of their own, the earliest first", libs: stdOnly},
	{pkg: "internal/socket", floor: 0, what: "reads and writes of sockets that Go's scheduler does not hear of", libs: stdOnly},
	{pkg: "internal/checked", floor: 0, what: "connections whose replies are checked before rueidis reads them", may: []string{"proto/resp"}, libs: stdOnly},
	{pkg: "internal/tasks", floor: 0, what: "goroutines, of which some begin while others are waited for", libs: stdOnly},
	{pkg: "cluster", floor: 2, what: "many nodes: slots, topology, routing, redirects",
		may: []string{"internal/commandtable", "internal/retry", "upstream", "proto/resp", "internal/jitter", "internal/telemetry"}},
	{pkg: "upstream/sentinel", floor: 2, what: "which Redis is the master, as Sentinels name it and it confirms",
		may: []string{"internal/checked", "internal/retry", "upstream", "proto/resp", "internal/telemetry"}},
	{pkg: "upstream", floor: 1, what: "one node: pipe, private connections, handshake; the rueidis clients",
		may: []string{"internal/checked", "internal/retry", "internal/socket", "proto/resp", "internal/jitter", "internal/telemetry"}},
	{pkg: "internal/proxyclient", floor: 2, what: "how lockproxy run and lockproxy top ask a lockproxy", may: []string{"internal/tlsfiles", "upstream", "proto/resp"}, libs: stdOnly},
	{pkg: "internal/runlock", floor: 3, what: "lockproxy run: a command that runs while a lock is held",
		may: []string{"internal/logqueue", "internal/proxyclient", "internal/retry", "upstream", "proto/resp"}, libs: []string{"golang.org/x/sys/unix"}},
	{pkg: "internal/top", floor: 3, what: "lockproxy top: who holds and waits for which lock, as tables",
		may: []string{"internal/proxyclient", "upstream", "proto/resp", "internal/display"}, libs: []string{"golang.org/x/term", "golang.org/x/text/width"}},
	{pkg: "internal/embedded", floor: 2, what: "a Redis in this process, for trying lockproxy out and for tests",
		may: []string{"internal/retry", "proto/resp"}, libs: []string{"github.com/alicebob/miniredis/v2", "github.com/alicebob/miniredis/v2/server"}},
	{pkg: "internal/config", floor: 2, what: "the operator's settings: cmd alone reads them", may: []string{"upstream", "internal/inforce", "internal/tlsfiles"}},
	{pkg: "internal/commandtable", floor: 1, what: "what a command is, and where it goes: our rows, and what Redis' COMMAND tells",
		may: []string{"proto/resp", "internal/telemetry"}, libs: stdOnly},
	{pkg: "internal/downstream", floor: 1, what: "the clients' network: listeners, TLS and PROXY entry, places, the guarded connection and its limits",
		may: []string{"internal/admission", "internal/events", "internal/retry", "internal/socket", "proto/resp", "internal/telemetry"}},
	{pkg: "proto/resp", floor: -1, what: "bytes: guard, frame scanner, encoders",
		libs: []string{"github.com/tidwall/redcon"}},
	{pkg: "scripts", floor: 0, what: "one .lua a file, and the embed", libs: stdOnly},
	{pkg: "internal/retry", floor: -2, what: "the time between two tries", may: []string{"internal/jitter"}, libs: stdOnly},
	{pkg: "internal/webserver", floor: -1, what: "HTTP for operators and their machines, however many say nothing there", may: []string{"internal/admission"}, libs: stdOnly},
	{pkg: "internal/admission", floor: -2, what: "who is let in when all places are taken", libs: stdOnly},
	{pkg: "internal/loglimit", floor: -1, what: "how many lines of the log others can cause", libs: stdOnly},
	{pkg: "internal/jitter", floor: -3, what: "the chance in pauses", libs: stdOnly},
	{pkg: "internal/telemetry", floor: 0, what: "OpenTelemetry instruments: anyone may count", may: []string{"internal/otlp", "internal/webserver"}},
	{pkg: "internal/otlp", floor: -1, what: "spans and figures on their way to an OpenTelemetry collector",
		may: []string{"internal/retry"}},
	{pkg: "internal/display", floor: 0, what: "names, times and numbers as people read them", libs: stdOnly},
	{pkg: "internal/admin", floor: 0, what: "is the process alive, is it ready: the pages that are asked", may: []string{"internal/retry"}, libs: stdOnly},
	{pkg: "internal/systemd", floor: 0, what: "sockets from systemd, and what it is told",
		libs: []string{"github.com/coreos/go-systemd/v22/activation", "github.com/coreos/go-systemd/v22/daemon"}},
	{pkg: "internal/tlsfiles", floor: -2, what: "files that settings name: read with a bound; certificates and passwords are reloaded", may: []string{"internal/inforce"}, libs: stdOnly},

	{pkg: "integration", floor: beside, what: "black-box tests against real servers", tree: true,
		may: []string{"commands", "cluster", "upstream", "proto/resp", "scripts", "internal/history", "internal/testredis", "internal/program"}},
	{pkg: "bench", floor: beside, what: "measurements", tree: true,
		may: []string{"commands", "cluster", "upstream", "proto/resp", "scripts", "internal/program"}},
	{pkg: "deploy", floor: beside, what: "packages, and tests that they fit the program", tree: true, may: []string{"internal/config"}},
	{pkg: "internal/held", floor: 0, what: "for how long mutexes are held, for benchmarks", libs: stdOnly},
	{pkg: "internal/testredis", floor: 0, what: "throw-away Redis servers for tests"},
	{pkg: "internal/program", floor: 0, what: "the servers that tools start: bench, and Redis' own suite", libs: stdOnly},
	{pkg: "internal/history", floor: 0, what: "random users of locks, what they did, and the oracles over it"},
	{pkg: "internal/simulation", floor: beside, what: "the lock engine and Redis in simulated time"},
	{pkg: "internal/simulation/world", floor: beside, what: "Redis servers and wires inside a synctest bubble, for tests", may: []string{"internal/embedded"}},
	{pkg: "internal/arch", floor: 0, what: "this table as a test", libs: stdOnly},
}

const beside = 9

// rowOf finds the row a package stands under.
func rowOf(rows []row, pkg string) (row, bool) {
	i := slices.IndexFunc(rows, func(r row) bool {
		return r.pkg == pkg || r.tree && strings.HasPrefix(pkg, r.pkg+"/")
	})
	if i < 0 {
		return row{}, false
	}
	return rows[i], true
}

// checkTable reports arrows of the table itself that lead nowhere or upwards.
func checkTable(rows []row) (faults []string) {
	for _, r := range rows {
		for _, to := range r.may {
			target, known := rowOf(rows, to)
			switch {
			case !known:
				faults = append(faults, fmt.Sprintf("table: %s may import %s, which has no row", r.pkg, to))
			case target.floor >= r.floor:
				faults = append(faults, fmt.Sprintf("table: %s (floor %d) may import %s (floor %d): not downwards", r.pkg, r.floor, to, target.floor))
			}
		}
	}
	return faults
}
