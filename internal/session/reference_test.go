package session

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

var update = flag.Bool("update", false, "rewrite docs/COMMANDS.md")

const referencePage = "../../docs/COMMANDS.md"

const referenceHead = `# Commands

<!-- Written by: go test ./internal/session -update, with each of these servers as TESTREDIS_SERVER -->

Every command that Redis 7.0.15, Redis 8.2.3 or Valkey 8.1.8 lists, and those of Redis' other relatives that the proxy knows. A command that
is not here, of a module or of a newer Redis, is forwarded; the proxy asks Redis with COMMAND what it is. While Redis does not say
it, the command is refused. What Redis does not have goes over a connection of the client's own, and Redis says so.

* **shared**: forwarded as it came, on the connection that clients of the same user, database and protocol share. The
  answer is Redis' own, to the byte. A client with large requests or replies gets a connection of its own for them.
* **own**: forwarded as it came, on a connection that this client has to itself. The client keeps it as long as it has a
  state there (a transaction, a subscription …), and meanwhile its "shared" commands go there as well.
* **scripts**: forwarded as it came, on connections that serve scripts only.
* **here**: answered by this proxy. The note says how that differs from Redis.
* **refused**: an error. ` + "`--deny`" + ` adds to these, ` + "`--allow`" + ` allows those that say so.
* **lock**: a lock verb, see [VERBS.md](VERBS.md).

Redis' ACL decides about all of them. Before the proxy answers a command here, it asks Redis whether the user may run it,
except for SELECT, RESET, QUIT, CLUSTER, READONLY, READWRITE, ASKING and LOCKPROXY. Within a transaction, commands that Redis knows are
queued there and answered by Redis; all others are errors that abort the transaction.

With a Redis Cluster upstream ([CLUSTER.md](CLUSTER.md)), commands go by their keys to the node of the slot, or are split, or go
to all nodes, as Redis' own command tips say. Commands without keys and without such a tip go to any one master, and tell
about that one. "own" is then a connection to the node of the slot. CLIENT TRACKING, MONITOR and SHUTDOWN are refused. FENCED
runs commands whose keys are in the lock's slot, or that have none. WAIT and WAITAOF ask all masters, PUBSUB all nodes.

`

// TestReference holds docs/COMMANDS.md to the table, with the commands a real Redis lists.
func TestReference(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	list, err := p.srv.askAs(p.srv.o.Service, "COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	learned := commandtable.Listed(list)
	have, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	rows := referenceRows(commandtable.New(nil, nil, commands.Rows(), learned), commandtable.New([]string{"monitor", "debug"}, nil, commands.Rows(), learned))
	page := referenceHead + referenceTable(append(rows, ofOthers(string(have), rows)...))
	if *update {
		if err := os.WriteFile(referencePage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if version := versionOf(t, server); !strings.Contains(referenceHead, version) {
		t.Skip("the page is of other servers than " + version)
	}
	if string(have) != page {
		t.Errorf("%s is stale: go test ./internal/session -update", referencePage)
	}
}

// ofOthers are those rows of the page that only another server's commands have: nothing but a server's list brings a row about a command that is
// shared, or about a subcommand of CLUSTER.
func ofOthers(page string, rows []string) (others []string) {
	here := make(map[string]bool)
	for _, row := range rows {
		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		here[name] = true
	}
	for line := range strings.Lines(page) {
		name, rest, is := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		listed := strings.HasPrefix(rest, "shared |") || strings.HasPrefix(name, "CLUSTER ")
		if is && !here[name] && listed {
			others = append(others, line)
		}
	}
	return others
}

func versionOf(t *testing.T, server *testredis.Server) string {
	t.Helper()
	info, err := redis.String(server.Do(t, "INFO", "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, isValkey := strings.Cut(info, "valkey_version:")
	if !isValkey {
		_, rest, _ = strings.Cut(info, "redis_version:")
	}
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}

// referenceRows are a row for every command of tab; allowed is the table with all that can be allowed.
func referenceRows(tab, allowed *commandtable.Table) (rows []string) {
	row := func(c, full *commandtable.Command) {
		where, note := whereItGoes(c), c.About()
		if where == "refused" && !full.Refusal {
			note += " `--allow " + c.Name + "`: on a connection of the client's own."
		}
		name := strings.ToUpper(strings.ReplaceAll(c.Name, "|", " "))
		rows = append(rows, "| "+name+" | "+where+" | "+note+" |\n")
	}
	full := make(map[string]*commandtable.Command)
	allowed.All(func(c *commandtable.Command) { full[c.Name] = c })
	tab.All(func(c *commandtable.Command) { row(c, full[c.Name]) })
	return rows
}

func referenceTable(rows []string) string {
	slices.SortFunc(rows, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, " |", "\x00"), strings.ReplaceAll(b, " |", "\x00"))
	})
	return "| Command | Goes | What there is to know |\n|---|---|---|\n" + strings.Join(rows, "")
}

func whereItGoes(c *commandtable.Command) string {
	switch {
	case c.Refusal:
		return "refused"
	case commands.Lookup([]byte(c.Name)) != nil:
		return "lock"
	case c.Here:
		return "here"
	case c.Script.Runs():
		return "scripts"
	case c.Conn != commandtable.ConnNone, c.Echoes:
		return "own"
	}
	return "shared"
}

// Whatever is not forwarded like others has a note, and whatever is answered here has somebody to answer it.
func TestNotesAndAnswerers(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	p.srv.facts.table.Load().All(func(c *commandtable.Command) {
		where := whereItGoes(c)
		if where != "shared" && c.About() == "" {
			t.Errorf("%s is not forwarded like others, and no note says why", c.Name)
		}
		if c.Here && commands.AnswerOf(c) == nil {
			t.Errorf("%s is answered here, but by nobody", c.Name)
		}
	})
}
