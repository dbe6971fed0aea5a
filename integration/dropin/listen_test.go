package dropin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// socketPath is short enough for a unix socket, which a test's directory may not be.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func dialUnix(t *testing.T, path string) *harness.Wire {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return harness.NewWire(t, c)
}

func TestDropinUnixListener(t *testing.T) {
	t.Parallel()
	redisServer := testredis.Start(t)
	path := socketPath(t)
	p := harness.StartProxy(t, redisServer.URL(), "--listen", "unix://"+path)
	w, tcp := dialUnix(t, path), harness.Dial(t, p.Addr())
	if got := w.Do("LOCK", "a"); got != "+OK\r\n" {
		t.Errorf("LOCK: %q", got)
	}
	if got := tcp.Do("LOCK", "a"); got != "$-1\r\n" {
		t.Errorf("LOCK by another over TCP: %q", got)
	}
	if got := w.Do("CLIENT", "INFO"); !strings.Contains(got, " addr="+path+":0 laddr="+path+":0 ") {
		t.Errorf("CLIENT INFO: %q", got)
	}
	w.Close()
	harness.Eventually(t, "the lock of a client that hung up is free", func() bool { return tcp.Do("LOCK", "a") == "+OK\r\n" })
	c := harness.NewGoRedis(t, &redis.Options{Network: "unix", Addr: path})
	if got, err := c.Ping(context.Background()).Result(); err != nil || got != "PONG" {
		t.Errorf("go-redis: %q %v", got, err)
	}
	p.Kill()
	harness.StartProxy(t, redisServer.URL(), "--listen", "unix://"+path) // the dead one's socket is in the way
	if got := dialUnix(t, path).Do("PING"); got != "+PONG\r\n" {
		t.Errorf("after a kill: %q", got)
	}
}

func TestDropinUnixUpstream(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	redisServer := testredis.Start(t, "--unixsocket "+path)
	p := harness.StartProxy(t, "unix://"+path+"?db=3")
	worksOn(t, p, redisServer, 3)
}

