package session

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// CLIENT HELP tells what Redis does not know of, too.
func TestClientHelp(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	want, got := dialWire(t, server.Addr()).do("CLIENT", "HELP"), dialWire(t, p.addr).do("CLIENT", "HELP")
	_, want, _ = strings.Cut(want, "\r\n")
	_, got, _ = strings.Cut(got, "\r\n")
	ours := "+CAPA <capability> [<capability> ...]\r\n+    Say what this client can take: lock-lost, the push of a lost lock.\r\n"
	if strings.Replace(got, ours, "", 1) != want || !strings.HasSuffix(got, ours+"+HELP\r\n+    Prints this help.\r\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// CLIENT KILL ends whatever its victim is doing, and what Redis knew of it.
func TestKillEndsWhatever(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	killer := dialWire(t, p.addr)
	killer.expect("+OK\r\n", "LOCK", "l")
	for what, start := range map[string]func(*wire){
		"subscribed": func(w *wire) { w.do("SUBSCRIBE", "a") },
		"blocked":    func(w *wire) { w.send("BLPOP", "list", "0") },
		"waiting":    func(w *wire) { w.send("LOCK", "l", "BLOCK", "0") },
		"multi":      func(w *wire) { w.do("MULTI"); w.do("SET", "k", "v") },
		"idle":       func(w *wire) { w.do("PING") },
	} {
		victim := dialWire(t, p.addr)
		start(victim)
		flags := map[string]string{"subscribed": "P", "blocked": "b", "waiting": "b", "multi": "x", "idle": "N"}[what]
		eventually(t, what, func() bool { return strings.Contains(lineOf(t, p, killer, victim), " flags="+flags+" ") })
		killer.expect(":1\r\n", "CLIENT", "KILL", "ID", p.idOf(victim))
		if got := victim.frame(); got != "<end>" {
			t.Errorf("%s: %q", what, got)
		}
		eventually(t, "its connection is gone", func() bool { return p.dedicatedCount() == 0 })
	}
	killer.expect(":0\r\n", "EXISTS", "k")
	killer.expect(":1\r\n", "UNLOCK", "l")
	killer.expect("+OK\r\n", "LOCK", "l") // nobody who was killed took it
}

func TestKillFilters(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	killer, sub, plain := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	sub.do("SUBSCRIBE", "a")
	plain.do("PING")
	id, addr := p.idOf(plain), plain.conn.LocalAddr().String()
	for _, line := range []string{"ID " + id + " TYPE pubsub", "ID " + id + " ADDR 127.0.0.1:1", "ID " + id + " LADDR 127.0.0.1:1", "MAXAGE 3600",
		"ID " + p.idOf(killer), "TYPE replica", "TYPE slave", "TYPE master", "ADDR " + addr + " ID " + p.idOf(sub)} {
		killer.expect(":0\r\n", append([]string{"CLIENT", "KILL"}, strings.Fields(line)...)...)
	}
	killer.expect("-ERR maxage is not an integer or out of range\r\n", "CLIENT", "KILL", "MAXAGE", "x")
	killer.expect("-ERR maxage should be greater than 0\r\n", "CLIENT", "KILL", "MAXAGE", "0")
	killer.expect("-ERR No such user 'nosuch'\r\n", "CLIENT", "KILL", "USER", "nosuch")
	killer.expect(":1\r\n", "CLIENT", "KILL", "TYPE", "pubsub", "USER", "default", "LADDR", p.addr, "SKIPME", "no")
	if got := sub.frame(); got != "<end>" {
		t.Errorf("the subscriber: %q", got)
	}
	bystander := dialWire(t, p.addr)
	bystander.expect("+PONG\r\n", "PING")
	killer.expect(":1\r\n", "CLIENT", "KILL", "TYPE", "normal", "ADDR", addr)
	if got := plain.frame(); got != "<end>" {
		t.Errorf("a normal one: %q", got)
	}
	killer.expect("+OK\r\n", "MULTI")
	killer.expect("-"+notInMulti+"\r\n", "CLIENT", "KILL", "TYPE", "normal") // at Redis, those were all proxies
	killer.expect("+OK\r\n", "DISCARD")
	killer.expect("+OK\r\n", "CLIENT", "KILL", killer.conn.LocalAddr().String())
	if got := killer.frame(); got != "<end>" {
		t.Errorf("who killed itself: %q", got)
	}
	bystander.expect("+PONG\r\n", "PING")
}

// A filter that is given and empty is nobody's, not everybody's.
func TestKillByAnEmptyFilter(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	direct, killer, holder := dialWire(t, server.Addr()), dialWire(t, p.addr), dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l")
	for _, filter := range [][]string{{""}, {"ADDR", ""}, {"LADDR", ""}, {"USER", ""}, {"ADDR", "", "LADDR", ""}, {"ADDR", "", "SKIPME", "no"}, {"USER", "default", "ADDR", ""},
		{"ID", "0"}, {"ID", ""}, {"TYPE", ""}, {"SKIPME", ""}} {
		args := append([]string{"CLIENT", "KILL"}, filter...)
		if want, got := direct.do(args...), killer.do(args...); got != want {
			t.Errorf("%q: %q, want %q", filter, got, want)
		}
		holder.expect("+PONG\r\n", "PING")
		killer.expect("+PONG\r\n", "PING")
	}
	holder.expect(":1\r\n", "UNLOCK", "l")
}

func TestKillOfTheOld(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		old, killer := b.dial(t), b.dial(t)
		old.expect("+PONG\r\n", "PING")
		killer.expect("+PONG\r\n", "PING")
		time.Sleep(10*time.Minute - time.Second)
		young := b.dial(t)
		young.expect("+PONG\r\n", "PING")
		killer.expect(":0\r\n", "CLIENT", "KILL", "MAXAGE", "600")
		time.Sleep(2 * time.Second)
		killer.expect(":1\r\n", "CLIENT", "KILL", "MAXAGE", "600")
		if got := old.frame(); got != "<end>" {
			t.Errorf("the old one: %q", got)
		}
		young.expect("+PONG\r\n", "PING")
	})
}

