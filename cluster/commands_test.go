package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	all := learn(t, c)
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			cl := newClient(t, c, all, proto)
			cl.expect("FLUSHALL", "+OK\r\n")
			testSplit(cl, proto)
			testPolicies(t, cl, tc)
		})
	}
	t.Run("scripts", func(t *testing.T) { testScripts(t, newClient(t, c, all, 3), tc) })
	t.Run("errors", func(t *testing.T) { testErrors(t, newClient(t, c, all, 2)) })
	t.Run("pipeline", func(t *testing.T) { testPipeline(t, newClient(t, c, all, 2)) })
}

func testSplit(cl *client, proto int) {
	null := "$-1\r\n"
	if proto == 3 {
		null = "_\r\n"
	}
	cl.expect("MSET a 1 b 2 c 3 d 4 e 5 a 6", "+OK\r\n")
	cl.expect("MGET a x b c y d e a", "*8\r\n$1\r\n6\r\n"+null+"$1\r\n2\r\n$1\r\n3\r\n"+null+"$1\r\n4\r\n$1\r\n5\r\n$1\r\n6\r\n")
	cl.expect("EXISTS a b a nope", ":3\r\n")
	cl.expect("TOUCH a b nope", ":2\r\n")
	cl.expect("DEL a b nope", ":2\r\n")
	cl.expect("UNLINK c c d", ":2\r\n")
	cl.expect("MGET {t}1 {t}2", "*2\r\n"+null+null)
	cl.expect("GET e", "$1\r\n5\r\n")
	cl.expect("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n")
	cl.expect("MGET", "-ERR wrong number of arguments for 'mget' command\r\n")
	const cross = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	cl.expect("MSETNX a 1 b 2", cross)
	cl.expect("SUNIONSTORE x a b", cross)
	cl.expect("RENAME a b", cross)
	cl.expect("MSETNX {t}a 1 {t}b 2", ":1\r\n")
}

func testPolicies(t *testing.T, cl *client, tc *testredis.Cluster) {
	cl.expect("FLUSHDB", "+OK\r\n")
	cl.expect("RANDOMKEY", map[bool]string{true: "_\r\n", false: "$-1\r\n"}[cl.e.links.id.Proto == 3])
	for i := range 30 {
		cl.expect(fmt.Sprint("SET key", i, " v"), "+OK\r\n")
	}
	cl.expect("DBSIZE", ":30\r\n")
	if got := cl.do("KEYS key*")[0]; !strings.HasPrefix(got, "*30\r\n") || strings.Count(got, "key") != 30 {
		t.Errorf("got %q", got)
	}
	if got := cl.do("RANDOMKEY")[0]; !strings.Contains(got, "key") {
		t.Errorf("got %q", got)
	}
	cl.expect("PING", "+PONG\r\n")
	cl.expect("WAIT 0 10", ":0\r\n")
	cl.expect("ECHO hello", "$5\r\nhello\r\n")
	cl.expect("NOSUCH x", "-ERR unknown command 'NOSUCH', with args beginning with: 'x' \r\n")
	cl.expect("SCRIPT FLUSH", "+OK\r\n")
	sha := "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" // return 1
	cl.expect("SCRIPT EXISTS "+sha+" "+sha, "*2\r\n:0\r\n:0\r\n")
	if err := tc.Servers[1].Do(t, "SCRIPT", "LOAD", "return 1"); err == nil {
		t.Fatal("no reply")
	}
	cl.expect("SCRIPT EXISTS "+sha, "*1\r\n:0\r\n")
	load := NewPlan(cl.table.command("SCRIPT", "LOAD", "return 1"))
	if got := cl.run([]*Plan{load})[0]; got != "$40\r\n"+sha+"\r\n" {
		t.Errorf("got %q", got)
	}
	cl.expect("SCRIPT EXISTS "+sha, "*1\r\n:1\r\n")
	for _, k := range []string{"a", "b", "c"} {
		cl.expect("EVALSHA "+sha+" 1 "+k, ":1\r\n")
	}
	cl.expect("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n")
	cl.expect("CONFIG SET lfu-log-factor 11", "+OK\r\n")
	for _, s := range tc.Servers {
		if pair, _ := redis.Strings(s.Do(t, "CONFIG", "GET", "lfu-log-factor"), nil); len(pair) != 2 || pair[1] != "11" {
			t.Errorf("got %v", pair)
		}
	}
	cl.expect("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n") // any command is slow on a busy machine
	cl.expect("SLOWLOG RESET", "+OK\r\n")
	cl.expect("SLOWLOG LEN", ":0\r\n")
	cl.expect("FLUSHALL", "+OK\r\n")
	cl.expect("DBSIZE", ":0\r\n")
}

