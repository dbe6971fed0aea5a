package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

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
	tab := newTable(nil, []string{"shutdown", "config|set"}, nil)
	for line, forwarded := range map[string]bool{
		"get k": true, "gEt k": true, "NOSUCH": true, "script load x": true, "config get x": true, "cluster info": false, "client caching yes": true,
		"xread count 1 streams a 0": true, "XREADGROUP group g BLOCK streams a >": true, "object freq k": true,
		strings.Repeat("x", 100): true, "client|reply off": true,
		"multi": true, "Script dEBUG yes": false, "client reply off": false, "CLIENT Nonsense": false, "cluster syncslots x": false,
		"post": false, "SHUTDOWN": false, "config SET a b": false,
	} {
		if _, answer := tab.find(words(line)); (answer == nil) != forwarded {
			t.Errorf("%q: forwarded %v, want %v", line, answer == nil, forwarded)
		}
	}
}

func TestClassificationDoesNotAllocate(t *testing.T) {
	tab := newTable(nil, nil, nil)
	for _, line := range []string{"GeT k", "client Setname x", "nosuch", "xread count 1 streams a 0"} {
		args := words(line)
		if n := testing.AllocsPerRun(100, func() { tab.find(args) }); n > 0 {
			if strings.HasPrefix(line, "client") && n <= 1 {
				continue // the bound method of a command answered here
			}
			t.Errorf("%q: %v allocations", line, n)
		}
	}
}

// Every command of Redis that may do more than answer once on its own was looked at by a person: it is in the table,
// or there is a remark on it, as on all that is harmless on a shared connection.
func TestRedisCommandsWereReviewed(t *testing.T) {
	server := testredis.Start(t)
	all, err := redis.Values(server.Do(t, "COMMAND"), nil)
	if err != nil {
		t.Fatal(err)
	}
	tab := newTable(nil, nil, nil)
	for _, entry := range all {
		fields, _ := redis.Values(entry, nil)
		name, _ := redis.String(fields[0], nil)
		flags, _ := redis.Strings(fields[2], nil)
		suspect := false
		for _, f := range []string{"admin", "noscript", "pubsub", "blocking", "no_multi", "no_auth", "no_async_loading"} {
			suspect = suspect || slices.Contains(flags, f)
		}
		_, harmless := remarks[name]
		if c := lookUp(tab.commands, []byte(name)); suspect && c == nil && !harmless {
			t.Errorf("%s %v is neither in the table nor known to be harmless", name, flags)
		}
	}
}

func TestLearnedFlags(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	tab := p.srv.table.Load()
	for name, readOnly := range map[string]bool{"GET": true, "SET": false, "XREAD": true, "EVAL": false, "LRANGE": true} {
		c := lookUp(tab.commands, []byte(name))
		if c == nil || c.readOnly != readOnly {
			t.Errorf("%s: %+v, want readOnly %v", name, c, readOnly)
		}
	}
	if c := lookUp(tab.commands, []byte("LOCK")); c == nil || c.run == nil || commands.Lookup([]byte("lock")) == nil {
		t.Error("LOCK is not answered here")
	}
}

// COMMAND lists a command that redis.conf has renamed under its old name: the new one must be known for what it is all the
// same. On a shared connection a renamed MONITOR would fail everybody's commands.
func TestRenamedCommands(t *testing.T) {
	redis := startRedis(t, "--rename-command MONITOR watch-all", "--rename-command CLIENT kunde", "--rename-command GET holen")
	p := startProxy(t, redis.URL(), func(o *Options) { o.Deny = []string{"get"} })
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
