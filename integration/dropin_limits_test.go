package integration

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestDropinMaxClients(t *testing.T) {
	direct := testredis.Start(t, "--maxclients 3")
	behind := testredis.Start(t)
	p := startProxy(t, behind.URL(), "--max-clients", "3")
	var said []string
	for _, addr := range []string{direct.Addr(), p.Addr()} {
		var first *wire
		eventually(t, "three clients are in", func() bool { // those of the harness may not have left
			first = dial(t, addr)
			second, third := dial(t, addr), dial(t, addr)
			for _, w := range []*wire{first, second, third} {
				if reply, err := w.try("PING"); err != nil || reply != "+PONG\r\n" {
					first.close()
					second.close()
					third.close()
					return false
				}
			}
			return true
		})
		said = append(said, dial(t, addr).untilEnd(""))
		if got := first.do("PING"); got != "+PONG\r\n" {
			t.Errorf("a client that was in: %q", got)
		}
		first.close()
		eventually(t, "the place is free", func() bool {
			reply, err := dial(t, addr).try("PING")
			return err == nil && reply == "+PONG\r\n"
		})
	}
	if said[0] != said[1] || !strings.Contains(said[1], "max number of clients") {
		t.Errorf("one client too many: lockproxy %q, redis %q", said[1], said[0])
	}
}

// What breaks the protocol or a limit is answered in Redis' words and ends the connection, as there.
func TestDropinProtocolErrors(t *testing.T) {
	direct := testredis.Start(t, "--proto-max-bulk-len 1mb")
	behind := testredis.Start(t)
	p := startProxy(t, behind.URL(), "--max-bulk", "1mb")
	mb := strings.Repeat("x", 1<<20)
	for _, input := range []string{
		"*1\r\n$-1\r\n", "*1\r\nxPING\r\n", "*1\r\n$abc\r\n", "*1\r\n$+4\r\nPING\r\n", "*abc\r\n", "*2147483648\r\n", "*-9223372036854775809\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n" + mb + "\r\nQUIT\r\n",
		"GET \"unbalanced\r\n", "GET 'un'balanced\r\n", "SET k v\r\nGET k\r\n*1\r\n:1\r\nSET k w\r\n", "*0\r\n*-1\r\n\r\nPING\r\nQUIT\r\n",
		strings.Repeat("y", 70<<10), "*" + strings.Repeat("1", 70<<10), "*1\r\n$" + strings.Repeat("1", 70<<10),
	} {
		want, got := dial(t, direct.Addr()).untilEnd(input), dial(t, p.Addr()).untilEnd(input)
		if want != got {
			t.Errorf("%s\n  redis     %q\n  lockproxy %q", quoted(input), want, got)
		}
	}
	if got := dial(t, p.Addr()).do("GET", "k"); len(got) != 1<<20+len("$1048576\r\n\r\n") && got != "$1\r\nv\r\n" {
		t.Errorf("k: %s", quoted(got))
	}
}

func TestDropinMaxArgsAndCommand(t *testing.T) {
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), "--max-args", "10", "--max-bulk", "1kb", "--max-command", "2kb")
	if got := dial(t, p.Addr()).do("DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9"); got != ":0\r\n" {
		t.Errorf("10 arguments: %q", got)
	}
	kb := strings.Repeat("x", 1000)
	for want, args := range map[string][]string{
		"-ERR Protocol error: invalid multibulk length\r\n": {"DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"},
		"-ERR Protocol error: invalid bulk length\r\n":      {"SET", "k", kb + kb},
		"-ERR Protocol error: too big command\r\n":          {"DEL", kb, kb, kb},
	} {
		if got := dial(t, p.Addr()).untilEnd(encodeAll([][]string{args})); got != want {
			t.Errorf("%s: %q, want %q", quoted(args), got, want)
		}
	}
}

