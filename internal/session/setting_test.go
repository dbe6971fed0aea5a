package session

import (
	"os"
	process "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What a client says of itself within MULTI holds from EXEC on, and never if that fails, as Redis has it.
func TestSettingsInTransaction(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		server := testredis.Start(t)
		settingsInTransaction(t, startProxy(t, server.URL(), nil), server)
	})
	t.Run("cluster", func(t *testing.T) {
		redis := testredis.StartCluster(t, 1, 0)
		settingsInTransaction(t, startProxyOf(t, redis, nil), redis.Servers[0])
	})
}

func settingsInTransaction(t *testing.T, p *proxy, server *testredis.Server) {
	says := [][]string{{"CLIENT", "SETINFO", "LIB-NAME", "mine"}, {"CLIENT", "SETINFO", "lib-ver", "1.2"}, {"CLIENT", "NO-TOUCH", "on"},
		{"CLIENT", "NO-EVICT", "ON"}, {"CLIENT", "SETNAME", "me"}, {"CLIENT", "CAPA", commands.LossPush}}
	begin := func(w *wire) {
		w.expect("+OK\r\n", "MULTI")
		for _, words := range says {
			w.expect("+QUEUED\r\n", words...)
		}
	}
	for name, end := range map[string]func(w *wire){
		"DISCARD": func(w *wire) { w.expect("+OK\r\n", "DISCARD") },
		"EXECABORT": func(w *wire) {
			w.do("GET")
			w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
		},
		"RESET that is none": func(w *wire) {
			w.expect("-ERR wrong number of arguments for 'reset' command\r\n", "RESET", "x")
			w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
		},
		"a watched key": func(w *wire) {
			server.Do(t, "SET", "watched", "changed")
			w.expect("*-1\r\n", "EXEC")
		},
	} {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "WATCH", "watched")
		begin(w)
		end(w)
		if got := w.do("CLIENT", "INFO"); strings.Contains(got, "lib-name=") || !strings.Contains(got, " flags=N ") || !strings.Contains(got, " name= ") {
			t.Errorf("after %s: %q", name, got)
		}
		w.expect("+OK\r\n", "LOCK", "l", "BLOCK", "60000") // the one before gives it back a moment after its RESET
		w.expect("+OK\r\n", "LOCK", "l")                   // no library has been named
		if p.sessionOf(w).client.Said().WantsLossPush {
			t.Errorf("after %s it is pushed to", name)
		}
		w.expect("+RESET\r\n", "RESET")
	}
	w := dialWire(t, p.addr)
	begin(w)
	w.expect("*6\r\n"+strings.Repeat("+OK\r\n", 6), "EXEC")
	w.expect("+OK\r\n", "LOCK", "l", "BLOCK", "60000")
	if got := w.do("LOCK", "l"); !strings.HasPrefix(got, "-OWNERREQUIRED") {
		t.Errorf("the library's second LOCK: %q", got)
	}
	if got := w.do("CLIENT", "INFO"); !strings.Contains(got, " lib-name=mine lib-ver=1.2") || !strings.Contains(got, " flags=eT ") || !strings.Contains(got, " name=me ") {
		t.Errorf("after EXEC: %q", got)
	}
	if !p.sessionOf(w).client.Said().WantsLossPush {
		t.Error("after EXEC it is not pushed to")
	}
	settingsKeepNames(t, p)
}

// settingsKeepNames has settings that Redis does not know come between names, of which one is none.
func settingsKeepNames(t *testing.T, p *proxy) {
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "CLIENT", "SETNAME", "before")
	for _, setting := range [][]string{{"SETINFO", "traceparent", traceparent("a")}, {"SETINFO", "lib-name", "mine"}, {"NO-TOUCH", "on"}} {
		set := append([]string{"CLIENT"}, setting...)
		get := []string{"CLIENT", "GETNAME"}
		name := func(name string) []string { return []string{"CLIENT", "SETNAME", name} }
		replies := w.batchOf([]string{"MULTI"}, set, get, name("job-7"), []string{"MULTI"}, set, get, name("no name"), set, get, name(""), set, get, name("before"), []string{"EXEC"})
		got := replies[len(replies)-1]
		const ok, before, job, none = "+OK\r\n", "$6\r\nbefore\r\n", "$5\r\njob-7\r\n", "$-1\r\n"
		bad := "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
		if want := "*12\r\n" + ok + before + ok + ok + job + bad + ok + job + ok + ok + none + ok; got != want {
			t.Errorf("%q between names: got %q, want %q", setting, got, want)
		}
	}
	same(t, w.batchOf([]string{"MULTI"}, []string{"CLIENT", "SETNAME", "given up"}, []string{"CLIENT", "SETNAME", "gone"}, []string{"DISCARD"},
		[]string{"MULTI"}, []string{"CLIENT", "SETINFO", "traceparent", ""}, []string{"EXEC"}, []string{"CLIENT", "GETNAME"}),
		"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+OK\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n", "$6\r\nbefore\r\n")
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "CLIENT", "GETNAME")
	w.expect("*1\r\n$6\r\nbefore\r\n", "EXEC")
}

