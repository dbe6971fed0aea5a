package history

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	figures = flag.String("figures", "", "a file with figures of rounds, as -page wants it")
	page    = flag.String("page", "", "the page that has the figures between two lines: docs/FAULTS.md")
)

// The page has what the rounds' figures say: make faults.
func TestFaultsPage(t *testing.T) {
	if *page == "" {
		t.Skip("no -page")
	}
	modes, err := ReadFigures(*figures)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		t.Fatal(err)
	}
	written, err := between(string(text), "<!-- make faults -->\n", "<!-- until here -->\n", Table(modes))
	if err == nil {
		err = os.WriteFile(*page, []byte(written), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// between is the text with something else between two lines of it.
func between(text, begin, end, what string) (string, error) {
	head, rest, begins := strings.Cut(text, begin)
	_, tail, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", os.ErrNotExist
	}
	return head + begin + what + end + tail, nil
}

// Figures are written a line a round, and summed up by mode.
func TestFigures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.jsonl")
	day := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for i := range uint64(3) {
		f := Figures{Mode: "aof", Commit: "c0ffee", Date: day, Processors: 2, Seed: 7 + i, Rounds: 1, Proxies: 3, Clients: 100, Worked: time.Minute}
		if i == 2 {
			f.Mode, f.Violations = "quorum", 1
		}
		f.Count([]*Op{
			{Verb: "LOCK", Outcome: OK}, {Verb: "LOCK", Outcome: Null}, {Verb: "UNLOCK", Outcome: Failed, Code: "LOCKLOST"}, {Verb: "CLOSE", Outcome: OK}, {Verb: "LOCK", Outcome: Unknown},
		}, []Fault{{Kind: Cut}, {Kind: Cut}, {What: "healed"}})
		f.Calls += 500
		if err := f.Append(path); err != nil {
			t.Fatal(err)
		}
	}
	modes, err := ReadFigures(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `Commit c0ffee, 2026-11-30, 2 processors.

|  | aof | quorum |
|---|--:|--:|
| proxies, clients | 3, 100 | 3, 100 |
| time | 2m0s | 1m0s |
| rounds | 2 | 1 |
| first seed | 7 | 9 |
| calls | 1,008 | 504 |
| grants | 2 | 1 |
| calls without a known outcome | 2 | 1 |
| losses told | 2 | 1 |
| links: cut | 4 | 2 |
| **violations** | **0** | **1** |
`
	if got := Table(modes); got != want {
		t.Errorf("%s", got)
	}
}
