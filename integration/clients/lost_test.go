package clients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// trouble is something that a client does while Redis is lost.
type trouble struct {
	name     string
	op       string // what its program is told to do
	away     bool   // Redis is away before the client begins; else the command has run and its reply is lost
	failover bool   // it is done while a failover takes place, too
}

var troubles = []trouble{
	{name: "GET, reply lost", op: "get"},
	{name: "RPUSH, reply lost", op: "push"},
	{name: "pipeline, replies lost", op: "pipeline"},
	{name: "MULTI, replies lost", op: "multi"},
	{name: "GET while Redis is away", op: "get", away: true, failover: true},
	{name: "RPUSH while Redis is away", op: "push", away: true, failover: true},
	{name: "MULTI while Redis is away", op: "multi", away: true},
	{name: "BLPOP", op: "blpop", failover: true},
	{name: "SUBSCRIBE", op: "subscribe", failover: true}, // the last one: some hear nothing ever after
}

// outcome is what an application saw.
type outcome struct {
	said  string // "ok", or the error's class and text
	times int    // so often its command has run
}

// ofConnections are the words of errors that say that a connection was lost, or could not be made.
var ofConnections = regexp.MustCompile(`(?i)connection|socket|closed|reset|refused|broken pipe|EOF|^IoError|^context-`)

// class is what an application sees: success, a connection that was lost, or another error. Which of the errors of a lost connection
// it gets depends on who was faster without lockproxy, too.
func (o outcome) class() string {
	if ofConnections.MatchString(o.said) && !strings.Contains(o.said, "ERR ") {
		return "lost"
	}
	word, _, _ := strings.Cut(o.said, " ")
	return word
}

func (o outcome) String() string {
	if o.times > 0 {
		return fmt.Sprintf("%s, run %d×", o.said, o.times)
	}
	return o.said
}

// TestInteropLost has each client lose Redis, by a cut, a restart and a failover, and compares what its application gets with what it
// gets without lockproxy. It prints both as a table: see docs/adr/0018.
func TestInteropLost(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real clients run by `make interop`, or with -run Interop")
	}
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			dir := c.project().Ready(t)
			for _, failover := range []bool{false, true} {
				var rows [2]map[string]outcome
				for i, through := range []bool{false, true} {
					rows[i] = (&lab{t: t, failover: failover}).run(c, dir, through)
				}
				for _, x := range troubles {
					if !failover || x.failover {
						c.compare(t, x, failover, rows[0][x.name], rows[1][x.name])
					}
				}
			}
		})
	}
}

// compare wants the same class of outcome; through lockproxy it may be a success where it is an error without. While Redis
// is away, or a failover takes seconds, time decides whether a library's tries last: a lost connection is then what it may
// see, too, and so is the LOADING of a Redis that is there again and reads its file, which aborts a transaction.
func (c client) compare(t *testing.T, x trouble, failover bool, direct, through outcome) {
	when := x.name
	if failover {
		when += ", failover"
	}
	loading := strings.Contains(through.said, "LOADING ") || strings.Contains(through.said, "EXECABORT ")
	byTime := (x.away || failover) && (through.class() == "lost" || loading)
	t.Logf("| %s | %s | %s | %s |", c.name, when, direct, through)
	switch {
	case through.class() != direct.class() && through.said != "ok" && !byTime:
		t.Errorf("%s: %s: %q without lockproxy, %q through it", c.name, when, direct, through)
	case through.times > max(direct.times, 1):
		t.Errorf("%s: %s: run %d times without lockproxy, %d times through it", c.name, when, direct.times, through.times)
	}
}

// lab is one client, and what is between it and Redis.
type lab struct {
	t        *testing.T
	failover bool
	group    *testredis.Group  // with failover
	redis    *testredis.Server // the master
	between  *testredis.Proxy
	in       io.Writer
	out      chan string // the program's lines; closed at its end
	items    int
}

