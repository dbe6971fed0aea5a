package sentinel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestSentinelDiscovery: one Sentinel of three is enough, passwords of both kinds are used, and none is logged.
func TestSentinelDiscovery(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{
		Node: []string{"--requirepass", "geheim-data"}, Password: "geheim-watch",
		Sentinel: []string{"user proxy on >geheim-acl allchannels -@all +auth +client|setname +hello +ping +subscribe +sentinel|get-master-addr-by-name +sentinel|master"},
	})
	g.Sentinels[0].Kill()
	g.Sentinels[1].Kill()
	byACL := strings.Replace(g.URL(), "sentinel-password=geheim-watch", "sentinel-user=proxy&sentinel-password=geheim-acl", 1)
	file := func(password string) string {
		name := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(name, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	inFiles := strings.NewReplacer("geheim-data", "", "?sentinel-password=geheim-watch", "").Replace(g.URL())
	for url, flags := range map[string][]string{
		g.URL(): nil, byACL: nil, inFiles: {"--upstream-password-file", file("geheim-data"), "--sentinel-password-file", file("geheim-watch")},
	} {
		p := harness.StartProxy(t, url, flags...)
		w := saying(t, p, "+OK\r\n", "AUTH", "geheim-data")
		harness.Expect(t, w, "+OK\r\n", "SET", "k", "v")
		harness.Expect(t, w, "+OK\r\n", "LOCK", "l")
		harness.Expect(t, w, ":1\r\n", "UNLOCK", "l")
		for name, want := range map[string]string{"lockproxy_upstream": "sentinel", "lockproxy_upstream_addr": g.Nodes[0].Addr(), "lockproxy_upstream_switches": "0"} {
			if got := infoLine(w, name); got != want {
				t.Errorf("%s is %q, not %q", name, got, want)
			}
		}
		if n := p.Metric("lockproxy_master_switches_total"); n != 0 {
			t.Errorf("%v switches counted", n)
		}
		harness.Eventually(t, "the log speaks of the dead Sentinels", func() bool { return strings.Contains(p.Log(), "a Sentinel cannot be used") })
		if strings.Contains(p.Log(), "geheim") {
			t.Errorf("the log quotes a password:\n%s", p.Log())
		}
	}
	// A wrong password, or a wrong name, is said to who asks for a lock. For other commands clients are closed, and served as
	// soon as it is right.
	for url, want := range map[string]string{
		strings.Replace(g.URL(), "geheim-watch", "geheim-wrong", 1):                             "WRONGPASS",
		strings.Replace(g.URL(), "/"+testredis.MasterName+"?", "/other?", 1):                    "no master of that name",
		strings.Replace(byACL, "sentinel-user=proxy", "sentinel-user=nobody", 1):                "WRONGPASS",
		strings.Replace(g.URL(), g.Sentinels[2].Addr(), "127.0.0.1:1", 1) + "&sentinel-user=me": "connection refused",
	} {
		p := harness.LaunchProxy(t, url)
		w := dialPatiently(t, p)
		harness.Eventually(t, "a client hears "+want, func() bool { // a Sentinel may be slow at first
			got := w.Do("LOCK", "k")
			if !strings.HasPrefix(got, "-ERR ") || strings.Contains(got, "geheim") {
				t.Errorf("%s: a client hears %q", url, got)
			}
			return strings.Contains(got, want)
		})
		harness.Eventually(t, "the log says "+want, func() bool { return strings.Contains(p.Log(), want) })
		if strings.Contains(p.Log(), "geheim") {
			t.Errorf("%s: logged\n%s", url, p.Log())
		}
	}
}

// TestSentinelNameComesLater: a master that the Sentinels do not know yet is served as soon as they do.
func TestSentinelNameComesLater(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	p := harness.LaunchProxy(t, strings.Replace(g.URL(), "/"+testredis.MasterName, "/later/2", 1))
	w := dialPatiently(t, p)
	harness.Eventually(t, "a client hears that there is none", func() bool { // a Sentinel may be slow at first
		got := w.Do("LOCK", "k")
		if !strings.HasPrefix(got, "-ERR ") {
			t.Fatalf("a client hears %q", got)
		}
		return strings.Contains(got, `no master "later" known`)
	})
	host, port, _ := net.SplitHostPort(g.Nodes[0].Addr())
	for _, s := range g.Sentinels {
		s.Do(t, "SENTINEL", "MONITOR", "later", host, port, "2")
	}
	harness.Eventually(t, "the master is served", func() bool { return w.Do("LOCK", "k") == "+OK\r\n" })
	harness.Expect(t, w, "$-1\r\n", "GET", "none")
}

// TestSentinelLoneOldView: a Sentinel that was cut off during a failover, and is then the only one that answers, pulls
// nobody back.
func TestSentinelLoneOldView(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	p := harness.StartProxy(t, g.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "SET", "k", "v")
	lone := g.Sentinels[2]
	lone.Stop()
	master := g.Failover()
	harness.Eventually(t, "the proxy has switched", func() bool {
		c := harness.Dial(t, p.Addr())
		defer c.Close()
		return infoLine(c, "lockproxy_upstream_addr") == master.Addr()
	})
	g.Sentinels[0].Stop()
	g.Sentinels[1].Stop()
	lone.Cont()
	c := saying(t, p, "+OK\r\n", "SET", "k", "v") // no connection to the former master is used any more
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		harness.Expect(t, c, "+OK\r\n", "SET", "k", "v")
	}
	if at, n := infoLine(c, "lockproxy_upstream_addr"), infoLine(c, "lockproxy_upstream_switches"); at != master.Addr() || n != "1" {
		t.Errorf("at %s after %s switches", at, n)
	}
	// All of them dead: the last master known is served.
	for _, s := range g.Sentinels {
		s.Kill()
	}
	harness.Expect(t, harness.Dial(t, p.Addr()), "+OK\r\n", "SET", "k", "v")
}

