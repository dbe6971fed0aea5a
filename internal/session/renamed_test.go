package session

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// renames are the flags of a Redis whose commands have other names, and of a user who may not ask about commands.
var renames = []string{"--rename-command SELECT choose", "--rename-command MULTI begin", "--rename-command FLUSHALL wipe", "--user app on >pw ~* &* +@all -command"}

// A command that redis.conf has renamed is known for what it is also when its user may not run COMMAND: the service account asks.
func TestRenamedCommandsOfThoseWhoMayNotAsk(t *testing.T) {
	t.Parallel()
	server := startRedis(t, renames...)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Deny = []string{"flushall"} })
	const denied = "-ERR 'FLUSHALL' is denied by lockproxy's --deny\r\n"
	w, other := asApp(t, p), asApp(t, p)
	w.expect("-ERR unknown command 'SELECT', with args beginning with: '5' \r\n", "CHOOSE", "5") // by that name this proxy selects databases
	other.expect("+OK\r\n", "SET", "k", "0")
	w.expect("+OK\r\n", "BEGIN")
	other.expect("$1\r\n0\r\n", "GET", "k")
	w.expect("+QUEUED\r\n", "GET", "k")
	w.expect("*1\r\n$1\r\n0\r\n", "EXEC")
	w.expect(denied, "WIPE")
	w.expect("+OK\r\n", "BEGIN")
	if got := w.do("Wipe"); got[0] != '-' {
		t.Errorf("in a transaction: %q", got)
	}
	if got := w.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT ") {
		t.Errorf("EXEC: %q", got)
	}
	other.expect("+OK\r\n", "LOCK", "l")
	other.expect(denied, "FENCED", "l", "WIPE")
	w.expect("$1\r\n0\r\n", "GET", "k")
}

func asApp(t *testing.T, p *proxy) *wire {
	t.Helper()
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "AUTH", "app", "pw")
	return w
}

// While Redis does not say what a command is, it is refused, and does nothing to others: Redis may be busy, say nothing at all, or let nobody
// ask.
func TestCommandsOfWhichRedisSaysNothing(t *testing.T) {
	t.Parallel()
	server := startRedis(t, append(renames, "--busy-reply-threshold 100")...)
	p := startProxy(t, server.URL(), nil)
	refused := func(w *wire, line string) {
		t.Helper()
		other := asApp(t, p)
		if got := w.do("BEGIN"); !strings.HasPrefix(got, line) {
			t.Errorf("BEGIN: %q, want %s", got, line)
		}
		eventually(t, "Redis answers", func() bool { return other.do("PING") == "+PONG\r\n" })
		other.expect("$-1\r\n", "GET", "k")
		w.expect("$-1\r\n", "GET", "k")
	}
	t.Run("busy", func(t *testing.T) {
		script, w := dialWire(t, p.addr), asApp(t, p)
		script.send("EVAL", "local s = redis.call('TIME')[1] while redis.call('TIME')[1] - s < 3 do end return 1", "0")
		eventually(t, "Redis is busy", func() bool { return strings.HasPrefix(w.do("PING"), "-BUSY") })
		refused(w, "-BUSY ")
		script.want(":1\r\n")
	})
	t.Run("hung", func(t *testing.T) {
		w := asApp(t, p)
		w.expect("$-1\r\n", "GET", "k")
		server.Stop()
		continued := time.AfterFunc(patience, server.Cont)
		w.send("BEGIN")
		got := w.frame() // after backend.QuestionTime
		continued.Stop()
		server.Cont()
		if !strings.HasPrefix(got, "-ERR ") && got != "<end>" {
			t.Errorf("BEGIN while Redis hangs: %q", got)
		}
		asApp(t, p).expect("$-1\r\n", "GET", "k")
	})
	t.Run("nobody may ask", func(t *testing.T) {
		server.Do(t, "ACL", "SETUSER", "default", "-command|info")
		refused(asApp(t, p), "-NOPERM neither this user nor the service account may run COMMAND INFO, by which lockproxy learns what 'BEGIN' is")
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "SET", "k2", "v") // what is listed goes on
	})
}

// A command that Redis does not have goes over a connection of its client's own, which serves the next client if nothing has come of it.
func TestUnknownCommandsHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	w.expect("$-1\r\n", "GET", "k")
	unknown := func() {
		t.Helper()
		w.expect("-ERR unknown command 'nonsense', with args beginning with: 'a' \r\n", "nonsense", "a")
		eventually(t, "its connection waits for the next client", func() bool {
			used, idle := p.srv.o.Node.DedicatedCount()
			return used == 0 && idle == 1
		})
	}
	unknown()
	eventually(t, "no further one makes a connection", func() bool { // the proxy makes connections for questions of its own now and then
		before := connectionsReceived(t, server)
		for range 3 {
			unknown()
		}
		return connectionsReceived(t, server)-before <= 1 // that of this question
	})
	long := strings.Repeat("x", 1<<20)
	w.expect("-ERR unknown command '"+long[:128]+"', with args beginning with: 'a' \r\n", long, "a")
	w.expect("+OK\r\n", "MULTI")
	if got := w.do(long); got[0] != '-' {
		t.Errorf("in a transaction: %.100q", got)
	}
	w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
}

// connectionsReceived is how many connections Redis has had so far.
func connectionsReceived(t *testing.T, server *testredis.Server) int {
	t.Helper()
	_, rest, _ := strings.Cut(text(server.Do(t, "INFO", "stats")), "total_connections_received:")
	number, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
