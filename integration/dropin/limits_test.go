package dropin

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestDropinMaxClients(t *testing.T) {
	t.Parallel()
	direct := testredis.Start(t, "--maxclients 3")
	behind := testredis.Start(t)
	p := harness.StartProxy(t, behind.URL(), "--max-clients", "3")
	var said []string
	for _, addr := range []string{direct.Addr(), p.Addr()} {
		var first *harness.Wire
		harness.Eventually(t, "three clients are in", func() bool { // those of the harness may not have left
			first = harness.Dial(t, addr)
			second, third := harness.Dial(t, addr), harness.Dial(t, addr)
			for _, w := range []*harness.Wire{first, second, third} {
				if reply, err := w.Try("PING"); err != nil || reply != "+PONG\r\n" {
					first.Close()
					second.Close()
					third.Close()
					return false
				}
			}
			return true
		})
		said = append(said, untilEnd(harness.Dial(t, addr), ""))
		if got := first.Do("PING"); got != "+PONG\r\n" {
			t.Errorf("a client that was in: %q", got)
		}
		first.Close()
		harness.Eventually(t, "the place is free", func() bool {
			reply, err := harness.Dial(t, addr).Try("PING")
			return err == nil && reply == "+PONG\r\n"
		})
	}
	if said[0] != said[1] || !strings.Contains(said[1], "max number of clients") {
		t.Errorf("one client too many: lockproxy %q, redis %q", said[1], said[0])
	}
}

// However often strangers do what the log tells of, it grows by a few lines in ten seconds.
func TestStrangersDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t, "--requirepass pw").URL(), "--max-clients", "40")
	began := time.Now()
	for range 40 {
		for _, hello := range []string{"POST / HTTP/1.1\r\n\r\n", "Host: x\r\n\r\n"} {
			untilEnd(harness.Dial(t, p.Addr()), hello)
		}
	}
	for range 80 { // of which half find no place
		defer harness.Dial(t, p.Addr()).Close()
	}
	harness.Eventually(t, "it is told that some were refused", func() bool { return strings.Contains(p.Log(), "client refused") })
	periods := int(time.Since(began)/(10*time.Second)) + 1
	for _, line := range []string{"speaks HTTP", "client refused"} {
		if n := strings.Count(p.Log(), line); n == 0 || n > 10*periods {
			t.Errorf("%d lines with %q in %v", n, line, time.Since(began))
		}
	}
}

// What breaks the protocol or a limit is answered in Redis' words and ends the connection, as there.
func TestDropinProtocolErrors(t *testing.T) {
	t.Parallel()
	direct := testredis.Start(t, "--proto-max-bulk-len 1mb")
	behind := testredis.Start(t)
	p := harness.StartProxy(t, behind.URL(), "--max-bulk", "1mb")
	mb := strings.Repeat("x", 1<<20)
	for _, input := range []string{
		"*1\r\n$-1\r\n", "*1\r\nxPING\r\n", "*1\r\n$abc\r\n", "*1\r\n$+4\r\nPING\r\n", "*abc\r\n", "*2147483648\r\n", "*-9223372036854775809\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n" + mb + "\r\nQUIT\r\n",
		"GET \"unbalanced\r\n", "GET 'un'balanced\r\n", "SET k v\r\nGET k\r\n*1\r\n:1\r\nSET k w\r\n", "*0\r\n*-1\r\n\r\nPING\r\nQUIT\r\n",
		strings.Repeat("y", 70<<10), "*" + strings.Repeat("1", 70<<10), "*1\r\n$" + strings.Repeat("1", 70<<10),
	} {
		want, got := untilEnd(harness.Dial(t, direct.Addr()), input), untilEnd(harness.Dial(t, p.Addr()), input)
		if want != got {
			t.Errorf("%s\n  redis     %q\n  lockproxy %q", harness.Quoted(input), want, got)
		}
	}
	if got := harness.Dial(t, p.Addr()).Do("GET", "k"); len(got) != 1<<20+len("$1048576\r\n\r\n") && got != "$1\r\nv\r\n" {
		t.Errorf("k: %s", harness.Quoted(got))
	}
}

