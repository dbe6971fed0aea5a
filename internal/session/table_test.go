package session

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func words(line string) (args [][]byte) {
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	return args
}

func TestClassification(t *testing.T) {
	t.Parallel()
	tab := newAnswers(nil, []string{"shutdown", "config|set"}, nil)
	for line, forwarded := range map[string]bool{
		"get k": true, "gEt k": true, "NOSUCH": true, "script load x": true, "config get x": true, "cluster info": false, "client caching yes": true,
		"xread count 1 streams a 0": true, "XREADGROUP group g BLOCK streams a >": true, "object freq k": true,
		strings.Repeat("x", 100): true, "client|reply off": true,
		"multi": true, "Script dEBUG yes": false, "client reply off": false, "CLIENT Nonsense": false, "cluster syncslots x": false,
		"post": false, "SHUTDOWN": false, "config SET a b": false,
	} {
		if _, answer := tab.findRow(words(line)); (answer == nil) != forwarded {
			t.Errorf("%q: forwarded %v, want %v", line, answer == nil, forwarded)
		}
	}
}

func TestClassificationDoesNotAllocate(t *testing.T) {
	tab := newAnswers(nil, nil, nil)
	for _, line := range []string{"GeT k", "client Setname x", "nosuch", "xread count 1 streams a 0"} {
		args := words(line)
		if n := testing.AllocsPerRun(100, func() { tab.findRow(args) }); n > 0 {
			t.Errorf("%q: %v allocations", line, n)
		}
	}
}

func TestLearnedFlags(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	tab := p.srv.facts.table.Load()
	for name, readOnly := range map[string]bool{"GET": true, "SET": false, "XREAD": true, "EVAL": false, "LRANGE": true} {
		c := tab.Lookup([]byte(name))
		if c == nil || c.ReadOnly != readOnly {
			t.Errorf("%s: %+v, want readOnly %v", name, c, readOnly)
		}
	}
	if c := tab.Lookup([]byte("LOCK")); c == nil || !c.Here || commands.Lookup([]byte("lock")) == nil {
		t.Error("LOCK is not answered here")
	}
}

// COMMAND lists a command that redis.conf has renamed under its old name: the new one must be known for what it is all the
// same. On a shared connection a renamed MONITOR would fail everybody's commands.
func TestRenamedCommands(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, "--rename-command MONITOR watch-all", "--rename-command CLIENT kunde", "--rename-command GET holen")
	p := startProxy(t, redis.URL(), func(o *ServerOptions) { o.Deny = []string{"get"} })
	other, w := dialWire(t, p.addr), dialWire(t, p.addr)
	w.expect("-ERR 'MONITOR' is off in lockproxy, --allow monitor switches it on\r\n", "Watch-All")
	w.expect("+OK\r\n", "KUNDE", "REPLY", "ON")
	w.expect("+OK\r\n", "KUNDE", "TRACKING", "ON")
	w.expect("+OK\r\n", "KUNDE", "TRACKING", "OFF")
	w.expect("-ERR 'GET' is denied by lockproxy's --deny\r\n", "holen", "k")
	w.expect("-ERR unknown command 'nonsense', with args beginning with: 'a' \r\n", "nonsense", "a")
	other.expect("+OK\r\n", "SET", "k", "v")
	other.expect(":1\r\n", "EXISTS", "k")
}

// The service account loses the right to COMMAND: what Redis said of its commands before stands, by which a cluster's find their nodes.
func TestCommandsStayKnown(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	<-p.srv.facts.known
	server.Do(t, "ACL", "SETUSER", "default", "-command")
	if err := p.srv.learnTable(); err != nil {
		t.Error(err)
	}
	if c := p.srv.facts.table.Load().Find([][]byte{[]byte("GETEX")}); c == nil {
		t.Error("GETEX is not known any more")
	}
}
