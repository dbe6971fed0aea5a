package dropin

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// startTLS starts lockproxy with a TLS port beside its plain one, which startProxy needs, and returns the port's address.
func startTLS(t *testing.T, upstream string, args ...string) (*harness.Proxy, string) {
	t.Helper()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	return harness.StartProxy(t, upstream, append([]string{"--tls-listen", addr}, args...)...), addr
}

func dialTLS(t testing.TB, addr string, c *tls.Config) *harness.Wire {
	t.Helper()
	w := harness.Dial(t, addr)
	return harness.NewWire(t, tls.Client(w.C, c))
}

// shownTo is the name of the certificate that a client which asks for name gets; "" when there is no connection.
func shownTo(t *testing.T, addr, name string, roots *x509.CertPool) string {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: name})
	if err != nil {
		return ""
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// Certificates are exchanged while clients are connected and hold locks: nobody notices but those who come later.
func TestTLSRotation(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("first", "127.0.0.1")
	cert2, key2 := a.Issue("other.test")
	p, addr := startTLS(t, redis.URL(), "--tls-cert", cert, "--tls-key", key, "--tls-cert", cert2, "--tls-key", key2)
	conf := &tls.Config{RootCAs: a.Pool, ServerName: "127.0.0.1"}
	holder, waiter := dialTLS(t, addr, conf), dialTLS(t, addr, conf)
	if got := holder.Do("LOCK", "l"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	waiting := make(chan string, 1)
	go lockLater(waiter, "l", waiting)
	if got := shownTo(t, addr, "other.test", a.Pool); got != "other.test" {
		t.Errorf("by SNI: %q", got)
	}
	newCert, newKey := a.Issue("second", "127.0.0.1")
	swap := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	swap(newCert, cert)
	harness.Eventually(t, "half a pair is told of", func() bool { return strings.Contains(p.Log(), "the old ones stay") })
	if got := shownTo(t, addr, "127.0.0.1", a.Pool); got != "first" {
		t.Errorf("half a pair: %q is shown", got)
	}
	swap(newKey, key)
	harness.Eventually(t, "the new one is shown", func() bool { return shownTo(t, addr, "127.0.0.1", a.Pool) == "second" })
	a.IssueTo(cert, key, "third", "127.0.0.1")
	p.Signal(syscall.SIGHUP)
	harness.Eventually(t, "the third one is shown", func() bool { return shownTo(t, addr, "127.0.0.1", a.Pool) == "third" })
	if got := holder.Do("UNLOCK", "l"); got != ":1\r\n" {
		t.Errorf("UNLOCK: %q", got)
	}
	if got := <-waiting; got != "+OK\r\n" {
		t.Errorf("a waiter: %q", got)
	}
	waiter.Close()
	if code := p.Term(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTLSClientCertificates(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue("127.0.0.1")
	with, without := a.Client("client"), &tls.Config{RootCAs: a.Pool}
	stranger := &tls.Config{RootCAs: a.Pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &other.Client("client").Certificates[0], nil
	}}
	old := with.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	for auth, want := range map[string][4]bool{"": {true, false, false, false}, "required": {true, false, false, false}, "optional": {true, true, false, false}} {
		args := []string{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File}
		if auth != "" {
			args = append(args, "--tls-client-auth", auth)
		}
		_, addr := startTLS(t, redis.URL(), args...)
		for i, conf := range []*tls.Config{with, without, stranger, old} {
			conf = conf.Clone()
			conf.ServerName = "127.0.0.1"
			reply, err := dialTLS(t, addr, conf).Try("PING")
			if in := err == nil && reply == "+PONG\r\n"; in != want[i] {
				t.Errorf("tls-client-auth %q, client %d: %q, %v", auth, i, reply, err)
			}
		}
	}
}

// A client process that is killed frees its lock, in TLS as elsewhere.
func TestTLSClientKilled(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("127.0.0.1")
	p, addr := startTLS(t, redis.URL(), "--tls-cert", cert, "--tls-key", key)
	w := harness.Dial(t, p.Addr())
	if got := w.Do("LOCK", "busy"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-cli", "--tls", "--cacert", a.File, "-h", "127.0.0.1", "-p", port)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	killed := testredis.StartChild(t, cmd)
	if _, err := io.WriteString(in, "LOCK l\nLOCK busy BLOCK 0\n"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it holds, and waits", func() bool {
		return redis.Do(t, "EXISTS", "l") == int64(1) && strings.Contains(w.Do("INFO", "lockproxy"), "lockproxy_locks_waiting:1\r\n")
	})
	killed.Kill()
	harness.Eventually(t, "its lock is free", func() bool { return w.Do("LOCK", "l") == "+OK\r\n" })
}

// TLS on both sides and no plain port at all; locks, whose scripts go another way upstream, included.
func TestTLSBothSides(t *testing.T) {
	t.Parallel()
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("redis.test")
	mine, mineKey := a.Issue("127.0.0.1")
	port := testredis.FreePort(t)
	redis := testredis.Start(t, fmt.Sprintf("--tls-port %d", port), "--tls-cert-file "+cert, "--tls-key-file "+key, "--tls-ca-cert-file "+a.File, "--tls-auth-clients yes")
	p, addr := startTLS(t, fmt.Sprintf("rediss://127.0.0.1:%d/3", port), "--tls-cert", mine, "--tls-key", mineKey,
		"--upstream-tls-ca", a.File, "--upstream-tls-cert", mine, "--upstream-tls-key", mineKey, "--upstream-tls-server-name", "redis.test")
	worksOn(t, p, redis, 3)
	w := dialTLS(t, addr, &tls.Config{RootCAs: a.Pool, ServerName: "127.0.0.1"})
	if got := w.Do("GET", "k"); got != "$1\r\nv\r\n" {
		t.Errorf("GET: %q", got)
	}
	if got := w.Do("LOCK", "x"); got != "+OK\r\n" {
		t.Errorf("LOCK: %q", got)
	}
	alone := exec.Command(harness.Binary(t), "--listen=", "--tls-listen", "127.0.0.1:"+strconv.Itoa(testredis.FreePort(t)), "--tls-cert", mine, "--tls-key", mineKey,
		"--upstream", redis.URL(), "--log-format", "json")
	out, err := alone.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := testredis.StartChild(t, alone)
	line := make([]byte, 4<<10)
	n, _ := out.Read(line)
	if got := string(line[:n]); !strings.Contains(got, `"tls":true`) {
		t.Errorf("logged %s", got)
	}
	_ = alone.Process.Signal(syscall.SIGTERM)
	if code := c.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTLSWrongStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for says, args := range map[string][]string{
		"empty.pem":        {"--tls-listen", "127.0.0.2:0", "--tls-cert", empty, "--tls-key", empty, "--upstream", "redis://127.0.0.1:1"},
		"none.pem":         {"--upstream", "rediss://127.0.0.1:1", "--upstream-tls-ca", filepath.Join(dir, "none.pem")},
		"loopback only":    {"--tls-listen", "0.0.0.0:0", "--tls-cert", empty, "--tls-key", empty},
		"needs tls-cert":   {"--tls-listen", "127.0.0.2:0"},
		"holds no certifi": {"--upstream", "rediss://127.0.0.1:1", "--upstream-tls-ca", empty},
	} {
		out, err := exec.Command(harness.Binary(t), append([]string{"--listen", "127.0.0.1:0"}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	path := socketPath(t)
	p := startHeaders(t, path, "--upstream", redis.URL(), "--proxy-protocol-from", "127.0.0.1", "--protected-mode", "no")
	local := dialUnix(t, path) // needs no header
	var in []*harness.Wire
	for i := range 2 {
		w := harness.Dial(t, p)
		if _, err := fmt.Fprintf(w.C, "PROXY TCP4 192.0.2.7 192.0.2.1 %d 6379\r\n", 1000+i); err != nil {
			t.Fatal(err)
		}
		if got := w.Do("PING"); got != "+PONG\r\n" {
			t.Errorf("PING: %q", got)
		}
		in = append(in, w)
	}
	list := local.Do("CLIENT", "LIST")
	for _, addr := range []string{"addr=192.0.2.7:1000 ", "addr=192.0.2.7:1001 ", "addr=" + path + ":0 "} {
		if !strings.Contains(list, addr) {
			t.Errorf("no %s in %s", addr, list)
		}
	}
	if got := in[0].Do("LOCK", "l"); got != "+OK\r\n" {
		t.Errorf("LOCK: %q", got)
	}
	if got := local.Do("LOCKINFO", "l"); !strings.Contains(got, "192.0.2.7:1000") {
		t.Errorf("LOCKINFO: %q", got)
	}
	if got := local.Do("CLIENT", "KILL", "192.0.2.7:1001"); got != "+OK\r\n" || !in[1].Closed() {
		t.Errorf("CLIENT KILL: %q", got)
	}
	if got := untilEnd(harness.Dial(t, p), "*1\r\n$4\r\nPING\r\n"); got != "" {
		t.Errorf("without a header: %q", got)
	}
}

// startHeaders starts a lockproxy that wants PROXY headers on TCP, and returns its address; path is its unix socket.
func startHeaders(t *testing.T, path string, args ...string) (addr string) {
	t.Helper()
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	cmd := exec.Command(harness.Binary(t), append([]string{"--listen", addr, "--listen", "unix://" + path, "--proxy-protocol", "required"}, args...)...)
	cmd.Stderr = os.Stderr
	c := testredis.StartChild(t, cmd)
	harness.Eventually(t, "it listens", func() bool {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	t.Cleanup(func() {
		_ = c.Cmd.Process.Signal(syscall.SIGTERM)
		if code := c.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	return addr
}
