package redisson

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is written: the document, and the times of single wake-ups.
const (
	document = "../../docs/REDISSON-TESTS.md"
	times    = "../../docs/redisson/times.csv"
)

// write rewrites the document and the times with a new part about this place. The others stay as they were.
func (r *results) write(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(document)
	must(t, err, "reading the document")
	text := heading
	for _, p := range places {
		part := r.text()
		if p.name != r.where {
			_, part, _ = strings.Cut(string(old), begins(p.name))
			part, _, _ = strings.Cut(part, ends(p.name))
		}
		text += "\n" + begins(p.name) + part + ends(p.name)
	}
	must(t, os.WriteFile(document, []byte(text), 0o644), "writing the document")
	measured, err := os.ReadFile(times)
	must(t, err, "reading the times")
	must(t, os.WriteFile(times, []byte(withTimes(string(measured), r.where, r.took())), 0o644), "writing the times")
}

func begins(where string) string { return "<!-- " + where + " -->\n" }
func ends(where string) string   { return "<!-- end of " + where + " -->\n" }

// took are the lines of a place's wake-ups.
func (r *results) took() (lines []string) {
	for _, e := range r.envs {
		for _, what := range slices.Sorted(maps.Keys(e.wakes.what)) {
			lines = append(lines, timesLine(r.where, what, e.version, summary(e.wakes.what[what])))
		}
	}
	return lines
}

func timesLine(where, what, version string, s spread) string {
	median, most := s.median.Seconds()*1000, s.most.Seconds()*1000
	return fmt.Sprintf("%s,%q,%s,%.1f,%.1f,%d\n", where, what, version, median, most, s.n)
}

// withTimes is the file with other lines about one place.
func withTimes(old, where string, lines []string) string {
	text := "place,what,Redisson,median ms,longest ms,how many\n"
	for _, p := range places {
		if p.name == where {
			text += strings.Join(lines, "")
			continue
		}
		for line := range strings.Lines(old) {
			if strings.HasPrefix(line, p.name+",") {
				text += line
			}
		}
	}
	return text
}

// text is the document's part about this place.
func (r *results) text() string {
	var b strings.Builder
	title := ""
	for _, tab := range tablesOf(r.where) {
		r.table(&b, tab)
		_, title, _ = strings.Cut(tab.title, "its server")
	}
	r.figures(&b, "How soon they woke"+title, (*env).pooled)
	if r.where != sentinels {
		r.figures(&b, "Turns and ghosts"+title, func(e *env) map[string]string { return e.wakes.figures })
	}
	return b.String()
}

// table writes what came out in one place: a row for all locks of which the same is to be said.
func (r *results) table(b *strings.Builder, tab table) {
	fmt.Fprintf(b, "\n## %s\n", tab.title)
	if tab.text != "" {
		fmt.Fprintf(b, "\n%s\n", tab.text)
	}
	if len(tab.columns) > 1 {
		fmt.Fprintf(b, "\n✓: in all of %s.\n", strings.Join(tab.columns, "; "))
	}
	var versions []string
	for _, e := range r.envs {
		versions = append(versions, e.version)
	}
	fmt.Fprintf(b, "\n| what | locks | passed with %s |\n|---|---|---|\n", strings.Join(versions, ", "))
	type row struct{ what, passed string }
	var order []row
	kinds := map[row][]string{}
	for _, c := range tab.cells {
		passed, lacking := r.outcome(tab, c)
		same := row{c.what, passed}
		if kinds[same] == nil {
			order = append(order, same)
		}
		kinds[same] = append(kinds[same], c.kind+lacking)
	}
	for _, same := range order {
		fmt.Fprintf(b, "| %s | %s | %s |\n", same.what, strings.Join(kinds[same], ", "), same.passed)
	}
}

// lacks is written behind a kind of lock that a version of Redisson has not got.
const lacks = " (not "

// outcome says in which columns a line of a table has passed, once if that is so with every version, and which versions
// have not got it.
func (r *results) outcome(tab table, c cell) (passed, lacking string) {
	var texts, each []string
	for _, e := range r.envs {
		text := r.passed(tab, c, e.version)
		if text == "–" {
			lacking += lacks + e.version + ")"
			continue
		}
		texts, each = append(texts, text), append(each, e.version+": "+text)
	}
	if texts = slices.Compact(texts); len(texts) > 1 {
		return strings.Join(each, " · "), lacking
	}
	return strings.Join(texts, ""), lacking
}

