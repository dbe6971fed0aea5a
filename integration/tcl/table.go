package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// key names a run in the page: the same run replaces its former table.
func (b *environment) key() string {
	key := fmt.Sprintf("%s, RESP%d", b.suite.name, b.s.resp)
	if b.s.nodes > 0 {
		key += fmt.Sprintf(", a cluster of %d", b.s.nodes)
	}
	return key
}

// table is the page's section about this run, free of dates and times.
func (b *environment) table(v *verdict) string {
	var t strings.Builder
	fmt.Fprintf(&t, "## Suite of %s\n\n", b.key())
	fmt.Fprintf(&t, "Served by %s.", b.suite.serves)
	if !slices.Equal(b.s.deny, denied) {
		fmt.Fprintf(&t, " Tags denied: %s.", strings.Join(b.s.deny, ", "))
	}
	t.WriteString("\n\n")
	if b.s.nodes > 0 {
		fmt.Fprintf(&t, "Behind lockproxy, with `--present standalone`, are %d masters; straight is one server. Both are run with the suite's "+
			"`--cluster-mode`, which leaves out the tests it calls unfit for a cluster.\n\n", b.s.nodes)
	}
	fmt.Fprintf(&t, "**%d of %d** tests that pass straight pass through lockproxy; %d do not. "+
		"%d more are not for external servers, or denied.\n\n", v.passed, v.direct, v.direct-v.passed, v.ignored)
	if b.s.nodes > 0 {
		fmt.Fprintf(&t, "Of those %d, %d want keys of several slots where a cluster has one; of the %d others **%s** pass.\n\n",
			v.direct-v.passed, v.spread, v.direct-v.spread, v.share())
	}
	leftOut(&t, v)
	return t.String()
}

func (r *result) misses() []miss { return append(append([]miss{}, r.excused...), r.missed...) }

// leftOut names the units that are not run as a whole, and why.
func leftOut(t *strings.Builder, v *verdict) {
	for _, r := range v.results {
		if r.whole != nil {
			fmt.Fprintf(t, "%s is not run: it %s.\n", r.unit, r.whole.reason)
		}
	}
}

// unitRows are how many tests of each unit pass, for the list beside the page.
func unitRows(key string, v *verdict) (rows [][]string) {
	for _, r := range v.results {
		if r.proxy != nil && r.direct.passes() > 0 {
			rows = append(rows, []string{key, r.unit, strconv.Itoa(r.direct.passes()), strconv.Itoa(r.passed)})
		}
	}
	return rows
}

// missRows are the tests that do not pass, likewise.
func missRows(key string, v *verdict) (rows [][]string) {
	for _, r := range v.results {
		for _, m := range r.misses() {
			reason := "unexplained"
			if m.skip != nil {
				reason = m.skip.reason
			}
			rows = append(rows, []string{key, r.unit, m.name, reason})
		}
	}
	return rows
}

const pageHead = `<!-- Written by: make tcl ARGS="-write docs/SUITES.md" -->

# Redis' own test suites, through lockproxy

What the suites say of lockproxy as an external server: each unit on a fresh server behind a fresh lockproxy, every
command through lockproxy. [integration/tcl](../integration/tcl/README.md) says how it is done.
[units.csv](suites/units.csv) has how many tests of each unit pass,
[not-passing.csv](suites/not-passing.csv) each test that does not. The tags that ` + "`make tcl ARGS=-h`" + ` names are
denied, unless a section says otherwise.
`

// write replaces what the page and the lists beside it say about this run, or adds it.
func (b *environment) write(v *verdict) error {
	page, key := b.s.write, b.key()
	folder := strings.ToLower(strings.TrimSuffix(filepath.Base(page), filepath.Ext(page)))
	folder = filepath.Join(filepath.Dir(page), folder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	units, misses := filepath.Join(folder, "units.csv"), filepath.Join(folder, "not-passing.csv")
	return errors.Join(
		writeTable(page, key, b.table(v)),
		writeList(units, key, []string{"suite", "unit", "straight", "through lockproxy"}, unitRows(key, v)),
		writeList(misses, key, []string{"suite", "unit", "test", "why"}, missRows(key, v)))
}

// writeTable replaces the section of that key in the page, or adds it.
func writeTable(file, key, section string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	page, err := replaceSection(string(old), key, section)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(page), 0o644)
}

// writeList replaces the rows that begin with that key, or adds them at the end.
func writeList(file, key string, head []string, rows [][]string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := replaceRows(string(old), key, head, rows)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func replaceRows(list, key string, head []string, rows [][]string) (string, error) {
	all, err := csv.NewReader(strings.NewReader(list)).ReadAll()
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		all = [][]string{head}
	}
	isOld := func(row []string) bool { return row[0] == key }
	at := slices.IndexFunc(all, isOld)
	if all = slices.DeleteFunc(all, isOld); at < 0 {
		at = len(all)
	}
	var text strings.Builder
	out := csv.NewWriter(&text)
	if err := out.WriteAll(slices.Insert(all, at, rows...)); err != nil {
		return "", err
	}
	return text.String(), nil
}

func replaceSection(page, key, section string) (string, error) {
	if page == "" {
		page = pageHead
	}
	from, to := "<!-- tcl: "+key+" -->\n", "<!-- end: "+key+" -->\n"
	section = from + section + to
	start := strings.Index(page, from)
	if start < 0 {
		return page + "\n" + section, nil
	}
	end := strings.Index(page[start:], to)
	if end < 0 {
		return "", fmt.Errorf("the page has no %q", strings.TrimSpace(to))
	}
	return page[:start] + section + page[start+end+len(to):], nil
}
