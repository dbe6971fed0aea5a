package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	fmt.Fprintf(&t, "Served by %s. Tags denied: %s.\n\n", b.suite.serves, strings.Join(b.s.deny, ", "))
	if b.s.nodes > 0 {
		fmt.Fprintf(&t, "Behind lockproxy, which is one Redis to its clients (`--present standalone`), are %d masters with the slots dealt out evenly; "+
			"straight is one server. Both are run with the suite's `--cluster-mode`, which leaves out the tests it calls unfit for a cluster.\n\n", b.s.nodes)
	}
	fmt.Fprintf(&t, "**%d of %d** tests that pass straight pass through lockproxy; %d do not, each with its reason below. "+
		"%d more are not for external servers, or denied.\n\n", v.passed, v.direct, v.direct-v.passed, v.ignored)
	if b.s.nodes > 0 {
		fmt.Fprintf(&t, "Of those %d, %d want keys of several slots where a cluster has one (marked *slots*); of the %d others **%s** pass.\n\n",
			v.direct-v.passed, v.spread, v.direct-v.spread, v.share())
	}
	t.WriteString("| Unit | Straight | Through lockproxy | Not passing |\n|---|---:|---:|---:|\n")
	for _, r := range v.results {
		if r.proxy != nil && r.direct.passes() > 0 {
			fmt.Fprintf(&t, "| %s | %d | %d | %d |\n", r.unit, r.direct.passes(), r.passed, r.direct.passes()-r.passed)
		}
	}
	fmt.Fprintf(&t, "| all | %d | %d | %d |\n", v.direct, v.passed, v.direct-v.passed)
	b.tableMisses(&t, v)
	return t.String()
}

func (b *environment) tableMisses(t *strings.Builder, v *verdict) {
	var misses, whole []string
	for _, r := range v.results {
		if r.whole != nil {
			whole = append(whole, fmt.Sprintf("| %s | %s |\n", r.unit, cell(r.whole.reason)))
			continue
		}
		for _, m := range append(append([]miss{}, r.excused...), r.missed...) {
			reason := "**unexplained**"
			if m.skip != nil {
				reason = cell(m.skip.reason)
				if m.skip.slots {
					reason = "*slots* " + reason
				}
			}
			misses = append(misses, fmt.Sprintf("| %s | %s | %s |\n", r.unit, cell(m.name), reason))
		}
	}
	if len(misses) > 0 {
		t.WriteString("\n| Unit | Test that does not pass | Why |\n|---|---|---|\n" + strings.Join(misses, ""))
	}
	if len(whole) > 0 {
		t.WriteString("\n| Unit that is not run | Why |\n|---|---|\n" + strings.Join(whole, ""))
	}
}

// cell makes text safe for a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "\n", " ").Replace(text)
}

const pageHead = `# Compatibility

What Redis' own test suite says of lockproxy as an external server: one unit at a time, each on a fresh server behind a
fresh lockproxy, every command of the suite through lockproxy. Written by ` + "`make tcl ARGS=\"-write docs/COMPATIBILITY.md\"`" + `;
integration/tcl/README.md says how it is done.
`

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