// worksOn tries commands and a lock, and finds what they did in db of the server behind.
func worksOn(t *testing.T, p *harness.Proxy, behind *testredis.Server, db int) {
	t.Helper()
	w, other := harness.Dial3(t, p.Addr()), harness.Dial(t, p.Addr())
	if got := w.Do("SET", "k", "v"); got != "+OK\r\n" {
		t.Errorf("SET: %q", got)
	}
	if got := w.Do("LOCK", "l"); got != "+OK\r\n" {
		t.Errorf("LOCK: %q", got)
	}
	waiting := make(chan string, 1)
	go lockLater(other, "l", waiting)
	harness.Eventually(t, "it waits", func() bool { return strings.Contains(w.Do("INFO", "lockproxy"), "lockproxy_locks_waiting:1\r\n") })
	c := behind.Dial(t)
	for _, args := range [][]any{{"SELECT", db}, {"HLEN", "l"}} {
		if _, err := c.Do(args[0].(string), args[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Do("EXISTS", "k", "l"); err != nil || got != int64(2) {
		t.Errorf("in database %d: %v %v", db, got, err)
	}
	if got := w.Do("UNLOCK", "l"); got != ":1\r\n" {
		t.Errorf("UNLOCK: %q", got)
	}
	if got := <-waiting; got != "+OK\r\n" {
		t.Errorf("the waiter: %q", got)
	}
}

func lockLater(w *harness.Wire, key string, reply chan<- string) {
	got, err := w.Try("LOCK", key, "BLOCK", "20000")
	if err != nil {
		got = err.Error()
	}
	reply <- got
}

func TestDropinTLSUpstream(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := makeCertificate(t, dir)
	port := testredis.FreePort(t)
	testredis.Start(t, "--requirepass sekret", fmt.Sprintf("--tls-port %d", port), "--tls-cert-file "+certFile, "--tls-key-file "+keyFile,
		"--tls-ca-cert-file "+certFile, "--tls-auth-clients no")
	t.Setenv("SSL_CERT_FILE", certFile) // where the proxy finds its roots
	p := harness.StartProxy(t, fmt.Sprintf("rediss://:sekret@localhost:%d/2", port), "--log-level", "debug")
	authenticated := func() *harness.Wire {
		w := harness.Dial(t, p.Addr())
		if got := w.Do("AUTH", "sekret"); got != "+OK\r\n" {
			t.Errorf("AUTH: %q", got)
		}
		return w
	}
	w := authenticated()
	if got := w.Do("LOCK", "l", "FENCE"); !strings.HasPrefix(got, ":") {
		t.Errorf("LOCK: %q", got)
	}
	big := strings.Repeat("x", 3<<20)
	w.Do("SET", "big", big)
	for range 2 {
		if got := w.Do("GET", "big"); got != harness.Bulks(big)[0] {
			t.Errorf("GET of 3 MB over TLS: %s", harness.Quoted(got))
		}
	}
	waiting := make(chan string, 1)
	go lockLater(authenticated(), "l", waiting)
	harness.Eventually(t, "it waits", func() bool { return strings.Contains(w.Do("INFO", "lockproxy"), "lockproxy_locks_waiting:1\r\n") })
	w.Do("UNLOCK", "l")
	if got := <-waiting; got != "+OK\r\n" {
		t.Errorf("the waiter: %q", got)
	}
	if strings.Contains(p.Log(), "sekret") {
		t.Error("the log has the password in it")
	}
	// Without that root the certificate is refused, unless the operator says otherwise.
	t.Setenv("SSL_CERT_FILE", filepath.Join(dir, "none.pem"))
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	url := fmt.Sprintf("rediss://:sekret@localhost:%d", port)
	lax := harness.StartProxy(t, url+"?insecure-skip-verify=true")
	if got := harness.Dial(t, lax.Addr()).Do("AUTH", "sekret"); got != "+OK\r\n" {
		t.Errorf("with insecure-skip-verify: %q", got)
	}
	strict := net.JoinHostPort("127.0.0.1", fmt.Sprint(testredis.FreePort(t)))
	testredis.StartChild(t, exec.Command(harness.Binary(t), "--listen", strict, "--upstream", url))
	harness.Eventually(t, "the certificate is refused", func() bool {
		c, err := net.Dial("tcp", strict)
		if err != nil {
			return false
		}
		defer c.Close()
		reply, err := harness.NewWire(t, c).Try("LOCK", "k") // other commands just have the connection closed
		return err == nil && strings.HasPrefix(reply, "-ERR upstream unavailable: ") && strings.Contains(reply, "certificate")
	})
}

// makeCertificate writes a certificate for localhost that vouches for itself, and its key.
func makeCertificate(t *testing.T, dir string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.crt"), filepath.Join(dir, "cert.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// fails runs lockproxy with settings it must refuse, and returns what it says.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, harness.Binary(t), args...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("%q: %v", args, err)
	}
	return string(out)
}

func TestDropinRefusedSettings(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"the embedded store is for trying out": {"--listen", "0.0.0.0:0"},
		"listens on loopback only":             {"--listen", "127.0.0.1:0", "--listen", ":0"},
		"not of the form redis://":             {"--upstream", "http://localhost"},
		"max-clients":                          {"--max-clients", "many"},
		"nosuch":                               {"--nosuch"},
		"address already in use":               {"--listen", harness.StartProxy(t, "").Addr()},
	} {
		if got := fails(t, args...); !strings.Contains(got, want) {
			t.Errorf("%q: %q has no %q", args, got, want)
		}
	}
}

// Flag before environment before file, each with a setting of its own.
func TestDropinConfiguration(t *testing.T) {
	redisServer := testredis.Start(t)
	path := socketPath(t)
	file := filepath.Join(t.TempDir(), "lockproxy.yaml")
	text := fmt.Sprintf("upstream: %s/7\nlisten:\n  - unix://%s\ndeny: [flushall, keys]\n", redisServer.URL(), path) +
		"lock-watchdog-timeout: 9s\nmax-bulk: 1kb\nmax-clients: 7\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKPROXY_LOCK_WATCHDOG_TIMEOUT", "21s")
	t.Setenv("LOCKPROXY_CONFIG", file)
	t.Setenv("LOCKPROXY_MAX_BULK", "2kb")
	p := harness.StartProxy(t, "", "--max-bulk", "3kb") // its --listen is a flag: the file's socket is not opened
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the file's listen was not replaced by the flag's")
	}
	w := harness.Dial(t, p.Addr())
	if got := w.Do("FLUSHALL"); !strings.Contains(got, "denied") {
		t.Errorf("deny of the file: %q", got)
	}
	w.Do("LOCK", "l")
	c := redisServer.Dial(t)
	if _, err := c.Do("SELECT", 7); err != nil {
		t.Fatal(err)
	}
	if ttl, err := c.Do("PTTL", "l"); err != nil || ttl.(int64) <= 9000 || ttl.(int64) > 21000 {
		t.Errorf("the lease of the environment, in the file's database: %v %v", ttl, err)
	}
	if got := w.Do("SET", "k", strings.Repeat("x", 3000)); got != "+OK\r\n" {
		t.Errorf("max-bulk of the flag: %q", got)
	}
	if got := untilEnd(harness.Dial(t, p.Addr()), "*2\r\n$4\r\nECHO\r\n$3073\r\n"); got != "-ERR Protocol error: invalid bulk length\r\n" {
		t.Errorf("max-bulk of the flag: %q", got)
	}
}

