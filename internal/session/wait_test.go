package session

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// waitAtLeast is how long a WAIT of 500 ms takes at least, by a clock that may be a little ahead of Redis'.
const waitAtLeast = 400 * time.Millisecond

// startReplicated starts a master with one replica that is online.
func startReplicated(t *testing.T, args ...string) (master, replica *testredis.Server) {
	t.Helper()
	args = append(args, "--repl-diskless-sync-delay 0")
	master = testredis.Start(t, args...)
	replica = testredis.Start(t, append(args, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port()))...)
	eventually(t, "the replica is online", func() bool {
		return strings.Contains(string(master.Do(t, "INFO", "replication").([]byte)), "state=online")
	})
	return master, replica
}

// takes says how long a call takes that has this reply.
func (w *wire) takes(want string, args ...string) time.Duration {
	w.t.Helper()
	began := time.Now()
	w.expect(want, args...)
	return time.Since(began)
}

// expectWaits expects a WAIT to have this reply, once it has waited for all its 500 ms.
func (w *wire) expectWaits(want string, args ...string) {
	w.t.Helper()
	if took := w.takes(want, args...); took < waitAtLeast {
		w.t.Errorf("%q took only %v", args, took)
	}
}

// WAIT is about what the client wrote on the shared connection too, also when its user may not PING.
func TestWaitCoversSharedWrites(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	master.Do(t, "ACL", "SETUSER", "u", "on", "nopass", "~*", "+set", "+wait", "+hello", "+client|id", "+auth")
	p := startProxy(t, master.URL(), nil)
	for _, user := range []string{"", "u"} {
		w := dialWire(t, p.addr)
		if user != "" {
			w.expect("+OK\r\n", "AUTH", user, "any")
		}
		w.expect("+OK\r\n", "SET", "k", "v")
		w.expect(":1\r\n", "WAIT", "1", "0")
		replica.Stop()
		w.expect("+OK\r\n", "SET", "k", "v2")
		w.expectWaits(":0\r\n", "WAIT", "1", "500")
		w.send("WAIT", "1", "0")
		replica.Cont()
		w.want(":1\r\n")
	}
}

// So is WAITAOF, of the master's file and of a replica's.
func TestWaitaofCoversSharedWrites(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	master, replica := startReplicated(t, "--appendonly yes", "--appendfsync no")
	w := dialWire(t, startProxy(t, master.URL(), nil).addr)
	w.expect("+OK\r\n", "SET", "k", "v")
	w.expectWaits("*2\r\n:0\r\n:0\r\n", "WAITAOF", "1", "0", "500")
	master.Do(t, "CONFIG", "SET", "appendfsync", "always")
	replica.Do(t, "CONFIG", "SET", "appendfsync", "always")
	w.expect("*2\r\n:1\r\n:1\r\n", "WAITAOF", "1", "1", "0")
	replica.Stop()
	defer replica.Cont()
	w.expect("+OK\r\n", "SET", "k", "v2")
	w.expectWaits("*2\r\n:1\r\n:0\r\n", "WAITAOF", "1", "1", "500")
}

// Without a replica, and without a backlog for one, WAITAOF is about the writes all the same.
func TestWaitaofWithoutReplicas(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	server := testredis.Start(t, "--appendonly yes", "--appendfsync no")
	w := dialWire(t, startProxy(t, server.URL(), nil).addr)
	w.expect("+OK\r\n", "SET", "k", "v")
	w.expectWaits("*2\r\n:0\r\n:0\r\n", "WAITAOF", "1", "0", "500")
	server.Do(t, "CONFIG", "SET", "appendfsync", "always")
	w.expect("*2\r\n:1\r\n:0\r\n", "WAITAOF", "1", "0", "0")
}

// A client with a connection of its own waits for what it has written there as well, and keeps its state there.
func TestWaitOfAClientWithItsOwnConnection(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	w := dialWire(t, startProxy(t, master.URL(), nil).addr)
	replica.Stop()
	w.expect("+OK\r\n", "SET", "shared", "v")
	w.expect("+OK\r\n", "WATCH", "k")
	w.expectWaits(":0\r\n", "WAIT", "1", "500")
	w.expect("+OK\r\n", "SET", "own", "v")
	w.expectWaits(":0\r\n", "WAIT", "1", "500")
	w.send("WAIT", "1", "0")
	replica.Cont()
	w.want(":1\r\n")
	master.Do(t, "SET", "k", "v")
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "PING")
	w.expect("*-1\r\n", "EXEC")
}