// A name given within a transaction is that connection's: nobody else gets it.
func TestNameInTransaction(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "CLIENT", "SETNAME", "mine")
	w.expect("*1\r\n+OK\r\n", "EXEC")
	eventually(t, "the connection is gone", func() bool { return p.dedicatedCount() == 0 })
	other := dialWire(t, p.addr)
	other.expect("+OK\r\n", "MULTI")
	other.expect("+QUEUED\r\n", "CLIENT", "GETNAME")
	other.expect("*1\r\n$-1\r\n", "EXEC")
}

// Whatever a user may not run at Redis, it may not run here, in the same words.
func TestRightsToWhatIsAnsweredHere(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user root on nopass ~* &* +@all", "--user poor on >pw ~* -@all +ping +multi +exec", "--user some on >pw ~* -@all +client|id +client|list")
	url := strings.Replace(server.URL(), "redis://", "redis://root:x@", 1)
	p := startProxy(t, url, nil)
	for _, user := range []string{"poor", "some"} {
		for range 2 { // the second time from memory
			direct, through := dialWire(t, server.Addr()), dialWire(t, p.addr)
			for _, w := range []*wire{direct, through} {
				w.expect("+OK\r\n", "AUTH", user, "pw")
			}
			for _, line := range []string{"CLIENT SETNAME x", "CLIENT GETNAME", "CLIENT INFO", "CLIENT NO-EVICT on", "CLIENT REPLY on", "CLIENT KILL ID 99999",
				"CLIENT UNBLOCK 99999", "CLIENT LIST ID 99999", "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT HELP", "CLIENT CACHING yes", "COMMAND", "INFO", "PING"} {
				args := strings.Fields(line)
				if want, got := direct.do(args...), through.do(args...); want != got {
					t.Errorf("%s, %s: %q, want %q", user, line, got, want)
				}
			}
			if got := through.do("CLIENT", "ID"); (user == "some") != strings.HasPrefix(got, ":") {
				t.Errorf("%s, CLIENT ID: %q", user, got)
			}
		}
	}
}

// Whatever is upstream, CLUSTER says what a Redis says that is no cluster.
func TestNoCluster(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	node := testredis.Start(t, "--cluster-enabled yes")
	p, q := startProxy(t, server.URL(), nil), startProxy(t, node.URL(), nil)
	direct, through, clustered := dialWire(t, server.Addr()), dialWire(t, p.addr), dialWire(t, q.addr)
	for _, line := range []string{"CLUSTER", "cluster info", "CLUSTER INFO x", "CLUSTER NODES", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER MYID", "CLUSTER KEYSLOT", "CLUSTER KEYSLOT a",
		"CLUSTER RESET", "CLUSTER HELP", "CLUSTER nosuch", "CLUSTER FAILOVER TAKEOVER", "READONLY", "READWRITE", "ASKING"} {
		want := direct.do(strings.Fields(line)...)
		for _, w := range []*wire{through, clustered} {
			if got := w.do(strings.Fields(line)...); got != want {
				t.Errorf("%s: %q, want %q", line, got, want)
			}
		}
	}
	for _, section := range []string{"server", "cluster", "all"} {
		for _, w := range []*wire{through, clustered} {
			info := w.do("INFO", section)
			if strings.Contains(info, "redis_mode:cluster") || strings.Contains(info, "cluster_enabled:1") ||
				!strings.Contains(info, "redis_mode:standalone") && !strings.Contains(info, "cluster_enabled:0") {
				t.Errorf("INFO %s: %.500q", section, info)
			}
		}
	}
}

func TestUnixClientIsShown(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, p, ln, downstream.Entry{})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := &wire{t: t, conn: conn}
	w.expect("+OK\r\n", "CLIENT", "NO-TOUCH", "ON")
	info := w.do("CLIENT", "INFO")
	if !strings.Contains(info, " addr="+path+":0 ") || !strings.Contains(info, " flags=UT ") || !strings.Contains(info, " qbuf=26 ") {
		t.Errorf("CLIENT INFO: %q", info)
	}
}

