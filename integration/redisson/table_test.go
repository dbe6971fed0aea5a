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

const oldest = "3.15.0"

var (
	write    = flag.Bool("write", false, "rewrite the parts of docs/REDISSON-TESTS.md and docs/redisson about the places where all passed")
	versions = flag.String("versions", "4.7.0,"+oldest, "the Redissons to test: the newest there is, and the oldest that keeps the same locks")
)

// cell is one line of a table: what is tried with one kind of lock, once for each column.
type cell struct {
	kind, what string
	run        func(t *testing.T, e *env, column, kind string)
	only       []string // columns; nil is all
	where      string   // the only place; "" is all
	slow       bool     // not tried with Sentinels, which change nothing about it
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

// results are what came out in one place, by table, cell, version and column.
type results struct {
	where string
	envs  []*env // one a version

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
	programs := map[string]program{}
	for _, version := range strings.Split(*versions, ",") {
		t.Run(version, func(t *testing.T) { programs[version] = build(t, version) })
	}
	for _, where := range strings.Split(*where, ",") {
		t.Run(where, func(t *testing.T) { here(t, where, programs) })
	}
}

// here tries every cell of a place with every version that is there.
func here(t *testing.T, where string, programs map[string]program) {
	r := &results{where: where, cell: map[string]string{}}
	whole := true
	for _, version := range strings.Split(*versions, ",") {
		if p, built := programs[version]; built {
			whole = t.Run(version, func(t *testing.T) { r.all(t, version, p) }) && whole
		}
	}
	if !*write {
		return
	}
	if !whole || len(r.envs) < len(strings.Split(*versions, ",")) {
		t.Fatal("the document is not written: not all is well, or not all was tested")
	}
	r.write(t)
}

// all tries every cell with one version.
func (r *results) all(t *testing.T, version string, p program) {
	e := newEnv(t, version, p, r.where)
	r.envs = append(r.envs, e)
	for _, tab := range tablesOf(r.where) {
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
