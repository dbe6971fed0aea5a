package session

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
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

// While writes are paused each client has a connection of its own. Where there is room for no more of them reads go over the shared
// one; a write is refused, as all would wait behind it.
func TestPausedWritesOverTheBound(t *testing.T) {
	p, _ := budgeted(t, testredis.Start(t), 1)
	w, holds := dialWire(t, p.addr), dialWire(t, p.addr)
	w.expect("+OK\r\n", "SET", "k", "v")
	w.expect("+OK\r\n", "CLIENT", "PAUSE", "600000", "WRITE")
	// What a command had for itself is given back a moment after its reply.
	eventually(t, "there is room", func() bool { return holds.do("SUBSCRIBE", "c") == "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n" })
	w.expect("$1\r\nv\r\n", "GET", "k")
	w.expect(overBound, "SET", "k", "w")
	w.expect("$1\r\nv\r\n", "GET", "k")
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
