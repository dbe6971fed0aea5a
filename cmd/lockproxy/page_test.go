package main

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The page shows who holds a lock, and frees it as UNLOCK FORCE does, with the same line in the log.
func TestPageForOperators(t *testing.T) {
	t.Parallel()
	server, addr, at := testredis.Start(t), freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", server.URL(), "--listen", addr, "--admin-listen", at, "--drain-timeout", "0")
	holder := p.dial("tcp", addr)
	expect(t, holder, "OK", "CLIENT", "SETNAME", "payroll")
	expect(t, holder, "OK", "LOCK", "orders:7")
	get := func(path string) string {
		t.Helper()
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
		}
		return string(body)
	}
	for _, path := range []string{"/", "/?name=ders", "/lock?db=0&name=orders:7"} {
		if text := get(path); !strings.Contains(text, "orders:7") || !strings.Contains(text, "payroll") {
			t.Errorf("%s:\n%s", path, text)
		}
	}
	if text := get("/"); !strings.Contains(text, "ready") || !strings.Contains(text, server.Addr()) {
		t.Errorf("the nodes are not there:\n%s", text)
	}
	resp, err := http.PostForm("http://"+at+"/lock?db=0&name=orders:7", url.Values{"sure": {"yes"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || server.Do(t, "EXISTS", "orders:7") != int64(0) {
		t.Errorf("%d, and the lock is there", resp.StatusCode)
	}
	p.awaitLog("lock freed by force")
	if said := p.logged(); !strings.Contains(said, `name="admin page"`) || !strings.Contains(said, "key=orders:7") || !strings.Contains(said, "by=127.0.0.1:") {
		t.Error(said)
	}
	for end := time.Now().Add(patience); !strings.Contains(get("/events"), "forced"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page never shows the loss")
		}
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// The page, the metrics and an operator's connection are there until the last client has gone.
func TestDrainCanBeWatched(t *testing.T) {
	t.Parallel()
	addr, page, metrics := freeAddr(t), freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", testredis.Start(t).URL(), "--listen", addr, "--admin-listen", page, "--metrics-listen", metrics, "--drain-delay", "0s",
		"--drain-timeout", "2m", "--operators", "default")
	holder, operator, idle := p.dial("tcp", addr), p.dial("tcp", addr), p.dial("tcp", addr)
	expect(t, holder, "OK", "LOCK", "orders:7")
	expect(t, idle, "PONG", "PING")
	if _, err := operator.Do("LOCKPROXY", "STATS"); err != nil {
		t.Fatal(err)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	for end := time.Now().Add(patience); idle.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if _, _ = idle.Do("PING"); time.Now().After(end) {
			t.Fatal("an idle client is never closed")
		}
	}
	for url, text := range map[string]string{"http://" + page + "/": "orders:7", "http://" + metrics + "/metrics": "lockproxy_locks_held 1"} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), text) {
			t.Errorf("%s lacks %q: %v", url, text, err)
		}
	}
	if _, err := operator.Do("LOCKPROXY", "CLIENTS"); err != nil {
		t.Errorf("an operator in a drain: %v", err)
	}
	p.awaitLog("orders:7") // "still draining"
	if _, err := holder.Do("UNLOCK", "orders:7"); err != nil {
		t.Error(err)
	}
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// On an address that others can reach the page needs a token, which is none that can be guessed.
func TestPageNeedsAToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("too short\n")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--admin-listen 0.0.0.0:0", exitUsage, "needs admin-token-file"},
		{"--admin-listen 127.0.0.1:0 --admin-token-file " + file, exitError, "less than 16 bytes"},
		{"--admin-listen 127.0.0.1:0 --check-config --admin-token-file " + file, exitUsage, "less than 16 bytes"},
		{"--admin-listen 127.0.0.1:0 --check-config --admin-token-file " + file + "x", exitUsage, "no such file"},
	} {
		p := start(t, append(strings.Fields(c.args), "--listen", freeAddr(t))...)
		if code := p.exit(); code != c.code || !strings.Contains(p.logged(), c.says) {
			t.Errorf("%s: exit code %d, %s", c.args, code, p.logged())
		}
	}
	write("a token that is long enough\n")
	at := freeAddr(t)
	p := start(t, "--listen", freeAddr(t), "--admin-listen", strings.Replace(at, "127.0.0.1", "0.0.0.0", 1), "--admin-token-file", file)
	p.awaitLog("the page for operators is there")
	for token, want := range map[string]int{"": 401, "too short": 401, "a token that is long enough": 200} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+at+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("ann", token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%q: %d", token, resp.StatusCode)
		}
	}
}

