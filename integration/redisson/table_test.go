package redisson

import (
	"flag"
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
	case "read", "write", "read/write":
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
	proxy := dial(t, e.proxies[0].Addr())
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
	envs     []*env   // of them

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
	os.Exit(harness.MainIfAsked(m))
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
	r.versions, r.envs = append(r.versions, version), append(r.envs, e)
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
