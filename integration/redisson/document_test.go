package redisson

import (
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// What is written: the document, every test with what has passed, and the times of single wake-ups.
const (
	document = "../../docs/REDISSON-TESTS.md"
	tests    = "../../docs/redisson/tests.csv"
	times    = "../../docs/redisson/times.csv"
)

// write rewrites the document and the lists beside it with a new part about this place. The others stay as they were.
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
	r.writeList(t, tests, "place,section,what,locks,Redisson,passed\n", r.tried())
	r.writeList(t, times, "place,what,Redisson,median ms,longest ms,how many\n", r.took())
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

// writeList writes a list with other lines about this place.
func (r *results) writeList(t *testing.T, file, head string, lines []string) {
	t.Helper()
	old, err := os.ReadFile(file)
	must(t, err, "reading a list")
	text := head
	for _, p := range places {
		if p.name == r.where {
			text += strings.Join(lines, "")
			continue
		}
		for line := range strings.Lines(string(old)) {
			if strings.HasPrefix(line, p.name+",") {
				text += line
			}
		}
	}
	must(t, os.WriteFile(file, []byte(text), 0o644), "writing a list")
}

// text is the document's part about this place.
func (r *results) text() string {
	var b strings.Builder
	for _, tab := range tablesOf(r.where) {
		if r.where == alone || tab.text != "" {
			fmt.Fprintf(&b, "\n## %s\n", tab.title)
		}
		if tab.text != "" {
			fmt.Fprintf(&b, "\n%s\n", tab.text)
		}
		if r.where == alone {
			r.table(&b, tab)
		}
	}
	return b.String()
}

// table writes what came out beside a single Redis.
func (r *results) table(b *strings.Builder, tab table) {
	if len(tab.columns) > 1 {
		fmt.Fprintf(b, "\n✓: in all of %s.\n", strings.Join(tab.columns, "; "))
	}
	fmt.Fprintf(b, "\n| what | locks | passed with %s |\n|---|---|---|\n", strings.Join(r.versions(), ", "))
	for _, row := range r.rows(tab) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.what, row.locks, row.passed)
	}
}

// tried are the lines of a place's tests, in which the columns of a table have their names.
func (r *results) tried() (lines []string) {
	for _, tab := range tablesOf(r.where) {
		for _, row := range r.rows(tab) {
			passed := row.passed
			if len(tab.columns) > 1 {
				passed = strings.ReplaceAll(passed, "✓", strings.Join(tab.columns, "; "))
			}
			lines = append(lines, fmt.Sprintf("%s,%s,%s,%s,%s,%s\n", r.where, quoted(tab.title), quoted(row.what),
				quoted(row.locks), quoted(strings.Join(r.versions(), ", ")), quoted(passed)))
		}
	}
	return lines
}

// quoted is a field of a list.
func quoted(field string) string { return `"` + strings.ReplaceAll(field, `"`, `""`) + `"` }

func (r *results) versions() (versions []string) {
	for _, e := range r.envs {
		versions = append(versions, e.version)
	}
	return versions
}

// line is what is said of all locks with which the same passed.
type line struct{ what, locks, passed string }

func (r *results) rows(tab table) (rows []line) {
	for _, c := range tab.cells {
		passed, lacking := r.outcome(tab, c)
		at := slices.IndexFunc(rows, func(l line) bool { return l.what == c.what && l.passed == passed })
		if at < 0 {
			rows = append(rows, line{what: c.what, locks: c.kind + lacking, passed: passed})
		} else {
			rows[at].locks += ", " + c.kind + lacking
		}
	}
	return rows
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

const heading = `<!-- Written by: go test ./integration/redisson -run Interop -args -write -->

# The tests with the real Redisson

[REDISSON.md](REDISSON.md) says what they mean for a user. Each line is a test of ` + "`make interop`" + ` with the real
Redisson, the newest known and the oldest with the same bytes, beside two lockproxies.

| section | what it shows |
|---|---|
| Side by side | Of each pair the first holds the lock and the second wants it. |
| All together | Two JVMs at Redis itself and two or four lockproxies, all at once. |
| … as its server | Redisson's own scripts, messages and handshakes pass through. |

Four tests run at a time, on two cores. A waiter counts as woken by a message (spin locks send none): leases end in 60 s,
` + "`--wait-poll`" + ` is 10 s, and in each test the best quarter must have the lock within 100 ms (more on a busy machine), and all
within four seconds.

[redisson/tests.csv](redisson/tests.csv) has every test. Those on a cluster and with Sentinels, which are nearly the same,
are only there. Where nothing has passed, the test is of another place. [redisson/times.csv](redisson/times.csv) has what
each wake took, from the unlock's call to the waiter's answer, through a pipe to the JVM.
`

const clusterText = `Three masters and three replicas. Redisson is there with useClusterServers: 4.7.0 tells and hears by sharded messages
(SPUBLISH), as does lockproxy, with redis-cluster://; 3.15.0 by classic ones (PUBLISH), lockproxy then by both:
--cluster-pubsub both. Redisson through lockproxy is in cluster mode, too: --present cluster.`

const sentinelText = `A master, two replicas and three Sentinels.
Redisson is there with useSentinelServers, lockproxy with redis+sentinel://. Only what is quick is tried.`

// The list has the lines of the tables: a new cell wants -write.
func TestDocument(t *testing.T) {
	file, err := os.Open(tests)
	must(t, err, "opening the list")
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	must(t, err, "reading the list")
	for _, p := range places {
		for _, tab := range tablesOf(p.name) {
			for _, c := range tab.cells {
				if !hasCell(rows, p.name, tab.title, c) {
					t.Errorf("%s lacks %s: %s: %s; run make interop's test with -write", tests, tab.title, c.kind, c.what)
				}
			}
		}
	}
}

func hasCell(rows [][]string, place, section string, c cell) bool {
	for _, row := range rows {
		if row[0] != place || row[1] != section || row[2] != c.what {
			continue
		}
		for kind := range strings.SplitSeq(row[3], ", ") {
			if kind, _, _ = strings.Cut(kind, lacks); kind == c.kind {
				return true
			}
		}
	}
	return false
}
