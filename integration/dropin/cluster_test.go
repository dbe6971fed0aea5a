package dropin

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// tagged has a generator's command use keys of one slot only: {t} goes before all it makes up, and before those that
// templates name.
func tagged(args []string) []string {
	for i, a := range args[min(1, len(args)):] {
		args[i+1] = strings.ReplaceAll(a, "'absent:0'", "'{t}absent:0'")
		switch kind, number, is := strings.Cut(a, ":"); {
		case a == "c1", a == "c2", a == "one", a == "lone", a == "solo",
			is && number != "" && strings.Contains(" str hash list set zset stream hll geo bits absent ", " "+kind+" "):
			args[i+1] = "{t}" + a
		}
	}
	return args
}

// unlikeCluster are commands that a node of a cluster answers otherwise than a Redis alone, or that say which server, or
// how many, they come from.
func unlikeCluster(args []string) bool {
	switch name := strings.ToUpper(args[0]); name {
	case "SELECT", "SWAPDB", "MOVE", "COPY", "SORT", "SORT_RO", "CONFIG", "ROLE", "FAILOVER", "DBSIZE", "SCAN", "KEYS", "MEMORY", "SLOWLOG", "LATENCY":
		return true
	case "SCRIPT", "FUNCTION", "FCALL", "FCALL_RO", "EVALSHA", "EVALSHA_RO", "SPUBLISH": // 0 keys, or merged replies
		return name == "FUNCTION" || name == "SPUBLISH"
	}
	return false
}

// besideCluster runs a test in each protocol with a connection to a Redis alone and one to a lockproxy before a cluster, both empty.
func besideCluster(t *testing.T, run func(t *testing.T, p *pair, tc *testredis.Cluster, direct, through *harness.Wire)) {
	tc := testredis.StartCluster(t, 3, 0, alikeConfig...)
	through := harness.StartClusterProxy(t, tc)
	harness.Protocols(t, func(t *testing.T, proto int) {
		direct := testredis.Start(t, alikeConfig...)
		dial := harness.Dial
		if proto == 3 {
			dial = harness.Dial3
		}
		var v *harness.Wire
		harness.Eventually(t, "all nodes are empty, and connected to", func() bool {
			v = dial(t, through.Addr())
			for _, command := range []string{"FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH"} {
				if got, err := v.Try(strings.Fields(command)...); err != nil || got != "+OK\r\n" {
					v.Close()
					return false
				}
			}
			return true
		})
		run(t, &pair{direct: direct, proxy: through}, tc, dial(t, direct.Addr()), v)
	})
}

// Random commands whose keys share a slot: every reply is that of a Redis alone.
func TestClusterRandomCommands(t *testing.T) {
	t.Parallel()
	besideCluster(t, func(t *testing.T, p *pair, tc *testredis.Cluster, w, v *harness.Wire) {
		g := newGenerator(seed(t), true)
		for n := range 2500 {
			args := tagged(g.next())
			if unlikeCluster(args) {
				continue
			}
			got := v.Do(args...)
			if strings.HasPrefix(got, "-CROSSSLOT ") { // another word was taken for a key, as by Redis itself
				if said := harness.Dial(t, tc.Servers[0].Addr()).Do(args...); said != got {
					t.Errorf("command %d %s: %q, but a node says %q", n, harness.Quoted(args), got, said)
				}
				continue
			}
			if strings.Contains(got, "non local key") { // a script without declared keys has run wherever
				loadScript(w, args)
				continue
			}
			want := w.Do(args...)
			p.check(t, n, args, want, got, alike(args, want, got))
			// An EVAL without keys has run at one of the nodes, and the other nodes do not know its script.
			if len(args) > 2 && args[2] == "0" {
				loadScript(w, args)
				loadScript(v, args)
			}
		}
		sameKeys(t, w, v)
	})
}

// loadScript has a server know the script that was run elsewhere only, or might have been.
func loadScript(w *harness.Wire, args []string) {
	if name := strings.ToUpper(args[0]); name == "EVAL" || name == "EVAL_RO" {
		w.Do("SCRIPT", "LOAD", args[1])
	}
}

// sameKeys compares all data.
func sameKeys(t *testing.T, direct, through *harness.Wire) {
	t.Helper()
	keys := keysOf(direct)
	if got := keysOf(through); len(got) != len(keys) {
		t.Errorf("%d keys, want %d", len(got), len(keys))
	}
	for _, key := range keys {
		kind := direct.Do("TYPE", key)
		if kind == "+set\r\n" || kind == "+stream\r\n" { // hash tables have secret seeds, and consumers their times
			continue
		}
		if want, got := direct.Do("DUMP", key), through.Do("DUMP", key); want != got {
			t.Errorf("%s: %s, want %s", key, harness.Quoted(got), harness.Quoted(want))
		}
	}
}

// Random commands with keys in any slots, in pipelines: what runs is answered as by a Redis alone, and what is refused
// with CROSSSLOT has several keys and is none of those that are split.
func TestClusterSpreadKeys(t *testing.T) {
	t.Parallel()
	besideCluster(t, func(t *testing.T, p *pair, _ *testredis.Cluster, w, v *harness.Wire) {
		g := newGenerator(seed(t), false)
		crossed := 0
		for range 30 {
			var commands [][]string
			for range 100 {
				if args := g.next(); !unlikeCluster(args) && !strings.HasPrefix(strings.ToUpper(args[0]), "FCALL") {
					commands = append(commands, args)
				}
			}
			got := v.Pipeline(harness.EncodeAll(commands), len(commands))
			for i, args := range commands {
				if strings.HasPrefix(got[i], "-CROSSSLOT ") {
					crossed++
					loadScript(w, args)
					if name := strings.ToUpper(args[0]); strings.Contains(" MGET MSET DEL UNLINK EXISTS TOUCH ", " "+name+" ") {
						t.Errorf("%s was not split", harness.Quoted(args))
					}
					continue
				}
				if strings.HasPrefix(got[i], "-NOSCRIPT ") || strings.Contains(got[i], "non local key") {
					loadScript(w, args)
					continue // it has run at another node only; or it names keys it did not say
				}
				want := w.Do(args...)
				p.check(t, i, args, want, got[i], alike(args, want, got[i]))
			}
		}
		sameKeys(t, w, v)
		if crossed == 0 {
			t.Error("nothing was refused: were keys spread at all?")
		}
		t.Log(crossed, "refused as CROSSSLOT")
	})
}