// TestSentinelDemotedMaster: a master that was made a replica behind everybody's back says so. Its refusal reaches the
// client, no write that was refused is answered with OK, its connections end, and it is not used again.
func TestSentinelDemotedMaster(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{DownAfter: time.Minute}) // the Sentinels take their time
	p := harness.StartProxy(t, g.URL())
	w, subscriber, other := harness.Dial(t, p.Addr()), saying(t, p, subscribed, "SUBSCRIBE", "news"), g.Nodes[1]
	harness.Expect(t, w, "+OK\r\n", "SET", "k", "v")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "l")
	other.Do(t, "REPLICAOF", "NO", "ONE")
	host, port, _ := net.SplitHostPort(other.Addr())
	g.Nodes[0].Do(t, "REPLICAOF", host, port)
	got := w.Do("SET", "k", "w")
	if !strings.HasPrefix(got, "-READONLY ") && !strings.HasPrefix(got, "-ERR ") {
		t.Errorf("a write to a demoted master: %q", got)
	}
	t.Logf("the client hears %q", got)
	if !subscriber.Closed() {
		t.Error("a subscriber of the demoted master is still connected")
	}
	// Whoever connects now has nothing read from it: the connection ends, as Redis would end it, and a LOCK says why.
	harness.Eventually(t, "the demoted master is not used", func() bool {
		c := harness.Dial(t, p.Addr())
		defer c.Close()
		got, err := c.Try("LOCK", "m")
		return err == nil && strings.Contains(got, "says it is not a master")
	})
	c := harness.Dial(t, p.Addr())
	defer c.Close()
	if got, err := c.Try("GET", "k"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the demoted master answers GET: %q, %v", got, err)
	}
	harness.Eventually(t, "who holds a lock hears why", func() bool { return strings.Contains(w.Do("GET", "k"), "says it is not a master") })
	// Promoted again, it serves.
	g.Nodes[0].Do(t, "REPLICAOF", "NO", "ONE")
	harness.Eventually(t, "a master again", func() bool {
		c := harness.Dial(t, p.Addr())
		defer c.Close()
		got, err := c.Try("SET", "k", "v")
		return err == nil && got == "+OK\r\n"
	})
}

