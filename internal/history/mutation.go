package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutation is a classic mistake in the source, made on purpose: the histories, or the simulation, must find it.
type Mutation struct {
	Name, What string
	Profile    string // of integration/history, that shows it; "": it takes what does not happen there
	Simulation string // profile, or test, of internal/simulation that shows it; "": it is not in what is simulated
	edits      []edit
}

type edit struct{ file, old, new string }

// ReadMutations reads all of a folder, in the order of their names.
func ReadMutations(dir string) (all []Mutation, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no mutations in %s: %w", dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		m, err := parseMutation(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		m.Name = strings.TrimSuffix(filepath.Base(f), ".txt")
		all = append(all, m)
	}
	return all, nil
}

// parseMutation reads one: "what: …", "profile: …", "simulation: …", then for each edit "file: …", <<<<, the old text, ====, the new, >>>>.
func parseMutation(text string) (m Mutation, err error) {
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
			m.What = value
		case field == "profile":
			m.Profile = value
		case field == "simulation":
			m.Simulation = value
		case field == "file":
			e.file = value
		case bare != "":
			return m, fmt.Errorf("line %d: %q", n+1, bare)
		}
	}
	if m.What == "" || m.Profile+m.Simulation == "" || len(m.edits) == 0 || into != nil {
		return m, fmt.Errorf("not whole")
	}
	return m, nil
}

// Overlay writes the changed files into dir, and beside them what go build's -overlay wants, whose name it returns. root is the tree.
func (m Mutation) Overlay(root, dir string) (overlay string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return "", err
	}
	changed := map[string]string{}
	for i, e := range m.edits {
		path := filepath.Join(root, e.file)
		source := path
		if changed[path] != "" {
			source = changed[path]
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return "", fmt.Errorf("%s no longer fits: this stands %d times in %s, not once:\n%s", m.Name, n, e.file, e.old)
		}
		changed[path] = filepath.Join(dir, fmt.Sprint(i, filepath.Ext(path)))
		if err := os.WriteFile(changed[path], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}
