package redisson

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

var (
	write    = flag.Bool("write", false, "rewrite docs/REDISSON.md from what passed")
	versions = flag.String("versions", "4.7.0,3.15.0", "the Redissons to test: the newest there is, and the oldest that keeps the same locks")
)

const document = "../../docs/REDISSON.md"

// cell is one line of a table: what is tried with one kind of lock, once for each column.
type cell struct {
	kind, what string
	run        func(t *testing.T, e *env, column, kind string)
	only       []string // columns; nil is all
}

// table is one part of the matrix.
type table struct {
	title, text string
	columns     []string
	verbs       func(column string) bool // does it use lockproxy's verbs?
	cells       []cell
}

// features are the classes and methods of Redisson that not every version has.
var features = map[string]string{
	"fenced":   "org.redisson.api.RFencedLock",
	"RESP3":    "org.redisson.config.Protocol",
	replicated: "org.redisson.config.Config#setSlavesSyncTimeout",
}

// needs are the verbs that a test with this kind of lock uses.
func needs(kind string) []string {
	switch kind {
	case "read", "write":
		return []string{"RLOCK", "WLOCK"}
	case "fair":
		return []string{"FAIRLOCK"}
	case "multi":
		return []string{"MULTILOCK", "MULTIUNLOCK"}
	}
	return []string{"LOCK"}
}

// missing is what stands in the table for a cell that cannot be tried: "" when it can.
func (e *env) missing(t *testing.T, tab table, c cell, column string) string {
	t.Helper()
	for _, what := range []string{c.kind, column} {
		if feature, found := features[what]; found {
			there, err := e.java.call(beside, "main", "has", feature)
			must(t, err, "asking for "+feature)
			if there != "true" {
				return "–"
			}
		}
	}
	if !tab.verbs(column) {
		return ""
	}
	proxy := dial(t, e.proxies[0].Addr)
	for _, verb := range needs(c.kind) {
		reply, err := redis.Values(proxy.do("COMMAND", "INFO", verb))
		must(t, err, "COMMAND INFO")
		if reply[0] == nil {
			return "needs " + verb
		}
	}
	return ""
}

// results are what came out, by table, cell, version and column.
type results struct {
	versions []string // tested

	mu   sync.Mutex // guards cell
	cell map[string]string
}

func slot(tab table, c cell, version, column string) string {
	return strings.Join([]string{tab.title, c.kind, c.what, version, column}, "|")
}

func (r *results) note(key, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cell[key] = text
}

func TestMain(m *testing.M) {
	flag.Parse()
	if harness.Asked() {
		_ = flag.Set("test.parallel", "4") // most of these tests sleep
	}
	os.Exit(harness.Main(m))
}

func TestInterop(t *testing.T) {
	if !harness.Asked() {
		t.Skip("the real Redisson runs by `make interop`, or with -run Interop")
	}
	r := &results{cell: map[string]string{}}
	whole := true
	for _, version := range strings.Split(*versions, ",") {
		whole = t.Run(version, func(t *testing.T) { r.all(t, version) }) && whole
	}
	if !*write {
		return
	}
	if !whole || len(r.versions) < len(strings.Split(*versions, ",")) {
		t.Fatalf("the document is not written: tested were %q, and not all is well", r.versions)
	}
	must(t, os.WriteFile(document, []byte(r.text()), 0o644), "writing the document")
}

// all tries every cell with one version.
func (r *results) all(t *testing.T, version string) {
	e := newEnv(t, version)
	r.versions = append(r.versions, version)
	t.Cleanup(func() { e.figures(t) })
	for _, tab := range tables {
		for _, c := range tab.cells {
			for _, column := range tab.columns {
				if c.only != nil && !slices.Contains(c.only, column) {
					continue
				}
				name := strings.Join([]string{tab.title, c.kind, c.what, column}, "/")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					key := slot(tab, c, version, column)
					if why := e.missing(t, tab, c, column); why != "" {
						r.note(key, why)
						t.Skipf("*** NOT TESTED with Redisson %s: %s ***", version, why)
					}
					c.run(t, e, column, c.kind)
					r.note(key, "✓")
				})
			}
		}
	}
}

// text is docs/REDISSON.md.
func (r *results) text() string {
	var b strings.Builder
	b.WriteString(heading)
	for _, tab := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| lock | what |", tab.title, tab.text)
		for _, version := range strings.Split(*versions, ",") {
			for _, column := range tab.columns {
				fmt.Fprintf(&b, " %s |", strings.TrimSuffix(version+": "+column, ": "))
			}
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---|", len(tab.columns)*len(strings.Split(*versions, ","))) + "\n")
		for _, c := range tab.cells {
			fmt.Fprintf(&b, "| %s | %s |", c.kind, c.what)
			for _, version := range strings.Split(*versions, ",") {
				for _, column := range tab.columns {
					b.WriteString(" " + r.cell[slot(tab, c, version, column)] + " |")
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

const heading = `# Redisson and lockproxy

<!-- Written by: go test ./integration/redisson -run Interop -write -->

Both sides keep the same locks in the same Redis. Each line below is a test of ` + "`make interop`" + ` with the real Redisson, the
newest we could get and the oldest with the same bytes, beside two lockproxies.

✓: it passed. –: that Redisson has not got it. "needs …": lockproxy has not got that verb yet. Empty: the line is not about
this column.

In every "wakes" line the lease ends in 60 s and lockproxy's own look at the lock (` + "`--wait-poll`" + `) is 10 s away; the waiter
must have the lock within a second, which only a message can do.
`

// The document has the lines of the tables: a new cell wants -write.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	must(t, err, "reading the document")
	for _, tab := range tables {
		_, section, found := strings.Cut(string(text), "\n## "+tab.title+"\n")
		if !found {
			t.Errorf("%s has no %q; run make interop's test with -write", document, tab.title)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, c := range tab.cells {
			if !strings.Contains(section, fmt.Sprintf("\n| %s | %s |", c.kind, c.what)) {
				t.Errorf("%s lacks %s: %s; run make interop's test with -write", document, c.kind, c.what)
			}
		}
	}
}
