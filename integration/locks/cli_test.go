package locks

import (
	"bufio"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// stores runs f before the embedded store and before a real Redis.
func stores(t *testing.T, f func(t *testing.T, upstream string)) {
	t.Run("embedded", func(t *testing.T) { f(t, "") })
	t.Run("redis", func(t *testing.T) { f(t, testredis.Start(t).URL()) })
}

// cli is one redis-cli that stays connected, fed by a pipe as if somebody typed.
type cli struct {
	t     testing.TB
	child *testredis.Child
	in    io.WriteCloser
	lines chan string
}

// startCli starts redis-cli on the proxy; its test is skipped when this machine has none.
func startCli(t testing.TB, p *harness.Proxy) *cli {
	t.Helper()
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not installed")
	}
	cmd := exec.Command(path, "--no-raw", "-p", strconv.Itoa(p.Port()))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	c := &cli{t: t, in: in, lines: make(chan string, 1024)}
	go c.readLines(out)
	t.Cleanup(func() { _ = out.Close() })
	c.child = testredis.StartChild(t, cmd)
	return c
}

// tookLong is what redis-cli adds to replies that took half a second, as they may on a busy machine.
var tookLong = regexp.MustCompile(`^\(\d+\.\d\ds\)$`)

func (c *cli) readLines(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		if !tookLong.MatchString(s.Text()) {
			c.lines <- s.Text()
		}
	}
}

func (c *cli) typed(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cli) next() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(harness.Patience):
		c.t.Fatal("redis-cli prints nothing")
		return ""
	}
}

// expect types a line and compares what redis-cli prints.
func (c *cli) expect(line, want string) {
	c.t.Helper()
	c.typed(line)
	if got := c.next(); got != want {
		c.t.Fatalf("%s: redis-cli printed %q, want %q", line, got, want)
	}
}

func (c *cli) silent(d time.Duration) {
	c.t.Helper()
	select {
	case line := <-c.lines:
		c.t.Fatalf("redis-cli printed %q too early", line)
	case <-time.After(d):
	}
}

func TestLocksInRedisCli(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		first, second := startCli(t, p), startCli(t, p)
		first.expect("LOCK orders", "OK")
		second.expect("LOCK orders", "(nil)")
		second.typed("LOCK orders BLOCK 60000")
		second.silent(100 * time.Millisecond)
		first.expect("UNLOCK orders", "(integer) 1")
		unlocked := time.Now()
		if got := second.next(); got != "OK" {
			t.Fatalf("the waiter got %q", got)
		}
		handed := time.Since(unlocked)

		first.typed("LOCK orders BLOCK 60000")
		first.silent(50 * time.Millisecond)
		killed := time.Now()
		second.child.Kill()
		if got := first.next(); got != "OK" {
			t.Fatalf("after kill -9 of the holder the waiter got %q", got)
		}
		t.Logf("from UNLOCK to the waiter's OK %v, from kill -9 of the holder %v, both through redis-cli",
			handed.Round(10*time.Microsecond), time.Since(killed).Round(10*time.Microsecond))

		third := startCli(t, p)
		last := int64(0)
		for range 3 {
			third.typed("LOCK a FENCE")
			got := third.next()
			token, err := strconv.ParseInt(strings.TrimPrefix(got, "(integer) "), 10, 64)
			if err != nil || token <= last {
				t.Fatalf("LOCK a FENCE printed %q after token %d", got, last)
			}
			last = token
			third.expect("UNLOCK a", "(integer) 1")
		}
	})
}

var colours = regexp.MustCompile("\x1b\\[[0-9]+m")

// redis-cli builds its hints from what the server says of its commands; `help` prints the same.
func TestRedisCliHelp(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		c := startCli(t, p)
		for _, verb := range []string{"LOCK", "UNLOCK", "RENEW", "FENCED", "LOCKINFO", "LOCKLIST", "MULTILOCK", "MULTIUNLOCK"} {
			c.typed("help " + verb)
			c.typed("ECHO end")
			var said []string
			for line := c.next(); line != `"end"`; line = c.next() {
				said = append(said, line)
			}
			if text := colours.ReplaceAllString(strings.Join(said, "\n"), ""); !strings.Contains(text, verb+" ") || !strings.Contains(text, "summary:") {
				t.Errorf("help %s printed %q", verb, text)
			} else {
				t.Logf("help %s: %s", verb, strings.Join(strings.Fields(text), " "))
			}
		}
	})
}

func TestVerbsInCommand(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		for _, w := range []*harness.Wire{harness.Dial(t, p.Addr()), harness.Dial3(t, p.Addr())} {
			all, names := w.Do("COMMAND"), w.Do("COMMAND", "LIST")
			docs := w.Do("COMMAND", "DOCS")
			for _, verb := range []string{"lock", "unlock", "renew", "fenced", "lockinfo", "locklist", "multilock", "multiunlock"} {
				bulk := "$" + strconv.Itoa(len(verb)) + "\r\n" + verb + "\r\n"
				for what, text := range map[string]string{"COMMAND": all, "COMMAND LIST": names, "COMMAND DOCS": docs} {
					if !strings.Contains(text, bulk) {
						t.Errorf("%s does not have %s", what, verb)
					}
				}
				info := w.Do("COMMAND", "INFO", verb)
				if !strings.Contains(all, strings.TrimPrefix(info, "*1\r\n")) {
					t.Errorf("COMMAND has %s otherwise than COMMAND INFO: %q", verb, info)
				}
				doc := w.Do("COMMAND", "DOCS", verb)
				if !strings.Contains(doc, "summary") || !strings.Contains(doc, "since") {
					t.Errorf("COMMAND DOCS %s: %q", verb, doc)
				}
			}
			if got := w.Do("COMMAND", "GETKEYS", "LOCK", "a", "BLOCK", "5"); got != "*1\r\n$1\r\na\r\n" {
				t.Errorf("COMMAND GETKEYS LOCK a BLOCK 5: %q", got)
			}
			if !strings.Contains(docs, "$5\r\nBLOCK\r\n") || !strings.Contains(docs, "$8\r\nREPLICAS\r\n") {
				t.Error("COMMAND DOCS does not have the options of LOCK")
			}
			count := w.Do("COMMAND", "COUNT")
			if n, _, _ := strings.Cut(all[1:], "\r\n"); count != ":"+n+"\r\n" {
				t.Errorf("COMMAND COUNT %q, COMMAND has %s", count, n)
			}
		}
	})
}