// A script can say anything. What it says of slots is not believed, whatever node or slot it names.
func testScripts(t *testing.T, cl *client, tc *testredis.Cluster) {
	slot := Slot([]byte("k"))
	for _, line := range []string{
		"MOVED 1 1.2.3.4:6379", "ASK 1 1.2.3.4:6379",
		fmt.Sprintf("MOVED %d 1.2.3.4:6379", slot), fmt.Sprintf("MOVED %d %s", slot, tc.Servers[0].Addr()),
		fmt.Sprintf("MOVED %d %s", slot, tc.Servers[1].Addr()), fmt.Sprintf("ASK %d %s", slot, tc.Servers[2].Addr()),
		"MOVED", "ASK x", "TRYAGAIN later", "CLUSTERDOWN now", fmt.Sprintf("MOVED %d", slot), "MOVED -1 :1",
	} {
		body := "redis.call('incr', KEYS[1]) return redis.error_reply('" + line + "')"
		cl.expect("DEL k", map[bool]string{true: ":0\r\n", false: ":1\r\n"}[line == "MOVED 1 1.2.3.4:6379"])
		p := NewPlan(cl.table.command("EVAL", body, "1", "k"))
		want := "-" + line + "\r\n"
		if !strings.Contains(line, " ") {
			want = "-ERR " + line + "\r\n" // Redis' own doing
		}
		if got := cl.run([]*Plan{p})[0]; got != want && got != "-"+line+"\r\n" {
			t.Errorf("%s: got %q", line, got)
		}
		cl.expect("GET k", "$1\r\n1\r\n")
	}
}

func testErrors(t *testing.T, cl *client) {
	cl.expect("SET s 1", "+OK\r\n")
	cl.expect("LPUSH s 1", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
	cl.expect("GET", "-ERR wrong number of arguments for 'get' command\r\n")
}

// Replies come in the order of the commands, whatever node they come from.
func testPipeline(t *testing.T, cl *client) {
	var lines, want []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("SET p%d %d", i, i), fmt.Sprintf("APPEND p%d x", i), fmt.Sprintf("GET p%d", i))
		v := fmt.Sprint(i, "x")
		want = append(want, "+OK\r\n", fmt.Sprintf(":%d\r\n", len(v)), fmt.Sprintf("$%d\r\n%s\r\n", len(v), v))
		if i == 150 {
			lines, want = append(lines, "FLUSHALL", "DBSIZE"), append(want, "+OK\r\n", ":0\r\n")
		}
	}
	for i, got := range cl.do(lines...) {
		if got != want[i] {
			t.Fatalf("%s: got %q, want %q", lines[i], got, want[i])
		}
	}
	cl.expect("DBSIZE", ":149\r\n")
	// Without keys they keep their order among each other, and to what has keys.
	lines, want = nil, nil
	for i := range 200 {
		lines, want = append(lines, fmt.Sprint("ECHO ", 1000+i)), append(want, fmt.Sprintf("$4\r\n%d\r\n", 1000+i))
		if i%50 == 0 {
			lines, want = append(lines, "INCR n", "DBSIZE"), append(want, fmt.Sprintf(":%d\r\n", 1+i/50), ":150\r\n")
		}
	}
	for i, got := range cl.do(lines...) {
		if got != want[i] {
			t.Fatalf("%s: got %q, want %q", lines[i], got, want[i])
		}
	}
}

func TestPrivateAndAs(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 2)
	shared := cl.do("CLIENT ID")[0]
	other := newClient(t, c, cl.table, 2)
	other.e.home = cl.e.home
	if got := other.do("CLIENT ID")[0]; got != shared {
		t.Errorf("got %q and %q", shared, got)
	}
	cl.e.Private(true)
	own := cl.do("CLIENT ID")[0]
	if again := cl.do("CLIENT ID")[0]; own == shared || again != own {
		t.Errorf("got %q, %q and %q", shared, own, again)
	}
	big := strings.Repeat("x", 3<<20)
	cl.expect("MSET a "+big+" b 2", "+OK\r\n")
	cl.expect("MGET b a", fmt.Sprintf("*2\r\n$1\r\n2\r\n$%d\r\n%s\r\n", len(big), big))
	cl.e.Private(false)
	cl.expect("CLIENT ID", shared)
	cl.e.As(upstream.Identity{Proto: 3})
	cl.expect("MGET b no", "*2\r\n$1\r\n2\r\n_\r\n")
}