func TestDropinMetrics(t *testing.T) {
	t.Parallel()
	redisServer := testredis.Start(t)
	p := harness.StartProxy(t, redisServer.URL())
	forwarded := series(scrape(t, p), `lockproxy_commands_forwarded_total{}`)
	w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	for range 5 {
		w.Do("LOCK", "a")
		w.Do("UNLOCK", "a")
	}
	w.Do("LOCK", "secret-name")
	other.Do("LOCK", "secret-name")
	for range 10 {
		w.Do("GET", "k")
	}
	redisServer.Do(t, "DEL", "secret-name")
	if got := w.Do("UNLOCK", "secret-name"); !strings.HasPrefix(got, "-LOCKLOST") {
		t.Errorf("UNLOCK of a deleted lock: %q", got)
	}
	w.Do("LOCK", "b")
	harness.Eventually(t, "startProxy's own client is off the figures", func() bool { return series(scrape(t, p), `lockproxy_clients{}`) == 2 })
	text := scrape(t, p)
	for name, want := range map[string]float64{
		`lockproxy_commands_forwarded_total{}`: forwarded + 10, `lockproxy_clients_rejected_total{}`: 0, `lockproxy_locks_held{}`: 1, `lockproxy_locks_waiting{}`: 0,
		`lockproxy_lock_granted_total{kind="plain"}`: 7, `lockproxy_lock_lost_total{kind="plain",reason="gone"}`: 1, `lockproxy_lock_lost_total{kind="read",reason="failover"}`: 0, `lockproxy_lock_renewals_total{outcome="error"}`: 0,
		`lockproxy_lock_hold_seconds_count{kind="plain"}`: 5, `lockproxy_quorum_nodes{}`: -1, // there is no quorum
		`lockproxy_verb_duration_seconds_count{outcome="nil",verb="lock"}`: 1, `lockproxy_verb_duration_seconds_count{outcome="LOCKLOST",verb="unlock"}`: 1,
	} {
		if got := series(text, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if strings.Contains(text, "secret-name") {
		t.Error("a lock's name is a label")
	}
}

func scrape(t *testing.T, p *harness.Proxy) string {
	t.Helper()
	client := http.Client{Timeout: harness.Patience}
	response, err := client.Get("http://" + p.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return string(text)
}

// series finds the value of name{labels}, with these labels among others; -1 when there is none.
func series(text, want string) float64 {
	name, labels, _ := strings.Cut(strings.TrimSuffix(want, "}"), "{")
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		found, with, _ := strings.Cut(words[0], "{")
		if value, err := strconv.ParseFloat(words[len(words)-1], 64); err == nil && found == name && strings.Contains(with, labels) {
			return value
		}
	}
	return -1
}
