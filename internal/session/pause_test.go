package session

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// SHUTDOWN waits for replicas that lag, and pauses writes meanwhile: others are served, and SHUTDOWN ABORT comes through.
func TestShutdownIsAborted(t *testing.T) {
	master := testredis.Start(t, "--repl-diskless-sync-delay 0")
	if _, err := master.Dial(t).Do("CONFIG", "SET", "shutdown-timeout", 600); err != nil {
		t.Skip("before Redis 7 SHUTDOWN waits for nobody: ", err)
	}
	replica := testredis.Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port()))
	p := startProxy(t, master.URL(), nil)
	ends, reads, writes := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	writes.expect("+OK\r\n", "SET", "k", "v")
	eventually(t, "the replica is there", func() bool { return reads.do("WAIT", "1", "0") == ":1\r\n" })
	replica.Stop()
	defer replica.Cont()
	writes.expect("+OK\r\n", "SET", "k", "lags")
	ends.send("SHUTDOWN", "NOSAVE")
	eventually(t, "Redis is about to end", func() bool { return strings.Contains(reads.do("INFO", "server"), "\r\nshutdown_in_milliseconds:") })
	writes.send("SET", "k", "paused")
	for range 100 {
		reads.expect("$4\r\nlags\r\n", "GET", "k")
	}
	reads.expect("+OK\r\n", "SHUTDOWN", "ABORT")
	ends.want("-ERR Errors trying to SHUTDOWN. Check logs.\r\n")
	writes.want("+OK\r\n")
	reads.expect("$6\r\npaused\r\n", "GET", "k")
}

// While Redis pauses writes, whoever has asked for that, those of all clients wait on one connection that reads do not use, and nobody
// needs one of their own.
func TestPausedWritesHoldNobodyUp(t *testing.T) {
	server := testredis.Start(t)
	p, budget := budgeted(t, server, 1)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "SET", "k", "v")
	var writers []*wire
	reads := func(first ...string) {
		server.Do(t, "CLIENT", "PAUSE", 600_000, "WRITE")
		for range 10 {
			one := dialWire(t, p.addr)
			one.send(first...)
			one.send("SET", "k", "w")
			one.send("PUBLISH", "c", "m")
			writers = append(writers, one)
		}
		eventually(t, "the writes wait", func() bool {
			return strings.Contains(w.do("INFO", "clients"), "\r\nblocked_clients:1\r\n")
		})
		for range 100 {
			w.expect(":0\r\n", "EXISTS", "none")
			w.expect("+PONG\r\n", "PING")
		}
	}
	for first, reply := range map[string]string{"SET": "+OK\r\n", "PFADD": ":0\r\n", "PFCOUNT": ":1\r\n", "PUBLISH": ":0\r\n", "SPUBLISH": ":0\r\n"} {
		if first == "SPUBLISH" && server.Do(t, "COMMAND", "INFO", first).([]any)[0] == nil {
			continue // before Redis 7
		}
		w.do("PFADD", "h", "x")
		word := map[string][]string{"PFCOUNT": {first, "h"}, "PFADD": {first, "h", "x"}}[first]
		if word == nil {
			word = []string{first, "c", "x"}
		}
		reads(word...)
		server.Do(t, "CLIENT", "UNPAUSE")
		for _, one := range writers {
			one.want(reply)
			one.want("+OK\r\n")
			one.want(":0\r\n")
		}
		writers = nil
	}
	reads("GET", "none")
	if used, _ := budget.Used(); used != 2 {
		t.Errorf("%d connections, want that of reads and that of writes", used)
	}
	w.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	server.Do(t, "CLIENT", "UNPAUSE")
	for _, one := range writers {
		one.want("$-1\r\n")
		one.want("+OK\r\n")
		one.want(":1\r\n")
	}
}

// A client cannot have the proxy keep what no bound of memory counts: it may call itself anything, in 4096 bytes.
func TestLongNames(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startRedis(t).URL(), nil)
	w := dialWire(t, p.addr)
	long, fits := strings.Repeat("a", 4097), strings.Repeat("a", 4096)
	const tooLong = " cannot be longer than 4096 bytes.\r\n"
	w.expect("-ERR Client names"+tooLong, "CLIENT", "SETNAME", long)
	w.expect("-ERR LIB-NAME"+tooLong, "CLIENT", "SETINFO", "LIB-NAME", long)
	w.expect("-ERR lib-ver"+tooLong, "CLIENT", "SETINFO", "lib-ver", long)
	w.expect("-ERR Client names"+tooLong, "HELLO", "2", "SETNAME", long)
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "CLIENT", "SETNAME", long)
	w.expect("*1\r\n-ERR Client names cannot contain spaces, newlines or special characters.\r\n", "EXEC")
	w.expect("$-1\r\n", "CLIENT", "GETNAME")
	w.expect("+OK\r\n", "CLIENT", "SETNAME", fits)
	w.expect("$4096\r\n"+fits+"\r\n", "CLIENT", "GETNAME")
}

// Whatever others have called themselves at Redis, CLIENT LIST has none of it sent to the proxy: all clients would wait for that.
func TestLongNamesAtRedis(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	server := startRedis(t)
	p := startProxy(t, server.URL(), nil)
	for _, subscribes := range []bool{false, true} {
		other := server.Dial(t)
		if _, err := other.Do("CLIENT", "SETNAME", strings.Repeat("n", 4*most)); err != nil {
			t.Fatal(err)
		}
		if subscribes {
			if _, err := other.Do("SUBSCRIBE", "c"); err != nil {
				t.Fatal(err)
			}
		}
	}
	sent := func() int {
		info, _ := redis.String(server.Do(t, "INFO", "stats"), nil)
		n, err := strconv.Atoi(upstream.InfoField(info, "total_net_output_bytes"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, w := sent(), dialWire(t, p.addr)
	for range 2 {
		if got := w.do("CLIENT", "LIST"); !strings.Contains(got, "id=") || !strings.Contains(got, " tot-mem=") {
			t.Errorf("CLIENT LIST: %q", got)
		}
	}
	if n := sent() - before; n > most {
		t.Errorf("Redis has sent %d bytes", n)
	}
}
