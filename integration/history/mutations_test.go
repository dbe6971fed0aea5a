package history

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A mutation is a classic mistake, made in a copy of the source: the histories must find it. Each is a file in mutations/:
// what it is, the profile that shows it, and one or more replacements of text that stands exactly once in a file.

// withinThis is how long a run may take to find a mistake, building not counted.
const withinThis = time.Minute

type mutation struct {
	name, what, profile string
	edits               []edit
}

type edit struct{ file, old, new string }

// readMutations reads mutations/.
func readMutations(t *testing.T) (all []mutation) {
	files, err := filepath.Glob("mutations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutations: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseMutation(string(text))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		m.name = strings.TrimSuffix(filepath.Base(f), ".txt")
		all = append(all, m)
	}
	return all
}

// parseMutation reads one: "what: …", "profile: …", then for each edit "file: …", <<<<, the old text, ====, the new, >>>>.
func parseMutation(text string) (m mutation, err error) {
	var e edit
	var into *string
	for n, line := range strings.SplitAfter(text, "\n") {
		bare := strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(bare, ": ")
		switch {
		case bare == "<<<<":
			into = &e.old
		case bare == "====" && into == &e.old:
			into = &e.new
		case bare == ">>>>" && into == &e.new:
			e.old, e.new = strings.TrimSuffix(e.old, "\n"), strings.TrimSuffix(e.new, "\n")
			m.edits = append(m.edits, e)
			e, into = edit{file: e.file}, nil
		case into != nil:
			*into += line
		case field == "what":
			m.what = value
		case field == "profile":
			m.profile = value
		case field == "file":
			e.file = value
		case bare != "":
			return m, fmt.Errorf("line %d: %q", n+1, bare)
		}
	}
	if m.what == "" || m.profile == "" || len(m.edits) == 0 || into != nil {
		return m, fmt.Errorf("not whole")
	}
	return m, nil
}

// apply makes the mistake in the tree below root, or, with try, only looks whether it could.
func (m mutation) apply(root string, try bool) error {
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return fmt.Errorf("%s no longer fits: this stands %d times in %s, not once:\n%s", m.name, n, e.file, e.old)
		}
		if !try {
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// Every mutation fits the source as it is.
func TestMutationsFit(t *testing.T) {
	for _, m := range readMutations(t) {
		if err := m.apply("../..", true); err != nil {
			t.Error(err)
		}
	}
}

// Histories find each of the mistakes in mutations/ within a minute: make mutations.
func TestMutations(t *testing.T) {
	if !*mutants {
		t.Skip("run by: make mutations")
	}
	var table strings.Builder
	for _, m := range readMutations(t) {
		if *only != "" && !strings.Contains(","+*only+",", ","+m.name+",") {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			took, oracle, said := m.hunt(t)
			if oracle == "" {
				t.Errorf("not found within %v:\n%s", withinThis, said)
				return
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %.1f s |\n", m.name, m.what, m.profile, oracle, took.Seconds())
		})
	}
	t.Logf("found:\n%s", table.String())
}

// hunt builds the mistake and runs its profile until something is found: by which oracle, "" for none.
func (m mutation) hunt(t *testing.T) (took time.Duration, oracle, said string) {
	tree := t.TempDir()
	if err := copySource("../..", tree); err != nil {
		t.Fatal(err)
	}
	if err := m.apply(tree, false); err != nil {
		t.Fatal(err)
	}
	mutant := filepath.Join(tree, "mutant")
	if err := build(tree, mutant); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), withinThis)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestHistory$", "-test.v", "-lockproxy", mutant, "-profile", m.profile,
		"-duration", withinThis.String(), "-round", "4s", "-seed", fmt.Sprint(max(*seed, 1)), "-out", tree)
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	text, err := cmd.CombinedOutput()
	took = time.Since(began)
	if err == nil || ctx.Err() != nil {
		return took, "", tail(string(text))
	}
	_, found, is := strings.Cut(string(text), "VIOLATION ")
	if !is {
		return took, "", tail(string(text))
	}
	oracle, _, _ = strings.Cut(found, ":")
	line, _, _ := strings.Cut(found, "\n")
	t.Logf("%s: found in %.1f s: %.300s", m.name, took.Seconds(), line)
	return took, oracle, ""
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// copySource copies what go build needs.
func copySource(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch {
			case below != "." && strings.HasPrefix(entry.Name(), "."), below == "integration", below == "docs", below == "bench":
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		}
		switch filepath.Ext(path) {
		case ".go", ".lua", ".mod", ".sum":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), text, 0o644)
	})
}