// The write in front of a WAIT adds nothing, tells nobody of a key, and is not made where Redis does without.
func TestWaitLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--notify-keyspace-events KEA")
	p := startProxy(t, server.URL(), nil)
	hears, w := dialWire(t, p.addr), dialWire(t, p.addr)
	w.expect("+OK\r\n", "LOCK", "l") // the proxy has had its own lock for a try by then
	w.expect(":1\r\n", "UNLOCK", "l")
	hears.expect("*3\r\n$10\r\npsubscribe\r\n$10\r\n__key*__:*\r\n:1\r\n", "PSUBSCRIBE", "__key*__:*")
	w.expect(":0\r\n", "WAIT", "0", "0")
	w.expect("*0\r\n", "KEYS", "*")
	w.expect("*0\r\n", "FUNCTION", "LIST")
	hears.expect("*2\r\n$4\r\npong\r\n$0\r\n\r\n", "PING")
	stats := w.do("INFO", "commandstats")
	if made := strings.Contains(stats, "cmdstat_function|restore:calls=1,"); made != testredis.AtLeast(t, 7, 2) {
		t.Errorf("a write: %v", made)
	}
}

// WAIT of a user who may not make the write is served by the service account, or refused if that may not either; it never has a count that is
// not true. Who may not WAIT is not served.
func TestWaitOfUsersWithFewRights(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	server := testredis.Start(t)
	server.Do(t, "ACL", "SETUSER", "waits", "on", "nopass", "+wait", "+waitaof", "+hello", "+client|id")
	server.Do(t, "ACL", "SETUSER", "writes", "on", "nopass", "+@all", "-wait")
	server.Do(t, "ACL", "SETUSER", "service", "on", ">secret", "~*", "&*", "+@all", "-function|restore", "-waitaof")
	p := startProxy(t, strings.Replace(server.URL(), "redis://", "redis://service:secret@", 1), nil)
	as := func(user string) *wire {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "AUTH", user, "any")
		return w
	}
	waits, writes := as("waits"), as("writes")
	const lacks = " needs a write of lockproxy's own in front, on Redis 7.2 and newer: this user lacks +function|restore, and the service account lacks that or +"
	writes.expect("-NOPERM User writes has no permissions to run the 'wait' command\r\n", "WAIT", "0", "0")
	waits.expect("-NOPERM WAIT"+lacks+"wait\r\n", "WAIT", "0", "0")
	server.Do(t, "ACL", "SETUSER", "service", "+function|restore")
	waits.expect(":0\r\n", "WAIT", "1", "1")
	waits.expect("-NOPERM WAITAOF"+lacks+"waitaof\r\n", "WAITAOF", "0", "1", "1")
	server.Do(t, "ACL", "SETUSER", "service", "+waitaof")
	waits.expect("*2\r\n:0\r\n:0\r\n", "WAITAOF", "0", "1", "1")
	writes.expect("-NOPERM User writes has no permissions to run the 'wait' command\r\n", "WAIT", "0", "0")
}

// What Redis refuses of a WAIT it refuses in its own words; a write that it does not make is an error, and no count.
func TestWaitThatRedisRefuses(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	master, replica := startReplicated(t)
	w := dialWire(t, startProxy(t, master.URL(), nil).addr)
	const needs = "WAIT needs a write of lockproxy's own in front, on Redis 7.2 and newer\r\n"
	w.expect("-ERR value is not an integer or out of range\r\n", "WAIT", "x", "0")
	w.expect("-ERR timeout is negative\r\n", "WAIT", "1", "-1")
	w.expect("-ERR timeout is out of range\r\n", "WAIT", "1", "9223372036854775807")
	w.expect("-ERR wrong number of arguments for 'wait' command\r\n", "WAIT", "1")
	w.expect("-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n", "WAITAOF", "1", "0", "0")
	master.Do(t, "CONFIG", "SET", "maxmemory", 1)
	w.expect("-OOM command not allowed when used memory > 'maxmemory': "+needs, "WAIT", "1", "0")
	master.Do(t, "CONFIG", "SET", "maxmemory", 0)
	master.Do(t, "CONFIG", "SET", "min-replicas-to-write", 2)
	w.expect("-NOREPLICAS Not enough good replicas to write: "+needs, "WAIT", "1", "0")
	master.Do(t, "CONFIG", "SET", "min-replicas-to-write", 0)
	w.expect(":1\r\n", "WAIT", "1", "0")

	reads := dialWire(t, startProxy(t, replica.URL(), nil).addr)
	if got := reads.do("WAIT", "1", "0"); !strings.HasPrefix(got, "-ERR WAIT cannot be used with replica instances.") {
		t.Errorf("%q", got)
	}
}

