package dropin

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

var update = flag.Bool("update", false, "rewrite the embedded store's list of commands")

const embeddedCommands = "../../internal/embedded/commands.resp"

// noSuchCommand is what the embedded store answers where it has no such command, or no such subcommand.
var noSuchCommand = regexp.MustCompile("^-ERR unknown (command|subcommand) ['`]|' not supported\r\n$")

// asked is how a client calls a command without arguments.
func asked(t *testing.T, addr, name string) string {
	t.Helper()
	w := harness.Dial(t, addr)
	defer w.Close()
	return w.Do(strings.Split(name, "|")...)
}

// COMMAND LIST of the embedded store has the commands and subcommands that are answered before it, and no others of
// Redis'.
func TestDropinEmbeddedCommands(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, "")
	redis := testredis.Start(t)
	direct := harness.Dial3(t, redis.Addr())
	listed := words(t, harness.Dial(t, p.Addr()).Do("COMMAND", "LIST"))
	all := words(t, direct.Do("COMMAND", "LIST"))
	has := map[string]bool{}
	for _, name := range slices.Concat(all, listed) {
		has[name] = !noSuchCommand.MatchString(asked(t, p.Addr(), name))
	}
	page := whatIsMissing(all, listed, has)
	if *update {
		writeEmbedded(t, direct, has)
	}
	if strings.Contains(direct.Do("INFO", "server"), "redis_version:7.0.") {
		holdTesting(t, page)
	}
	if *update {
		return
	}
	for name, answered := range has {
		if is := slices.Contains(listed, name); answered != is {
			t.Errorf("%s: it is answered: %v; it is listed: %v (go test ./integration/dropin -run EmbeddedCommands -update)",
				name, answered, is)
		}
	}
	if n := len(listed); n < 250 || len(all) < 300 {
		t.Errorf("%d commands of Redis' %d are listed", n, len(all))
	}
}

const (
	testingPage = "../../docs/TESTING.md"
	writtenFrom = "<!-- Written by: go test ./integration/dropin -run EmbeddedCommands -update -->\n"
	writtenTo   = "<!-- until here -->"
)

// holdTesting holds docs/TESTING.md to what is missing, or writes it there.
func holdTesting(t *testing.T, missing string) {
	t.Helper()
	page, err := os.ReadFile(testingPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), writtenFrom)
	have, after, ends := strings.Cut(rest, writtenTo)
	switch {
	case !found || !ends:
		t.Fatalf("%s has no place for what is missing", testingPage)
	case have == missing:
	case !*update:
		t.Errorf("%s is stale: go test ./integration/dropin -run EmbeddedCommands -update", testingPage)
	default:
		page = []byte(before + writtenFrom + missing + writtenTo + after)
		if err := os.WriteFile(testingPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// whatIsMissing says which of Redis' commands are not answered, and which others are.
func whatIsMissing(all, listed []string, has map[string]bool) string {
	var commands, newer []string
	top := 0
	for _, name := range all {
		if strings.Contains(name, "|") {
			continue // COMMAND LIST has the subcommands
		}
		top++
		if !has[name] {
			commands = append(commands, title(name))
		}
	}
	for _, name := range listed {
		parent, _, _ := strings.Cut(name, "|")
		if !slices.Contains(all, name) && !slices.Contains(verbs, parent) {
			newer = append(newer, title(name))
		}
	}
	line := func(names []string) string {
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("- Of Redis 7.0's %d commands it lacks %d: %s.\n- Of newer commands it has %s.\n",
		top, len(commands), line(commands), line(newer))
}

func title(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "|", " ")) }

func words(t *testing.T, reply string) (all []string) {
	t.Helper()
	list, ok := harness.Decode(t, reply).([]any)
	if !ok {
		t.Fatalf("no list: %q", reply)
	}
	for _, word := range list {
		all = append(all, word.(string))
	}
	return all
}

// writeEmbedded writes what Redis says of the commands that are answered. Of a command that this Redis has not, what
// the file says is kept.
func writeEmbedded(t *testing.T, direct *harness.Wire, has map[string]bool) {
	t.Helper()
	have, err := os.ReadFile(embeddedCommands)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string][]byte{}
	for left := have; len(left) > 0; {
		var one []byte
		one, left = resp.Cut(left)
		r, _ := resp.ParseReply(one)
		entries[string(r.Elems[0].Text)] = one
	}
	told, ok := resp.ParseReply([]byte(direct.Do("COMMAND")))
	if !ok {
		t.Fatal("COMMAND of Redis is not understood")
	}
	for _, entry := range told.Elems {
		entries[string(entry.Elems[0].Text)] = answeredOf(entry, has)
	}
	var names []string
	for name := range entries {
		if has[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var file bytes.Buffer
	for _, name := range names {
		file.Write(entries[name])
	}
	if err := os.WriteFile(embeddedCommands, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// answeredOf is an entry of COMMAND without the subcommands that are not answered.
func answeredOf(entry resp.Reply, has map[string]bool) []byte {
	last := len(entry.Elems) - 1
	var subs [][]byte
	for _, sub := range entry.Elems[last].Elems {
		if has[string(sub.Elems[0].Text)] {
			subs = append(subs, sub.Raw)
		}
	}
	slices.SortFunc(subs, bytes.Compare)
	out := resp.AppendArray(nil, len(entry.Elems))
	for _, e := range entry.Elems[:last] {
		out = append(out, e.Raw...)
	}
	return append(resp.AppendArray(out, len(subs)), bytes.Join(subs, nil)...)
}