// TestSentinelSubscribers: after a failover a subscriber's connection is closed, as Redis closes it, and a new one hears
// what is published on the new master.
func TestSentinelSubscribers(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	p := harness.StartProxy(t, g.URL())
	subscriber, watching := saying(t, p, subscribed, "SUBSCRIBE", "news"), saying(t, p, "+OK\r\n", "WATCH", "k")
	blocked := harness.Dial(t, p.Addr())
	blocked.Send("BLPOP", "list", "0")
	former := g.Master()
	g.Hasten()
	former.Stop()
	defer former.Cont()
	master := g.AwaitSwitch(former)
	g.Calm()
	for name, w := range map[string]*harness.Wire{"a subscriber": subscriber, "one that watches a key": watching} {
		if !w.Closed() {
			t.Errorf("%s is still connected", name)
		}
	}
	if got, err := blocked.TryRead(harness.Patience); err == nil && !strings.HasPrefix(got, "-") {
		t.Errorf("who waited for an element got %q", got)
	}
	again := harness.Dial(t, p.Addr())
	harness.Eventually(t, "a new subscriber hears the new master", func() bool {
		again = harness.Dial(t, p.Addr())
		got, err := again.Try("SUBSCRIBE", "news")
		return err == nil && strings.Contains(got, "subscribe") // an error is a reply, too
	})
	master.Do(t, "PUBLISH", "news", "hello")
	if got := again.Read(); !strings.Contains(got, "hello") {
		t.Errorf("heard %q", got)
	}
}

const subscribed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"

// saying returns a new client that was answered so to its first command. It may need several tries: lockproxy has the master confirm that it
// is one, for each new connection, and does not wait for that for longer than a second.
func saying(t *testing.T, p *harness.Proxy, want string, args ...string) (w *harness.Wire) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%q is answered %q", args, want), func() bool {
		w = harness.Dial(t, p.Addr())
		got, err := w.Try(args...)
		return err == nil && got == want
	})
	return w
}

// dialPatiently is dial for a proxy that may not listen yet.
func dialPatiently(t *testing.T, p *harness.Proxy) (w *harness.Wire) {
	t.Helper()
	harness.Eventually(t, "the proxy listens", func() bool { w = tryDial(t, p.Addr()); return w != nil })
	t.Cleanup(w.Close)
	return w
}

// TestSentinelTLS: rediss+sentinel:// is TLS to the Sentinels and to the master, each of which proves its own address.
func TestSentinelTLS(t *testing.T) {
	t.Parallel()
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("127.0.0.1")
	dataPort, watchPort := strconv.Itoa(testredis.FreePort(t)), strconv.Itoa(testredis.FreePort(t))
	files := []string{"tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + a.File, "tls-auth-clients no"}
	node := []string{"--tls-port " + dataPort}
	for _, f := range files {
		node = append(node, "--"+f)
	}
	testredis.Start(t, node...)
	testredis.StartSentinel(t, "", append(files, "tls-port "+watchPort, "tls-replication yes",
		"sentinel monitor "+testredis.MasterName+" 127.0.0.1 "+dataPort+" 1")...)
	url := "rediss+sentinel://127.0.0.1:" + watchPort + "/" + testredis.MasterName
	p := harness.StartProxy(t, url, "--upstream-tls-ca", a.File)
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "SET", "k", "v")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "l")
	if at := infoLine(w, "lockproxy_upstream_addr"); at != "127.0.0.1:"+dataPort {
		t.Errorf("at %s", at)
	}
	distrusting := harness.LaunchProxy(t, url)
	fooled := dialPatiently(t, distrusting)
	harness.Eventually(t, "an authority that nobody knows is named", func() bool {
		got := fooled.Do("LOCK", "k")
		if !strings.HasPrefix(got, "-ERR ") {
			t.Fatalf("a client hears %q", got)
		}
		return strings.Contains(got, "certificate")
	})
}