// What the proxy answers as a cluster's node never reaches Redis, in a transaction neither.
func TestClusterWordsInTransaction(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for _, present := range []bool{false, true} {
		p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Present = present })
		w := dialWire(t, p.addr)
		for _, line := range []string{"CLUSTER INFO", "CLUSTER RESET", "CLUSTER NOSUCH", "READONLY", "READWRITE", "ASKING"} {
			w.expect("+OK\r\n", "MULTI")
			w.expect("-"+notInMulti+"\r\n", strings.Fields(line)...)
			w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
		}
	}
	if stats := server.Do(t, "INFO", "commandstats"); strings.Contains(text(stats), "cluster|") || strings.Contains(text(stats), "readonly") {
		t.Errorf("they reached Redis: %s", text(stats))
	}
}

func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	s, _ := v.(string)
	return s
}

// CLIENT INFO and LIST have the fields of the Redis upstream, in its order.
func TestClientInfoOfOtherVersions(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	<-p.srv.facts.known
	for _, sub := range []string{"LIST", "INFO"} { // each learns the fields, as the client's user
		p.srv.clients.fields.Store(nil)
		w.do("CLIENT", sub)
		if told := p.srv.clients.fields.Load(); told == nil || !slices.Equal(*told, commands.Redis70Fields) {
			t.Errorf("CLIENT %s has learned %v", sub, told)
		}
	}
	for _, line := range []string{
		"id=5 addr=127.0.0.1:1 laddr=127.0.0.1:2 fd=8 name= age=0 idle=0 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=26 qbuf-free=20448 argv-mem=10 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 omem=0 tot-mem=22426 events=r cmd=client|info user=default redir=-1 resp=2 lib-name= lib-ver= io-thread=0 tot-net-in=26 tot-net-out=0 tot-cmds=0",
		"id=5 addr=127.0.0.1:1 name= flags=N db=0 watch=0 cmd=client user=default",
	} {
		fields := commands.ReadClientFields(resp.AppendBulkString(nil, line))
		p.srv.clients.fields.Store(&fields)
		w.expect("+OK\r\n", "WATCH", "a", "b")
		w.expect("+OK\r\n", "WATCH", "c")
		got := w.do("CLIENT", "INFO")
		names := fieldName.FindAllString(got, -1)
		if want := fieldName.FindAllString(line, -1); !slices.Equal(names, want) {
			t.Errorf("fields %v, want %v", names, want)
		}
		if !strings.Contains(got, " watch=3 ") {
			t.Errorf("three keys are watched: %s", got)
		}
		w.expect("+OK\r\n", "UNWATCH")
		if got := w.do("CLIENT", "LIST"); !strings.Contains(got, " watch=0 ") {
			t.Errorf("none is: %s", got)
		}
	}
}

// A script behind a refused SCRIPT DEBUG is not run.
func TestScriptBehindDebugIsNotRun(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	script := []string{"EVAL", "return redis.call('set', 'ran', 'yes')", "0"}
	w.do("SCRIPT", "DEBUG", "nonsense")
	w.expect("+PONG\r\n", "EVAL", "return redis.call('PING')", "0")
	for _, mode := range []string{"YES", "sync"} {
		if got := w.do("SCRIPT", "DEBUG", mode); !strings.HasPrefix(got, "-ERR") {
			t.Fatalf("SCRIPT DEBUG: %q", got)
		}
		w.expect("-"+notDebugged+"\r\n", script...)
		w.expect("-"+notDebugged+"\r\n", "EVALSHA", strings.Repeat("a", 40), "0")
		w.expect("+OK\r\n", "LOCK", "l")
		w.expect("-"+notDebugged+"\r\n", append([]string{"FENCED", "l"}, script...)...)
		w.expect("-"+notDebugged+"\r\n", "FENCED", "l", "EVALSHA_RO", strings.Repeat("a", 40), "0")
		w.expect(":1\r\n", "UNLOCK", "l")
		w.expect("+PONG\r\n", "PING")
		w.expect("+OK\r\n", "MULTI")
		w.expect("-"+notInMulti+"\r\n", script...)
		w.expect("+OK\r\n", "DISCARD")
		w.expect(":0\r\n", "EXISTS", "ran")
	}
	w.do("SCRIPT", "DEBUG", "NO")
	w.expect("+OK\r\n", script...)
	w.do("SCRIPT", "DEBUG", "YES")
	w.expect("+RESET\r\n", "RESET")
	w.expect("+OK\r\n", script...)
	w.expect(":1\r\n", "DEL", "ran")

	cli, err := process.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli")
	}
	file := filepath.Join(t.TempDir(), "script.lua")
	if err := os.WriteFile(file, []byte(script[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(p.addr, ":")
	for _, mode := range []string{"--ldb", "--ldb-sync-mode"} {
		cmd := process.Command(cli, "-h", host, "-p", port, mode, "--eval", file)
		cmd.Stdin = strings.NewReader("continue\nquit\n")
		said, _ := cmd.CombinedOutput()
		if !strings.Contains(string(said), "SCRIPT DEBUG") && !strings.Contains(string(said), "script|debug") {
			t.Errorf("redis-cli %s said %q", mode, said)
		}
		w.expect(":0\r\n", "EXISTS", "ran")
	}
}