// run has a client go through all troubles.
func (l *lab) run(c client, dir string, through bool) map[string]outcome {
	url := ""
	if l.failover {
		l.group = testredis.StartGroup(l.t, testredis.GroupOptions{Replicas: 4}) // each failover costs one
		l.redis, url = l.group.Nodes[0], l.group.URL()
	} else {
		l.redis = testredis.Start(l.t, "--appendonly yes", "--appendfsync always")
	}
	l.between = testredis.NewProxy(l.t, l.redis.Addr())
	addr := l.between.Addr()
	if through {
		if url == "" {
			url = "redis://" + addr
		}
		addr = harness.StartProxy(l.t, url).Addr()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	cmd := c.project().Command(ctx, dir, c.lost)
	cmd.Env, cmd.Stderr = append(cmd.Env, "LOCKPROXY_ADDR="+addr), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	l.in, l.out = in, make(chan string, 16)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go l.read(out)
	defer func() {
		in.Close()
		cancel()
		for range l.out { // until it is closed
		}
		_ = cmd.Wait()
	}()
	l.redis.Do(l.t, "SET", "k", "v")
	outcomes := map[string]outcome{}
	for _, x := range troubles {
		if !l.failover || x.failover {
			outcomes[x.name] = l.suffer(x)
		}
	}
	return outcomes
}

// suffer has the client go through one trouble.
func (l *lab) suffer(x trouble) (o outcome) {
	l.tell("ready")
	if got := l.next(patience); got != "did ok" {
		l.t.Fatalf("ready: %q", got)
	}
	l.items++
	item := fmt.Sprint("item", l.items)
	switch {
	case x.op == "blpop":
		o.said = l.waiting(x, func() bool { return l.info("clients", "blocked_clients") > 0 }, func() { l.redis.Do(l.t, "RPUSH", "queue", "v") })
	case x.op == "subscribe":
		o.said = l.waiting(x, func() bool {
			l.redis.Do(l.t, "PUBLISH", "news", "first")
			return l.heard()
		}, func() { l.redis.Do(l.t, "PUBLISH", "news", "last") })
	case x.away:
		l.breaks()
		time.Sleep(100 * time.Millisecond)
		l.tell(x.op + " " + item)
		time.Sleep(400 * time.Millisecond)
		l.mends()
		o.said = l.said(patience)
	default:
		ran := map[bool]string{true: "cmdstat_get:calls", false: "cmdstat_rpush:calls"}[x.op == "get"]
		before := l.info("commandstats", ran)
		l.between.Latency(300 * time.Millisecond)
		l.tell(x.op + " " + item)
		l.until(x.name, func() bool { return l.info("commandstats", ran) > before })
		l.between.Disable() // the reply is on its way
		l.between.Clear()
		time.Sleep(300 * time.Millisecond)
		l.between.Enable()
		o.said = l.said(patience)
	}
	all, _ := redis.Strings(l.redis.Do(l.t, "LRANGE", "list", "0", "-1"), nil)
	for _, was := range all {
		if was == item {
			o.times++
		}
	}
	return o
}

// waiting is for what waits until it is served: Redis is lost while it does, and serves it afterwards.
func (l *lab) waiting(x trouble, waits func() bool, serve func()) (said string) {
	l.tell(x.op)
	l.until(x.name, waits)
	l.breaks()
	time.Sleep(300 * time.Millisecond)
	l.mends()
	for end := time.Now().Add(patience); ; {
		if said = l.said(100 * time.Millisecond); said != "hang" || time.Now().After(end) {
			return said
		}
		if x.op == "subscribe" || waits() {
			serve()
		}
	}
}

// breaks ends Redis, or the master.
func (l *lab) breaks() {
	if l.failover {
		l.group.Hasten()
	}
	l.redis.Kill()
	if l.failover {
		l.between.Disable()
	}
}

// mends brings it back, or waits for another master.
func (l *lab) mends() {
	if !l.failover {
		l.redis.Restart()
		return
	}
	l.redis = l.group.AwaitSwitch(l.redis)
	l.between.Redirect(l.redis.Addr())
	l.between.Enable()
}

func (l *lab) tell(op string) { fmt.Fprintln(l.in, op) }

// read passes the program's lines on.
func (l *lab) read(out io.Reader) {
	defer close(l.out)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		l.out <- lines.Text()
	}
}

// next is the next line of the program's.
func (l *lab) next(within time.Duration) string {
	select {
	case line, there := <-l.out:
		if !there {
			return "did end"
		}
		return line
	case <-time.After(within):
		return "did hang"
	}
}

// heard says that the program has a subscription.
func (l *lab) heard() bool {
	select {
	case line := <-l.out:
		return line == "heard"
	default:
		return false
	}
}

var varies = regexp.MustCompile(`[/(]?\b\d[\d.:]*`)

// said is what the program was told, without numbers and addresses.
func (l *lab) said(within time.Duration) string {
	for {
		if said, done := strings.CutPrefix(l.next(within), "did "); done {
			return strings.TrimSpace(varies.ReplaceAllString(said, "#"))
		}
	}
}

// info is a number in Redis' INFO.
func (l *lab) info(section, name string) (n int) {
	text, _ := redis.String(l.redis.Do(l.t, "INFO", section), nil)
	for line := range strings.Lines(text) {
		for _, separator := range []string{":", "="} {
			if rest, found := strings.CutPrefix(line, name+separator); found {
				_, _ = fmt.Sscanf(rest, "%d", &n)
			}
		}
	}
	return n
}

func (l *lab) until(what string, holds func() bool) {
	l.t.Helper()
	harness.Eventually(l.t, what, holds)
}
