package dropin

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// pair is two redis-servers of one kind: one asked directly, one through lockproxy.
type pair struct {
	direct, behind *testredis.Server
	proxy          interface{ Addr() string }
	unlike         int // replies that differed so far
}

// alikeConfig keeps what would differ between two servers (hash tables have secret seeds) out of hashes and sorted sets,
// and slow commands out of SLOWLOG.
var alikeConfig = []string{"--hash-max-listpack-entries 100000", "--hash-max-listpack-value 65536",
	"--zset-max-listpack-entries 100000", "--zset-max-listpack-value 65536", "--slowlog-log-slower-than -1", "--enable-debug-command yes"}

// plainPair says that there is to be no proxy: TESTS_PLAIN=1 shows whether two Redis servers themselves agree.
func plainPair() bool { return os.Getenv("TESTS_PLAIN") != "" }

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{direct: testredis.Start(t, alikeConfig...), behind: testredis.Start(t, alikeConfig...)}
	if p.proxy = p.behind; !plainPair() {
		p.proxy = harness.StartProxy(t, p.behind.URL())
		w := harness.Dial(t, p.proxy.Addr())
		if got := w.Do("LOCK", "first") + w.Do("UNLOCK", "first"); got != "+OK\r\n:1\r\n" { // it waits for the lock that is taken for a try
			t.Fatalf("%q", got)
		}
		w.C.Close() // tests count clients
		harness.Eventually(t, "the proxy's own keys are gone", func() bool { return p.behind.Do(t, "DBSIZE") == int64(0) })
	}
	return p
}

// dials connects to both, in RESP2 or RESP3.
func (p *pair) dials(t *testing.T, proto int) (direct, through *harness.Wire) {
	t.Helper()
	if proto == 3 {
		return harness.Dial3(t, p.direct.Addr()), harness.Dial3(t, p.proxy.Addr())
	}
	return harness.Dial(t, p.direct.Addr()), harness.Dial(t, p.proxy.Addr())
}

// dialsWarm is dials for a generator's commands, some of which change the database: lockproxy has connections to each by then, and keeps
// them for clients that stay. One that it makes when a command has come may take longer than it waits, on a busy machine.
func (p *pair) dialsWarm(t *testing.T, proto int) (direct, through *harness.Wire) {
	t.Helper()
	for _, db := range []string{"0", "1", "2", "10"} {
		harness.Eventually(t, "both have a client in database "+db, func() bool { // both: commands count clients
			direct, through := p.dials(t, proto)
			for _, w := range []*harness.Wire{direct, through} {
				for _, command := range []string{"SELECT " + db, "DBSIZE"} {
					if got, err := w.Try(strings.Fields(command)...); err != nil || harness.IsErrorFrame(got) {
						direct.Close()
						through.Close()
						return false
					}
				}
			}
			return true
		})
	}
	return p.dials(t, proto)
}

// mustEqual compares the data sets of both servers.
func (p *pair) mustEqual(t *testing.T) {
	t.Helper()
	want, got := p.direct.Do(t, "DEBUG", "DIGEST"), p.behind.Do(t, "DEBUG", "DIGEST")
	if want != got {
		t.Errorf("the data sets differ: digest %v and %v", want, got)
	}
}

// check reports a reply that differs, and ends the test when there have been many.
func (p *pair) check(t *testing.T, n int, args []string, want, got string, same bool) {
	t.Helper()
	if same {
		return
	}
	t.Errorf("command %d %s\n  redis     %s\n  lockproxy %s", n, harness.Quoted(args), harness.Quoted(want), harness.Quoted(got))
	if p.unlike++; p.unlike == 10 {
		t.Fatal("more is not shown")
	}
}

// Random commands one by one: every reply is Redis' own.
func TestDropinRandomCommands(t *testing.T) {
	t.Parallel()
	count := 1000
	if harness.Long() {
		count = 2500
	}
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), true)
		p := startPair(t)
		direct, through := p.dialsWarm(t, proto)
		kinds := map[byte]int{}
		for n := range count {
			args := g.next()
			want := direct.Do(args...)
			got := through.Do(args...)
			p.check(t, n, args, want, got, alike(args, want, got))
			kinds[want[0]]++
		}
		p.mustEqual(t)
		t.Logf("%d commands, replies by kind: %s", count, counts(kinds))
	})
}

func counts(kinds map[byte]int) string {
	var b strings.Builder
	for _, k := range "+-:$*_%~,#(=" {
		if n := kinds[byte(k)]; n > 0 {
			fmt.Fprintf(&b, "%c %d  ", k, n)
		}
	}
	return b.String()
}

// Pipelines of 1,000 commands in one write. Redis gets them one by one: 8.2.3 loses the error of an AUTH for which others wait in a pipeline.
func TestDropinDeepPipelines(t *testing.T) {
	t.Parallel()
	rounds := 2
	if harness.Long() {
		rounds = 4
	}
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), true)
		p := startPair(t)
		direct, through := p.dialsWarm(t, proto)
		for range rounds {
			commands := make([][]string, 1000)
			for i := range commands {
				commands[i] = g.next()
			}
			got := through.Pipeline(harness.EncodeAll(commands), len(commands))
			for i, args := range commands {
				want := direct.Do(args...)
				p.check(t, i, args, want, got[i], alike(args, want, got[i]))
			}
		}
		p.mustEqual(t)
	})
}

