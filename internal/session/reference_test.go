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

const referenceHead = `<!-- Written by: go test ./internal/session -update, with each of these servers as TESTREDIS_SERVER -->

# Commands

What becomes of each command that Redis 7.0.15, Redis 8.2.3 or Valkey 8.1.8 lists;
[COMPATIBILITY.md](COMPATIBILITY.md) has what else is different. A subcommand that the table does not name goes where its command goes;
any other command that it does not name is shared, and there is nothing to know about it. A command of a module or of a
newer Redis is forwarded as Redis' COMMAND describes it, and refused while Redis does not answer that. What Redis does not
have goes over a connection of the client's own, and Redis says so.

| Goes | Meaning |
|---|---|
| shared | Forwarded as it came, on the connection that clients of one user, database and protocol share. Large requests and replies get a connection of the client's own. |
| own | Forwarded as it came, on a connection of the client's own. The client keeps that one while it has a state there, and all its commands go there meanwhile. |
| scripts | Forwarded as it came, on a connection beside the shared one, with what is sent together with it. |
| here | Answered by this proxy. |
| refused | An error. ` + "`--deny`" + ` adds to these, ` + "`--allow`" + ` allows those that say so. |
| lock | A lock verb. |

Redis' ACL decides about all of them. The proxy asks Redis before it answers a command here, except for SELECT, RESET,
QUIT, CLUSTER, READONLY, READWRITE, ASKING and LOCKPROXY. In a transaction, commands that Redis knows are queued there;
all others are errors that abort it. [CLUSTER.md](CLUSTER.md) says to which node of a cluster a command goes.

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
	known := commandtable.New(nil, nil, commands.Rows(), learned)
	rows := referenceRows(known, commandtable.New([]string{"monitor", "debug"}, nil, commands.Rows(), learned))
	page := referenceHead + referenceText(append(rows, ofOthers(string(have), rows)...))
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

// referenceRow says what becomes of one command.
type referenceRow struct{ name, where, note string }

// ofOthers are those commands of the page that only other servers have: nothing but a server's list brings a command
// that is shared, or a subcommand of CLUSTER.
func ofOthers(page string, rows []referenceRow) (others []referenceRow) {
	here := make(map[string]bool)
	for _, r := range rows {
		here[r.name] = true
	}
	add := func(names, where, note string) {
		for name := range strings.SplitSeq(names, ", ") {
			listed := where == "shared" || strings.HasPrefix(name, "CLUSTER ")
			if listed && !here[name] {
				others = append(others, referenceRow{name, where, note})
			}
		}
	}
	for line := range strings.Lines(page) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 3 {
			add(cells[0], cells[1], cells[2])
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
func referenceRows(tab, allowed *commandtable.Table) (rows []referenceRow) {
	row := func(c, full *commandtable.Command) {
		where, note := whereItGoes(c), c.About()
		switch {
		case where == "lock":
			note = "See [VERBS.md](VERBS.md)."
		case strings.HasPrefix(c.Name, "lockproxy"):
			note = "See [OPERATIONS.md](OPERATIONS.md#at-redis-cli)."
		case where == "refused" && !full.Refusal:
			note += " `--allow " + c.Name + "`: on a connection of the client's own."
		}
		rows = append(rows, referenceRow{strings.ToUpper(strings.ReplaceAll(c.Name, "|", " ")), where, note})
	}
	full := make(map[string]*commandtable.Command)
	allowed.All(func(c *commandtable.Command) { full[c.Name] = c })
	tab.All(func(c *commandtable.Command) { row(c, full[c.Name]) })
	return rows
}

// toTell are the rows without the shared commands of which there is nothing to say, and without the subcommands of which
// there is nothing to say beside what is said of their commands.
func toTell(rows []referenceRow) (rest []referenceRow) {
	all := make(map[string]referenceRow)
	for _, r := range rows {
		all[r.name] = r
	}
	for _, r := range rows {
		name, _, isSub := strings.Cut(r.name, " ")
		of, found := all[name]
		switch {
		case isSub && found && of.where == r.where && (r.note == "" || r.note == of.note):
		case !isSub && r.where == "shared" && r.note == "":
		default:
			rest = append(rest, r)
		}
	}
	return rest
}

// referenceText has one row for all commands of which the same is to be said.
func referenceText(rows []referenceRow) string {
	slices.SortFunc(rows, func(a, b referenceRow) int { return strings.Compare(a.name, b.name) })
	var order []referenceRow // without their names
	names := make(map[referenceRow][]string)
	for _, r := range toTell(rows) {
		same := referenceRow{where: r.where, note: r.note}
		if names[same] == nil {
			order = append(order, same)
		}
		names[same] = append(names[same], r.name)
	}
	text := "| Commands | Goes | What there is to know |\n|---|---|---|\n"
	for _, r := range order {
		text += "| " + strings.Join(names[r], ", ") + " | " + r.where + " | " + r.note + " |\n"
	}
	return text
}

func whereItGoes(c *commandtable.Command) string {
	switch {
	case c.Refusal:
		return "refused"
	case commands.Lookup([]byte(c.Name)) != nil:
		return "lock"
	case c.Here:
		return "here"
	case c.Script:
		return "scripts"
	case c.Conn != commandtable.ConnNone, c.Echoes, c.Thread && c.Note != "":
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