// While writes are paused a WAIT that has a time does not wait for ever.
func TestWaitWhileWritesArePaused(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	server := testredis.Start(t)
	w := dialWire(t, startProxy(t, server.URL(), nil).addr)
	w.expect(":0\r\n", "WAIT", "0", "0")
	server.Do(t, "CLIENT", "PAUSE", 600_000, "WRITE")
	w.expect("-ERR Redis has made no write in time: WAIT needs a write of lockproxy's own in front, on Redis 7.2 and newer\r\n", "WAIT", "1", "500")
	w.send("WAIT", "0", "0")
	server.Do(t, "CLIENT", "UNPAUSE")
	w.want(":0\r\n")
}

// In a transaction no write can be made in front: WAIT is an error there, and aborts it. Before 7.2 Redis needs none.
func TestWaitInATransaction(t *testing.T) {
	t.Parallel()
	w := dialWire(t, startProxy(t, testredis.Start(t).URL(), nil).addr)
	w.expect("+OK\r\n", "MULTI")
	if !testredis.AtLeast(t, 7, 2) {
		w.expect("+QUEUED\r\n", "WAIT", "1", "0")
		w.expect("*1\r\n:0\r\n", "EXEC")
		return
	}
	w.expect("-ERR WAIT inside a transaction is not supported by lockproxy on Redis 7.2 and newer: send it after EXEC\r\n", "WAIT", "1", "0")
	w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
	w.expect(":0\r\n", "WAIT", "0", "0")
}

// A WAIT is ended by CLIENT UNBLOCK, and with its client; its connection is given back.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	back := func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == 0 }
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	id := strings.Trim(w.do("CLIENT", "ID"), ":\r\n")
	waiting := func() bool { return strings.Contains(other.do("CLIENT", "LIST", "ID", id), " flags=b ") }
	for how, want := range map[string]string{"TIMEOUT": ":0\r\n", "ERROR": "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"} {
		w.send("WAIT", "1", "0")
		eventually(t, "it waits", waiting)
		eventually(t, "it was unblocked", func() bool { return other.do("CLIENT", "UNBLOCK", id, how) == ":1\r\n" })
		w.want(want)
	}
	eventually(t, "the connection was given back", back)
	w.send("WAIT", "1", "0")
	eventually(t, "it waits", waiting)
	w.conn.Close()
	eventually(t, "the connection was given back", back)
}

// A client whose master dies while it waits is closed, as Redis would have closed it; one that holds a lock gets an error.
func TestWaitWhoseMasterDies(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w, holder, other := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l")
	w.send("WAIT", "1", "0")
	holder.send("WAIT", "1", "0")
	eventually(t, "both wait", func() bool { return strings.Count(other.do("CLIENT", "LIST"), " flags=b ") == 2 })
	server.Kill()
	if got := w.rest(); got != "" {
		t.Errorf("%q", got)
	}
	if got := holder.frame(); !strings.HasPrefix(got, "-ERR upstream ") {
		t.Errorf("%q", got)
	}
}

// The embedded store counts without a write, which it could not make.
func TestWaitOfTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	store := miniredis.RunT(t)
	w := dialWire(t, startProxy(t, "redis://"+store.Addr(), func(o *ServerOptions) { o.Embedded = true }).addr)
	w.expect(":0\r\n", "WAIT", "1", "0")
}