// passed says in which columns a version has passed, or why in none.
func (r *results) passed(tab table, c cell, version string) string {
	var passed []string
	why := ""
	for _, column := range tab.columns {
		switch text := r.cell[slot(tab, c, version, column)]; text {
		case "✓":
			passed = append(passed, column)
		case "":
		default:
			why = text
		}
	}
	switch len(passed) {
	case 0:
		return why
	case len(tab.columns):
		return "✓"
	}
	return strings.Join(passed, "; ")
}

// figures writes a table with a line for each name, and what of tells of it in each version.
func (r *results) figures(b *strings.Builder, title string, of func(*env) map[string]string) {
	fmt.Fprintf(b, "\n## %s\n\n| what |", title)
	names, all := map[string]bool{}, make([]map[string]string, len(r.envs))
	for i, e := range r.envs {
		fmt.Fprintf(b, " %s |", e.version)
		all[i] = of(e)
		for name := range all[i] {
			names[name] = true
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(b, "| %s |", name)
		for _, figures := range all {
			figure, found := figures[name]
			if !found {
				figure = "–"
			}
			fmt.Fprintf(b, " %s |", figure)
		}
		b.WriteString("\n")
	}
}

// pooled is how soon each party of a pair woke the other, with all locks.
func (e *env) pooled() map[string]string {
	took := map[string][]time.Duration{}
	for what, all := range e.wakes.what {
		if pair, _, _ := strings.Cut(what, ":"); pair == theyFirst || pair == weFirst || pair == bothJava {
			took[pair] = append(took[pair], all...)
		}
	}
	out := map[string]string{}
	for pair, all := range took {
		out[pair] = summary(all).String()
	}
	return out
}

const heading = `<!-- Written by: go test ./integration/redisson -run Interop -args -write -->

# The tests with the real Redisson

[REDISSON.md](REDISSON.md) says what they mean for a user. Each line is a test of ` + "`make interop`" + ` with the real
Redisson, the newest known and the oldest with the same bytes, beside two lockproxies.
` + "`-args -versions 4.8.0,3.15.0`" + ` tries others.

| section | what it shows |
|---|---|
| Side by side | Of each pair the first holds the lock and the second wants it. |
| All together | Two JVMs at Redis itself and two or four lockproxies, all at once. |
| … as its server | Redisson's own scripts, messages and handshakes pass through. |
| How soon they woke | From the unlock's call to the waiter's answer, through a pipe to the JVM: median, longest (how many). |
| Turns and ghosts | How long a thread waited among clients that hand the lock on; from a kill to the next grant. |

Four tests run at a time, on two cores. Empty: tried elsewhere. "needs …": lockproxy has not got that verb.

A waiter counts as woken by a message (spin locks send none): leases end in 60 s, ` + "`--wait-poll`" + ` is 10 s, and in each test
the best quarter must have the lock within 100 ms (more on a busy machine), and all within four seconds. What each took is
in [redisson/times.csv](redisson/times.csv).
`

const clusterText = `Three masters and three replicas. Redisson is there with useClusterServers: 4.7.0 tells and hears by sharded messages
(SPUBLISH), 3.15.0 by classic ones (PUBLISH); lockproxy, with redis-cluster://, by both. Redisson through lockproxy is
in cluster mode, too: --present cluster.`

const sentinelText = `A master, two replicas and three Sentinels.
Redisson is there with useSentinelServers, lockproxy with redis+sentinel://. Here only what is quick is tried.`

// The document has the lines of the tables: a new cell wants -write.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	must(t, err, "reading the document")
	for _, p := range places {
		for _, tab := range tablesOf(p.name) {
			_, section, found := strings.Cut(string(text), "\n## "+tab.title+"\n")
			if !found {
				t.Errorf("%s has no %q; run make interop's test with -write", document, tab.title)
			}
			section, _, _ = strings.Cut(section, "\n## ")
			for _, c := range tab.cells {
				if !hasCell(section, c) {
					t.Errorf("%s lacks %s: %s; run make interop's test with -write", document, c.kind, c.what)
				}
			}
		}
	}
}

func hasCell(section string, c cell) bool {
	for line := range strings.Lines(section) {
		rest, found := strings.CutPrefix(line, "| "+c.what+" | ")
		kinds, _, _ := strings.Cut(rest, " |")
		for kind := range strings.SplitSeq(kinds, ", ") {
			if kind, _, _ = strings.Cut(kind, lacks); found && kind == c.kind {
				return true
			}
		}
	}
	return false
}
