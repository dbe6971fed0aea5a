package commandtable

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the list in docs/CLUSTER.md")

// The list in docs/CLUSTER.md is that of the table.
func TestClusterPage(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../docs/CLUSTER.md", "<!-- go test ./internal/commandtable -update -->\n", "<!-- until here -->\n"
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(have), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatal("the page has no such list")
	}
	list := begin + "\n| call | before a cluster |\n|---|---|\n"
	titles := map[string][]string{} // of the commands that have the same note
	for _, name := range slices.Sorted(maps.Keys(clustered)) {
		note := clustered[name].Note
		titles[note] = append(titles[note], "`"+(&Command{Name: name}).Title()+"`")
	}
	for _, note := range slices.Sorted(maps.Keys(titles)) {
		list += "| " + strings.Join(titles[note], ", ") + " | " + note + " |\n"
	}
	for _, c := range clusteredCalls {
		code, _, _ := strings.Cut(c.line, " ")
		list += "| " + c.call + " | `-" + code + " …` |\n"
	}
	want := before + list + "\n" + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(have) != want {
		t.Errorf("%s is stale: go test ./internal/commandtable -update", page)
	}
}

// Each row says how, and what it refuses with which words.
func TestClusteredRows(t *testing.T) {
	t.Parallel()
	for name, row := range clustered {
		refuses := row.How == ClusteredRefused || row.How == ClusteredSent
		if row.Note == "" || refuses != (row.Line != "" || row.Barred) {
			t.Errorf("%s: %+v", name, row)
		}
	}
}
