package stable

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

var update = flag.Bool("update", false, "rewrite docs/stable")

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const head = "# Written by: go test ./integration/stable -update. It is a promise of 1.x: docs/VERSIONING.md.\n"

// hold compares a list of what there is with the one in docs/stable.
func hold(t *testing.T, name string, now []string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "stable", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(head+strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, fault := range changes(strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(text), head), "\n"), "\n"), now) {
		t.Errorf("docs/stable/%s.txt: %s", name, fault)
	}
}

// changes says how a list is another than the promised one.
func changes(promised, now []string) (faults []string) {
	for _, line := range promised {
		if !slices.Contains(now, line) {
			faults = append(faults, "this is a promise of 1.x, which only a major version may take back (docs/VERSIONING.md), and it is no longer so:\n\t"+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(promised, line) {
			faults = append(faults, "this would become a promise of 1.x (docs/VERSIONING.md); go test ./integration/stable -update makes it one:\n\t"+line)
		}
	}
	if len(faults) == 0 && !slices.Equal(promised, now) {
		faults = append(faults, "this is a promise of 1.x (docs/VERSIONING.md), and its order has changed: go test ./integration/stable -update")
	}
	return faults
}

// A line that has gone, one that is new, and another order are each seen.
func TestChangesAreSeen(t *testing.T) {
	for now, want := range map[string]int{"a b c": 0, "a c": 1, "a b c d": 1, "a x c": 2, "c b a": 1, "": 3} {
		if got := changes([]string{"a", "b", "c"}, strings.Fields(now)); len(got) != want {
			t.Errorf("%q: %q", now, got)
		}
	}
}

// docs/VERSIONING.md names each list, and no test has left one behind.
func TestListsAreNamed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "VERSIONING.md"))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := filepath.Glob(filepath.Join("..", "..", "docs", "stable", "*"))
	if err != nil || len(lists) != strings.Count(string(page), "(stable/") {
		t.Errorf("%v: the lists are %s", err, lists)
	}
	for _, list := range lists {
		if !strings.Contains(string(page), "(stable/"+filepath.Base(list)+")") {
			t.Errorf("%s is not named", list)
		}
	}
}
