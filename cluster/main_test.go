package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

func openCluster(t testing.TB, tc *testredis.Cluster, o Options) *Cluster {
	t.Helper()
	where, err := upstream.ParseURL("redis-cluster://" + tc.Servers[0].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	return openTarget(t, target, o)
}

func openTarget(t testing.TB, target upstream.ClusterTarget, o Options) *Cluster {
	t.Helper()
	if o.Node.Logger == nil {
		o.Node.Logger = slog.New(slog.DiscardHandler)
	}
	c := testredis.Opened(t, func() (*Cluster, error) { return Open(context.Background(), target, o) })
	t.Cleanup(c.Close)
	return c
}

// table is what a server's COMMAND says: by name the facts, and where the first key stands, the last, and the step.
type table map[string]learned

type learned struct {
	facts             *Facts
	first, last, step int
}

func learn(t testing.TB, c *Cluster) table {
	t.Helper()
	var replies []resp.Reply
	eventually(t, "COMMAND is answered in time", func() bool {
		var err error
		replies, err = c.ask(context.Background(), c.Snapshot().Masters[0].up, []string{"COMMAND"})
		return err == nil && len(replies[0].Elems) > 200
	})
	all := table{}
	all.add(replies[0].Elems)
	return all
}

func (all table) add(entries []resp.Reply) {
	words := func(v resp.Reply) (w []string) {
		for _, e := range v.Elems {
			w = append(w, string(e.Text))
		}
		return w
	}
	for _, e := range entries {
		number := func(i int) int { n, _ := integerOf(e.Elems[i]); return int(n) }
		name := string(e.Elems[0].Text)
		all[name] = learned{FactsOf(name, words(e.Elems[2]), words(e.Elems[7])), number(3), number(4), number(5)}
		all.add(e.Elems[9].Elems)
	}
}

// command makes a Command of words, as a session would.
func (all table) command(words ...string) Command {
	cmd := Command{Raw: resp.AppendCommand(nil, words...)}
	for _, w := range words {
		cmd.Args = append(cmd.Args, []byte(w))
	}
	name := strings.ToLower(words[0])
	l, known := all[name]
	if len(words) > 1 {
		if sub, is := all[name+"|"+strings.ToLower(words[1])]; is {
			l = sub
		}
	}
	if !known {
		return cmd
	}
	cmd.Facts = l.facts
	if strings.HasPrefix(name, "eval") {
		n, _ := strconv.Atoi(words[2])
		for i := range n {
			cmd.Keys = append(cmd.Keys, 3+i)
		}
		return cmd
	}
	if l.first > 0 {
		last := l.last
		if last < 0 {
			last += len(words)
		}
		for k := l.first; k <= min(last, len(words)-1); k += l.step {
			cmd.Keys = append(cmd.Keys, k)
		}
	}
	return cmd
}

// client is what a session is to the package.
type client struct {
	t     testing.TB
	table table
	e     *Executor

	large bool // the cursors of a SCAN may reach 2^53
}

func newClient(t testing.TB, c *Cluster, all table, proto int) *client {
	e := c.Executor(upstream.Identity{Proto: proto}, NewHome())
	t.Cleanup(e.Close)
	return &client{t: t, table: all, e: e}
}

// do runs a pipeline of commands, written as words with spaces between, and returns the replies' bytes; for a command
// without a reply it is "error: …".
func (c *client) do(lines ...string) []string {
	plans := c.table.plansOf(lines...)
	if c.e.links.private || slices.ContainsFunc(plans, func(p *Plan) bool { return len(p.cmd.Keys) != 1 || p.cmd.Facts.Script }) {
		return c.run(plans)
	}
	var got replyList // as the proxy does
	if c.straight(context.Background(), plans, &got, func() []*Plan { return plans }) {
		return got
	}
	return results(plans)
}

func (c *client) run(plans []*Plan) []string {
	c.e.Do(context.Background(), plans)
	return results(plans)
}

func results(plans []*Plan) []string {
	got := make([]string, len(plans))
	for i, p := range plans {
		if got[i] = string(p.Reply); p.Err != nil {
			got[i] = "error: " + p.Err.Error()
		}
	}
	return got
}

// replyList is a Sink that keeps replies apart.
type replyList []string

func (l *replyList) Reply(p []byte) { *l = append(*l, string(p)) }

func (c *client) expect(line, want string) {
	c.t.Helper()
	if got := c.do(line)[0]; got != want {
		c.t.Errorf("%s: got %q, want %q", line, got, want)
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// keyIn is a key of a slot.
func keyIn(slot int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); Slot([]byte(key)) == slot {
			return key
		}
	}
}