// Inline commands, as telnet sends them: any bytes in quotes, odd spaces, empty lines.
func TestDropinInline(t *testing.T) {
	t.Parallel()
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), false)
		p := startPair(t)
		direct, through := p.dialsWarm(t, proto)
		for n := range 1000 {
			args := g.next()
			line := g.inline(args)
			if len(line) > 60<<10 { // Redis' limit is 64 KiB
				continue
			}
			want, got := direct.Pipeline(line, 1)[0], through.Pipeline(line, 1)[0]
			p.check(t, n, args, want, got, alike(args, want, got))
		}
		p.mustEqual(t)
	})
}

// inline writes args as one line. Valkey 8.1.8 loses the byte 0xff in single quotes.
func (g *generator) inline(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteString(g.pick(" ", "  ", "\t "))
		}
		switch {
		case a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.*") == "":
			b.WriteString(a)
		case !strings.ContainsAny(a, "\\'\x00\r\n") && !strings.Contains(a, "\xff") && g.rnd.IntN(2) == 0:
			b.WriteString("'" + a + "'")
		default:
			b.WriteByte('"')
			for _, c := range []byte(a) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
			b.WriteByte('"')
		}
	}
	end := g.pick("\r\n", "\n")
	if g.rnd.IntN(10) == 0 {
		end += "\r\n"
	}
	return b.String() + end
}

// Commands in segments of a few bytes.
func TestDropinTinySegments(t *testing.T) {
	t.Parallel()
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), false)
		p := startPair(t)
		direct, through := p.dialsWarm(t, proto)
		for n := range 300 {
			args := g.next()
			all := harness.EncodeAll([][]string{args})
			if len(all) > 2000 {
				continue
			}
			want := direct.Pipeline(all, 1)[0]
			for rest := all; rest != ""; {
				k := min(len(rest), 1+g.rnd.IntN(9))
				if _, err := io.WriteString(through.C, rest[:k]); err != nil {
					t.Fatal(err)
				}
				rest = rest[k:]
			}
			got := through.Read()
			p.check(t, n, args, want, got, alike(args, want, got))
		}
		p.mustEqual(t)
	})
}

// What depends on a server's secrets is compared on one server, and to the byte: it is only read.
func TestDropinReadsOfOneServer(t *testing.T) {
	t.Parallel()
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), false)
		p := startPair(t)
		p.direct = p.behind
		direct, through := p.dialsWarm(t, proto)
		for range 3000 {
			if args := g.next(); !strings.EqualFold(args[0], "FLUSHDB") && !strings.EqualFold(args[0], "SWAPDB") {
				through.Do(args...)
			}
		}
		through.Do("SELECT", "0")
		var reads [][]string
		for _, frame := range keysOf(direct) {
			for _, c := range []string{"DUMP $", "TYPE $", "OBJECT ENCODING $", "MEMORY USAGE $", "SMEMBERS $", "SSCAN $ 0 COUNT 7", "HGETALL $",
				"HSCAN $ 0", "ZSCAN $ 0", "XINFO STREAM $ FULL", "XINFO GROUPS $", "SUNION $ set:1", "SDIFF $ set:2", "SORT $ ALPHA", "LRANGE $ 0 -1", "GET $",
				"ZRANGE $ 0 -1 WITHSCORES", "XRANGE $ - +", "EXPIRETIME $", "PFCOUNT $", "BITCOUNT $"} {
				args := strings.Fields(c)
				args[slices.Index(args, "$")] = frame
				reads = append(reads, args)
			}
		}
		for _, c := range []string{"KEYS *", "SCAN 0 COUNT 3", "SCAN 0 COUNT 1000", "DBSIZE", "CONFIG GET *", "ACL LIST", "ACL CAT", "FUNCTION LIST", "MODULE LIST",
			"COMMAND LIST FILTERBY ACLCAT stream", "COMMAND LIST FILTERBY PATTERN x*", "LASTSAVE", "CLIENT LIST ID 999999", "PUBSUB CHANNELS", "INFO nosuchsection"} {
			reads = append(reads, strings.Fields(c))
		}
		for n, args := range reads {
			want, got := direct.Do(args...), through.Do(args...)
			p.check(t, n, args, want, got, want == got)
		}
		t.Logf("%d reads", len(reads))
		if len(reads) < 100 {
			t.Errorf("only %d reads: there are no keys", len(reads))
		}
	})
}

// keysOf are the names of all keys.
func keysOf(w *harness.Wire) []string {
	_, elements := harness.Split(w.Do("KEYS", "*"))
	for i, e := range elements {
		_, name, _ := strings.Cut(e, "\r\n")
		elements[i] = strings.TrimSuffix(name, "\r\n")
	}
	return elements
}
