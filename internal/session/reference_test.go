package session

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

var update = flag.Bool("update", false, "rewrite docs/COMMANDS.md")

const referencePage = "../../docs/COMMANDS.md"

const referenceHead = `# Commands

<!-- Written by: go test ./internal/session -update -->

Every command that Redis %s lists, and what newer ones and Redis' kin have if the proxy knows of it. A command that is not
here, of a module or of a newer Redis, is forwarded; the proxy asks Redis with COMMAND what it is.

* **shared**: forwarded as it came, on the connection that clients of the same user, database and protocol share. Redis'
  answer, to the byte. A client with big requests or replies gets one of its own for them.
* **own**: forwarded as it came, on a connection of the client's own. The client keeps it for as long as it has a state
  there, and what is "shared" goes there, too.
* **scripts**: forwarded as it came, on connections that serve scripts only.
* **here**: answered by this proxy. The note says how that differs from Redis.
* **refused**: an error. ` + "`--deny`" + ` adds to these, ` + "`--allow`" + ` takes away what says so.
* **lock**: a lock verb, see the README.

Redis' ACL decides about all of them: what is answered here asks Redis first whether the user may, but for SELECT, RESET,
QUIT, CLUSTER, READONLY, READWRITE and ASKING. Within a transaction whatever Redis knows is queued there, and answered by it;
the others are errors that abort the transaction.

`

// TestReference holds docs/COMMANDS.md to the table, with the commands a real Redis lists.
func TestReference(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	list, err := p.srv.askAs(p.srv.o.Service, "COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	learned := learnCommands(list)
	version := versionOf(t, server)
	page := fmt.Sprintf(referenceHead, version) + referenceTable(newTable(nil, nil, learned), newTable([]string{"monitor", "debug"}, nil, learned))
	if *update {
		if err := os.WriteFile(referencePage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if version != "7.0.15" && !*update {
		t.Skip("the page is of Redis 7.0.15, here is " + version)
	}
	if have, err := os.ReadFile(referencePage); err != nil || string(have) != page {
		t.Errorf("%s is stale: go test ./internal/session -update (%v)", referencePage, err)
	}
}

func versionOf(t *testing.T, server *testredis.Server) string {
	t.Helper()
	info, err := redis.String(server.Do(t, "INFO", "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}

// referenceTable has a row for every command of tab; allowed is the table with all that can be allowed.
func referenceTable(tab, allowed *table) string {
	var rows []string
	row := func(c, full *command) {
		where, note := whereItGoes(c), noteOf(c)
		if where == "refused" && !full.refusal {
			note += " `--allow " + c.name + "`: on a connection of the client's own."
		}
		name := strings.ToUpper(strings.ReplaceAll(c.name, "|", " "))
		rows = append(rows, "| "+name+" | "+where+" | "+note+" |\n")
	}
	for name, c := range tab.commands {
		row(c, allowed.commands[name])
		for sub, s := range c.subs {
			row(s, allowed.commands[name].subs[sub])
		}
	}
	slices.SortFunc(rows, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, " |", "\x00"), strings.ReplaceAll(b, " |", "\x00"))
	})
	return "| Command | Goes | What there is to know |\n|---|---|---|\n" + strings.Join(rows, "")
}

func whereItGoes(c *command) string {
	switch {
	case c.refusal:
		return "refused"
	case commands.Lookup([]byte(c.name)) != nil:
		return "lock"
	case c.run != nil:
		return "here"
	case c.script.runs():
		return "scripts"
	case c.pin != pinNone:
		return "own"
	}
	return "shared"
}

// noteOf is the note of c; of learned ones, which have none, the remark on it, or that on all of CLUSTER.
func noteOf(c *command) string {
	switch {
	case c.note != "":
		return c.note
	case strings.HasPrefix(c.name, "cluster|"):
		return nodeOnly
	}
	return remarks[c.name]
}

// Nobody adds a row without saying why.
func TestRowsHaveNotes(t *testing.T) {
	seen := make(map[string]bool)
	for _, rows := range [][]command{stateful, optional, refused, answered, passed, scripted} {
		for _, c := range rows {
			if !strings.HasSuffix(c.note, ".") || strings.Contains(c.note, "|") {
				t.Errorf("%s: its note is %q, it wants a sentence", c.name, c.note)
			}
			if seen[c.name] || c.name != strings.ToLower(c.name) {
				t.Errorf("%s: a second row, or not in lower case", c.name)
			}
			seen[c.name] = true
		}
	}
	for name := range remarks {
		if seen[name] {
			t.Errorf("%s: a remark on a command that has a row", name)
		}
	}
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	for name, c := range p.srv.table.Load().commands {
		for _, c := range append(values(c.subs), c) {
			if whereItGoes(c) != "shared" && noteOf(c) == "" {
				t.Errorf("%s (%s) is not forwarded like others, and no note says why", c.name, name)
			}
		}
	}
}

func values(m map[string]*command) (all []*command) {
	for _, c := range m {
		all = append(all, c)
	}
	return all
}