// Who must authenticate first may send only little, as in Redis.
func TestDropinUnauthenticatedLimits(t *testing.T) {
	t.Parallel()
	direct := testredis.Start(t, "--requirepass sekret")
	behind := testredis.Start(t, "--requirepass sekret")
	p := harness.StartProxy(t, behind.URL())
	harness.Eventually(t, "the proxy knows that there is a password", func() bool {
		w := harness.Dial(t, p.Addr())
		defer w.Close()
		_, err := io.WriteString(w.C, "*11\r\n")
		return err == nil && !w.Silent(200*time.Millisecond)
	})
	for _, input := range []string{
		"*11\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16385\r\n", "*2\r\n$4\r\nAUTH\r\n$16385\r\n",
		harness.EncodeAll([][]string{{"DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, {"QUIT"}}),
		harness.EncodeAll([][]string{{"AUTH", "sekret"}, {"SET", "k", strings.Repeat("x", 16385)}, {"DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, {"QUIT"}}),
	} {
		if want, got := untilEnd(harness.Dial(t, direct.Addr()), input), untilEnd(harness.Dial(t, p.Addr()), input); want != got {
			t.Errorf("%s\n  redis     %q\n  lockproxy %q", harness.Quoted(input), want, got)
		}
	}
}

func TestDropinTimeouts(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL(), "--idle-timeout", "6s", "--handshake-timeout", "5s", "--wait-poll", "200ms")
	silent, half := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	if _, err := io.WriteString(half.C, "*1\r\n$4\r\nPI"); err != nil {
		t.Fatal(err)
	}
	idle := harness.Dial(t, p.Addr())
	idle.Do("PING")
	holder := harness.Dial(t, p.Addr())
	holder.Do("LOCK", "kept")
	waiter := harness.Dial(t, p.Addr())
	waiter.Send("LOCK", "kept", "BLOCK", "60000")
	for name, w := range map[string]*harness.Wire{"silent": silent, "half a command": half, "idle": idle} {
		if !w.Closed() {
			t.Errorf("%s: still connected", name)
		}
	}
	time.Sleep(time.Second) // on top of what the idle one took
	if got := holder.Do("UNLOCK", "kept"); got != ":1\r\n" {
		t.Errorf("an idle holder: %q", got)
	}
	if got := waiter.Read(); got != "+OK\r\n" {
		t.Errorf("a waiter: %q", got)
	}
	if !holder.Closed() {
		t.Error("idle, and holding nothing any more: still connected")
	}
}

func TestDropinDeny(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL(), "--deny", "flushall,CONFIG|SET", "--deny", "lock")
	w := harness.Dial(t, p.Addr())
	for line, want := range map[string]string{
		"FLUSHALL": "-ERR 'FLUSHALL' is denied by lockproxy's --deny\r\n", "flushall async": "-ERR 'FLUSHALL' is denied by lockproxy's --deny\r\n",
		"CONFIG SET maxmemory 0": "-ERR 'CONFIG SET' is denied by lockproxy's --deny\r\n", "LOCK a": "-ERR 'LOCK' is denied by lockproxy's --deny\r\n",
		"FLUSHDB": "+OK\r\n", "CONFIG GET databases": "*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n",
	} {
		if got := w.Do(strings.Fields(line)...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// What cannot be passed on is refused with a clear error: nothing is mis-routed, the connection and the state of others stay.
func TestDropinRefused(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL())
	w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	for _, line := range []string{
		"MONITOR", "SYNC", "PSYNC ? -1", "REPLCONF ACK 0", "DEBUG SLEEP 0", "SCRIPT DEBUG YES", "CLIENT IMPORT-SOURCE on", "ASKING", "READONLY", "READWRITE",
	} {
		if got := w.Do(strings.Fields(line)...); !strings.HasPrefix(got, "-ERR ") || strings.Contains(got, "unknown") {
			t.Errorf("%s: %q", line, got)
		}
		if got := other.Do("ECHO", line); got != harness.Bulks(line)[0] {
			t.Fatalf("another client after %s: %q", line, got)
		}
	}
	if got := w.Do("PING"); got != "+PONG\r\n" {
		t.Errorf("afterwards: %q", got)
	}
}
