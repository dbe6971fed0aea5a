package resp

import (
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/tidwall/redcon"
)

// relay sends each command to a real Redis and answers with its reply. up is
// the one connection there.
func relay(t *testing.T, up net.Conn) func(redcon.Conn, redcon.Command) {
	var s Scanner
	p := make([]byte, 4096)
	return func(c redcon.Conn, cmd redcon.Command) {
		if _, err := up.Write(cmd.Raw); err != nil {
			t.Error(err)
		}
		for done := false; !done; {
			n, err := up.Read(p)
			if err == nil {
				_, done, err = s.Scan(p[:n])
			}
			if err != nil {
				t.Error(err)
				return
			}
			c.WriteRaw(p[:n])
		}
		if string(cmd.Args[0]) == "AUTH" {
			c.NetConn().(*guarded).SetLimits(Limits{})
		}
	}
}

// sameAsRedis sends q to Redis itself, and to Redis through the Reader and
// redcon; the answers are the same, and so is who hangs up.
func sameAsRedis(t *testing.T, redis *testredis.Server, l Limits, q sent) {
	up, err := net.Dial("tcp", redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	want := ask(t, redis.Addr(), q)
	if got := ask(t, serve(t, l, relay(t, up)), q); got != want {
		t.Errorf("got %.300q\nRedis says %.300q", got, want)
	}
	if q.err != "" && !strings.HasSuffix(want, "-ERR Protocol error: "+q.err+"\r\n") {
		t.Errorf("Redis says %.300q, the table %q", want, q.err)
	}
}

func TestSameAsRedis(t *testing.T) {
	redis := testredis.Start(t)
	for _, q := range requests {
		t.Run(q.name, func(t *testing.T) { sameAsRedis(t, redis, Limits{}, q) })
	}
}

func TestSameAsRedisUnauthenticated(t *testing.T) {
	redis := testredis.Start(t, "--requirepass secret")
	auth, eleven := mb("AUTH", "secret"), mb(strings.Split("abcdefghijk", "")...)
	for _, q := range []sent{
		{name: "noauth", in: ping},
		{name: "args", in: ping + eleven, err: "unauthenticated multibulk length"},
		{name: "bulk", in: ping + "*1\r\n$16385\r\n", err: "unauthenticated bulk length"},
		{name: "too many args anyway", in: "*2147483648\r\n", err: "invalid multibulk length"},
		{name: "too big a bulk anyway", in: "*1\r\n$536870913\r\n", err: "invalid bulk length"},
		{name: "args behind AUTH", in: ping + auth + eleven + ping},
		{name: "bulk behind AUTH", in: auth + mb("ECHO", strings.Repeat("a", 20000)) + ping},
	} {
		t.Run(q.name, func(t *testing.T) { sameAsRedis(t, redis, UnauthenticatedLimits, q) })
	}
}