// With an authority, who has no certificate of it does not get in.
func TestPageWithCertificates(t *testing.T) {
	t.Parallel()
	authority := testredis.NewAuthority(t)
	cert, key := authority.Issue("127.0.0.1")
	at, metrics := freeAddr(t), freeAddr(t)
	p := start(t, "--listen", freeAddr(t), "--admin-listen", strings.Replace(at, "127.0.0.1", "0.0.0.0", 1), "--metrics-listen", metrics,
		"--admin-tls-cert", cert, "--admin-tls-key", key, "--admin-tls-client-ca", authority.File)
	p.awaitLog("the page for operators is there")
	get := func(with bool) (int, error) {
		trust := authority.Client("127.0.0.1")
		if !with {
			trust.Certificates = nil
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + at + "/")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if code, err := get(true); code != http.StatusOK || err != nil {
		t.Error(code, err)
	}
	if code, err := get(false); err == nil {
		t.Errorf("%d without a certificate", code)
	}
	resp, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `lockproxy_certificate_end_seconds{file="`+cert+`"}`) {
		t.Errorf("the metrics lack the certificate's end: %v\n%s", err, body)
	}
}

// The page finds locks in Redis, whoever holds them, on one Redis, behind Sentinels and on a cluster, and names the other proxy, or the Redisson.
// It asks as the service account, and says what Redis has against that.
func TestPageSearchesRedis(t *testing.T) {
	t.Parallel()
	const redisson = "0f8fad5b-d9cb-469f-a165-70867728950e"
	page := func(t *testing.T, flags ...string) (addr string, client redis.Conn, get func(path string) string) {
		addr, at := freeAddr(t), freeAddr(t)
		p := start(t, append([]string{"--listen", addr, "--admin-listen", at, "--drain-timeout", "0"}, flags...)...)
		p.awaitLog("the page for operators is there")
		return addr, p.dial("tcp", addr), func(path string) string {
			t.Helper()
			resp, err := http.Get("http://" + at + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
			}
			return string(body)
		}
	}
	has := func(t *testing.T, text string, all ...string) {
		t.Helper()
		for _, part := range all {
			if !strings.Contains(text, part) {
				t.Errorf("%q is missing in:\n%s", part, text)
			}
		}
	}
	for name, upstream := range map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return testredis.Start(t).URL() },
		"sentinel": func(t *testing.T) string { return testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1}).URL() },
		"cluster": func(t *testing.T) string {
			return "redis-cluster://" + testredis.StartCluster(t, 3, 0).Servers[0].Addr()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := upstream(t)
			_, theirs, _ := page(t, "--upstream", url)
			_, w, get := page(t, "--upstream", url)
			for i := range 5 {
				key := "job:" + strconv.Itoa(i)
				expect(t, w, int64(1), "HSET", key, redisson+":52", "2")
				expect(t, w, int64(1), "PEXPIRE", key, "600000")
			}
			expect(t, theirs, "OK", "LOCK", "job:theirs")
			expect(t, w, "OK", "LOCK", "job:mine")
			expect(t, w, "OK", "SET", "job:text", "x")
			for end := time.Now().Add(patience); !strings.Contains(get("/lock?db=0&name=job:theirs"), `>at <bdi>`); time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the proxies never know of each other")
				}
			}
			text := get("/redis?db=0&name=job:*")
			has(t, text, "job:0", "job:1", "job:2", "job:3", "job:4", "job:theirs", "job:mine", "through this proxy", "through the proxy at ",
				redisson+":52", "Redisson: getId() and thread", "2 times")
			if strings.Contains(text, "job:text") || strings.Contains(text, "Go on") {
				t.Error(text)
			}
			has(t, get("/redis?db=0&name=job:0"), redisson+":52", "Redisson: getId() and thread", "Free the lock", "Lease left")
			has(t, get("/redis?db=0&name=*&cursor=x"), "ERR invalid cursor")
		})
	}
	t.Run("without the right", func(t *testing.T) {
		t.Parallel()
		s := testredis.Start(t)
		s.Do(t, "ACL", "SETUSER", "service", "on", ">p", "~*", "&*", "+@all", "-scan", "-pubsub")
		s.Do(t, "HSET", "job:1", redisson+":52", "2")
		s.Do(t, "PEXPIRE", "job:1", "600000")
		_, _, get := page(t, "--upstream", strings.Replace(s.URL(), "://", "://service:p@", 1))
		has(t, get("/redis?db=0&name=*"), "Redis refuses the service account, the user in --upstream: NOPERM", "scan")
		has(t, get("/redis?db=0&name=job:1"), redisson+":52", "through another proxy, or Redisson")
	})
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		flags := []string{"--upstream", testredis.Start(t).URL()}
		for _, node := range testredis.StartSet(t, 3) {
			flags = append(flags, "--quorum", node.URL())
		}
		_, _, get := page(t, flags...)
		has(t, get("/redis?db=0&name=*"), "LOCKLIST SCAN is not available with --quorum")
	})
}