// Who must authenticate first may send only little, as in Redis.
func TestDropinUnauthenticatedLimits(t *testing.T) {
	direct := testredis.Start(t, "--requirepass sekret")
	behind := testredis.Start(t, "--requirepass sekret")
	p := startProxy(t, behind.URL())
	eventually(t, "the proxy knows that there is a password", func() bool {
		w := dial(t, p.Addr())
		defer w.close()
		_, err := io.WriteString(w.c, "*11\r\n")
		return err == nil && !w.silent(200*time.Millisecond)
	})
	for _, input := range []string{
		"*11\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16385\r\n", "*2\r\n$4\r\nAUTH\r\n$16385\r\n",
		encodeAll([][]string{{"DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, {"QUIT"}}),
		encodeAll([][]string{{"AUTH", "sekret"}, {"SET", "k", strings.Repeat("x", 16385)}, {"DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, {"QUIT"}}),
	} {
		if want, got := dial(t, direct.Addr()).untilEnd(input), dial(t, p.Addr()).untilEnd(input); want != got {
			t.Errorf("%s\n  redis     %q\n  lockproxy %q", quoted(input), want, got)
		}
	}
}

func TestDropinTimeouts(t *testing.T) {
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), "--idle-timeout", "2s", "--handshake-timeout", "1500ms", "--wait-poll", "200ms")
	silent, half := dial(t, p.Addr()), dial(t, p.Addr())
	if _, err := io.WriteString(half.c, "*1\r\n$4\r\nPI"); err != nil {
		t.Fatal(err)
	}
	idle := dial(t, p.Addr())
	idle.do("PING")
	holder := dial(t, p.Addr())
	holder.do("LOCK", "kept")
	waiter := dial(t, p.Addr())
	waiter.send("LOCK", "kept", "BLOCK", "60000")
	for name, w := range map[string]*wire{"silent": silent, "half a command": half, "idle": idle} {
		if !w.closed() {
			t.Errorf("%s: still connected", name)
		}
	}
	time.Sleep(time.Second) // on top of what the idle one took
	if got := holder.do("UNLOCK", "kept"); got != ":1\r\n" {
		t.Errorf("an idle holder: %q", got)
	}
	if got := waiter.read(); got != "+OK\r\n" {
		t.Errorf("a waiter: %q", got)
	}
	if !holder.closed() {
		t.Error("idle, and holding nothing any more: still connected")
	}
}

func TestDropinDeny(t *testing.T) {
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), "--deny", "flushall,CONFIG|SET", "--deny", "lock")
	w := dial(t, p.Addr())
	for line, want := range map[string]string{
		"FLUSHALL": "-ERR 'FLUSHALL' is denied by lockproxy's --deny\r\n", "flushall async": "-ERR 'FLUSHALL' is denied by lockproxy's --deny\r\n",
		"CONFIG SET maxmemory 0": "-ERR 'CONFIG SET' is denied by lockproxy's --deny\r\n", "LOCK a": "-ERR 'LOCK' is denied by lockproxy's --deny\r\n",
		"FLUSHDB": "+OK\r\n", "CONFIG GET databases": "*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n",
	} {
		if got := w.do(strings.Fields(line)...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// What cannot be passed on is refused with a clear error: nothing is mis-routed, the connection and the state of others stay.
func TestDropinRefused(t *testing.T) {
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL())
	w, other := dial(t, p.Addr()), dial(t, p.Addr())
	for _, line := range []string{
		"MONITOR", "SYNC", "PSYNC ? -1", "REPLCONF ACK 0", "DEBUG SLEEP 0", "SCRIPT DEBUG YES", "CLIENT IMPORT-SOURCE on", "ASKING", "READONLY", "READWRITE",
	} {
		if got := w.do(strings.Fields(line)...); !strings.HasPrefix(got, "-ERR ") || strings.Contains(got, "unknown") {
			t.Errorf("%s: %q", line, got)
		}
		if got := other.do("ECHO", line); got != bulks(line)[0] {
			t.Fatalf("another client after %s: %q", line, got)
		}
	}
	if got := w.do("PING"); got != "+PONG\r\n" {
		t.Errorf("afterwards: %q", got)
	}
}
