package dropin

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// dialFrom connects as a balancer does for a client with that address.
func dialFrom(t *testing.T, to, ip string) *harness.Wire {
	t.Helper()
	w := harness.Dial(t, to)
	fmt.Fprintf(w.C, "PROXY TCP4 %s 192.0.2.1 1000 6379\r\n", ip)
	return w
}

const protectedMode = "-DENIED lockproxy is running in protected mode because "

// The address of this machine in a network is to Redis, as to us, that of another machine.
func TestDropinProtectedMode(t *testing.T) {
	t.Parallel()
	ip := ownAddress(t)
	redis := testredis.Start(t)
	port := strconv.Itoa(testredis.FreePort(t))
	far := net.JoinHostPort(ip, port)
	p := harness.StartProxy(t, redis.URL(), "--listen", "0.0.0.0:"+port)
	harness.Eventually(t, "the log says it", func() bool { return strings.Contains(p.Log(), "protected mode: Redis asks for no password") })
	if got := untilEnd(harness.Dial(t, far), ""); !strings.HasPrefix(got, protectedMode) || !strings.Contains(got, "--protected-mode no") {
		t.Errorf("from another machine: %q", got)
	}
	if got := harness.Dial(t, net.JoinHostPort("127.0.0.1", port)).Do("CONFIG", "SET", "requirepass", "secret"); got != "+OK\r\n" {
		t.Errorf("from this one: %q", got)
	}
	harness.Eventually(t, "with a password they are let in", func() bool {
		w := harness.Dial(t, far)
		defer w.Close()
		got, err := w.Try("AUTH", "secret")
		return err == nil && got == "+OK\r\n"
	})
}

func TestDropinProtectedModeNo(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	port := strconv.Itoa(testredis.FreePort(t))
	harness.StartProxy(t, redis.URL(), "--listen", "0.0.0.0:"+port, "--protected-mode", "no")
	if got := harness.Dial(t, net.JoinHostPort(ownAddress(t), port)).Do("PING"); got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
}

func TestDropinProtectedEmbeddedStore(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	addr := startHeaders(t, path)
	if got := dialUnix(t, path).Do("PING"); got != "+PONG\r\n" {
		t.Errorf("by the unix socket: %q", got)
	}
	if got := dialFrom(t, addr, "127.0.0.1").Do("PING"); got != "+PONG\r\n" {
		t.Errorf("from this machine: %q", got)
	}
	if got := untilEnd(dialFrom(t, addr, "192.0.2.7"), ""); !strings.HasPrefix(got, protectedMode) {
		t.Errorf("from another machine: %q", got)
	}
}

// Clients that come before Redis could be asked run nothing there, and those with a password get in once it can be.
func TestDropinProtectedBeforeRedis(t *testing.T) {
	t.Run("without a password", func(t *testing.T) { t.Parallel(); beforeRedis(t, "") })
	t.Run("with one", func(t *testing.T) { t.Parallel(); beforeRedis(t, "secret", "--requirepass secret") })
}

func beforeRedis(t *testing.T, password string, args ...string) {
	redis := testredis.Start(t, args...)
	link := testredis.NewProxy(t, redis.Addr())
	link.Disable()
	addr := startHeaders(t, socketPath(t), "--upstream", "redis://:"+password+"@"+link.Addr())
	if got := untilEnd(dialFrom(t, addr, "192.0.2.7"), "FLUSHALL\r\n"); !strings.HasPrefix(got, "-DENIED lockproxy is running in protected mode, and could not ask") {
		t.Errorf("while Redis is away: %q", got)
	}
	early := dialFrom(t, addr, "192.0.2.7") // says nothing until Redis is there
	link.Enable()
	if password == "" {
		if got := untilEnd(early, ""); !strings.HasPrefix(got, protectedMode) {
			t.Errorf("Redis without a password is there: %q", got)
		}
		return
	}
	harness.Eventually(t, "Redis lets in who knows the password", func() bool {
		w := dialFrom(t, addr, "192.0.2.7")
		defer w.Close()
		got, err := w.Try("AUTH", password)
		return err == nil && got == "+OK\r\n"
	})
	if got := early.Do("AUTH", password); got != "+OK\r\n" {
		t.Errorf("one that came early: %q", got)
	}
}

// ownAddress is one of this machine's own that are not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine is in no network")
	return ""
}