// Who may not know its connection's number at Redis, or has not logged in, is no target, and loses nothing by being named.
func TestTrackingRedirectToUnknownNumber(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	server.Do(t, "CONFIG", "SET", "requirepass", "pw")
	target, w := dialWire(t, p.addr), dialWire(t, p.addr)
	if got := target.do("PING"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Fatal(got)
	}
	w.expect("+OK\r\n", "AUTH", "pw")
	if got := w.do("CLIENT", "TRACKING", "ON", "REDIRECT", p.idOf(target)); !strings.Contains(got, "has no connection of its own") {
		t.Errorf("got %q", got)
	}
	target.expect("+OK\r\n", "AUTH", "pw")
	target.expect("+PONG\r\n", "PING")
	eventually(t, "none is kept", func() bool { return p.dedicatedCount() == 0 })
}

// What dashboards, frameworks and libraries ask when they start or show a server works as it does at Redis.
func TestWhatToolsAsk(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--enable-debug-command yes", "--slowlog-log-slower-than -1") // any command is slow on a busy machine
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Allow = []string{"debug"} })
	lines := `INFO|INFO server|INFO commandstats|INFO everything|INFO nosuch|CONFIG GET maxmemory-policy|CONFIG GET notify-keyspace-events|CONFIG SET notify-keyspace-events Ex|CONFIG SET nosuch 1|
		CONFIG GET timeout databases|CONFIG RESETSTAT|CONFIG REWRITE|COMMAND COUNT x|COMMAND HELP|SLOWLOG GET 10|SLOWLOG LEN|SLOWLOG RESET|SLOWLOG HELP|LATENCY LATEST|LATENCY HISTORY fork|
		LATENCY RESET|LATENCY DOCTOR|LATENCY HISTOGRAM|LATENCY HELP|OBJECT HELP|SET k v|OBJECT ENCODING k|OBJECT FREQ k|OBJECT IDLETIME k|OBJECT REFCOUNT k|MEMORY USAGE k|MEMORY STATS|
		MEMORY DOCTOR|MEMORY PURGE|MEMORY MALLOC-STATS|MODULE LIST|DBSIZE|LASTSAVE|TIME|ROLE|ACL WHOAMI|ACL LIST|ACL LOG|ACL CAT|ACL GETUSER default|PUBSUB CHANNELS|PUBSUB NUMPAT|
		PUBSUB NUMSUB a|ECHO tracer|CLIENT SETNAME x|CLIENT NO-EVICT on|CLIENT PAUSE 1|CLIENT UNPAUSE|FUNCTION LIST|FUNCTION STATS|SCRIPT EXISTS a|SCRIPT KILL|LOLWUT|DEBUG JMAP|
		DEBUG SLEEP 0|DEBUG OBJECT k|DEBUG SET-ACTIVE-EXPIRE 1|SCAN 0 COUNT 10|KEYS *|TYPE k|LATENCY GRAPH fork|SENTINEL MASTERS|CLUSTER INFO|CLUSTER NODES|READONLY|WAIT 0 1|FAILOVER ABORT|REPLICAOF NO ONE`
	for _, proto := range []string{"2", "3"} {
		direct, through := dialWire(t, server.Addr()), dialWire(t, p.addr)
		for _, w := range []*wire{direct, through} {
			w.do("HELLO", proto)
		}
		for _, line := range strings.Split(strings.Join(strings.Fields(lines), " "), "|") {
			args := strings.Fields(line)
			want, got := direct.do(args...), through.do(args...)
			if kind(want) != kind(got) {
				t.Errorf("RESP%s %s: %.200q, want %.200q", proto, line, got, want)
			}
		}
	}
}

// kind is what a reply is: an error's or a status' text, otherwise its type. Numbers change with time.
func kind(reply string) string {
	reply, _, _ = strings.Cut(reply, " lru:") // of DEBUG OBJECT: seconds
	switch reply[0] {
	case '-', '+':
		return reply
	case ':':
		return ":"
	}
	return fmt.Sprintf("%c, empty %v", reply[0], strings.HasPrefix(reply[1:], "0\r\n"))
}

func TestMonitorAndDebugAreOff(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--enable-debug-command yes")
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	w.expect("-ERR 'MONITOR' is off in lockproxy, --allow monitor switches it on\r\n", "MONITOR")
	w.expect("-ERR 'DEBUG' is off in lockproxy, --allow debug switches it on\r\n", "DEBUG", "SLEEP", "0")
	q := startProxy(t, server.URL(), func(o *ServerOptions) { o.Allow = []string{"Monitor"} })
	m, other := dialWire(t, q.addr), dialWire(t, q.addr)
	m.expect("+OK\r\n", "MONITOR")
	eventually(t, "CLIENT LIST shows it", func() bool { return strings.Contains(lineOf(t, q, other, m), " flags=O ") })
	other.expect("+OK\r\n", "SET", "a b", "v")
	for {
		if line := m.frame(); strings.HasSuffix(line, "\"SET\" \"a b\" \"v\"\r\n") {
			break
		} else if line == "<end>" {
			t.Fatal("MONITOR does not show a SET")
		}
	}
}
