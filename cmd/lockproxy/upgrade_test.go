package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// caller connects again when its connection has ended, as every library does, and sends its command again then.
type caller struct {
	addr string
	conn redis.Conn
}

func (c *caller) do(end time.Time, name string, args ...any) (got any, err error) {
	for {
		if c.conn == nil {
			if c.conn, err = redis.Dial("tcp", c.addr); err != nil {
				c.conn = nil
			}
		}
		if c.conn != nil {
			if got, err = c.conn.Do(name, args...); err == nil || c.conn.Err() == nil {
				return got, err
			}
			c.conn.Close()
			c.conn = nil
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

// upgraded is a client under load: what it asks for is answered whole, however often it has to connect again, and the lock it has
// nobody else has.
func upgraded(t *testing.T, addr string, client int, inside *sync.Mutex, stop <-chan struct{}) (commands int) {
	c := caller{addr: addr}
	defer func() {
		if c.conn != nil {
			c.conn.Close()
		}
	}()
	for ; ; commands++ {
		select {
		case <-stop:
			return commands
		default:
		}
		end := time.Now().Add(patience)
		if got, err := redis.String(c.do(end, "ECHO", commands)); err != nil || got != fmt.Sprint(commands) {
			t.Errorf("client %d: ECHO %d is answered %q, %v", client, commands, got, err)
			return commands
		}
		if got, err := redis.String(c.do(end, "GET", "kept")); err != nil || got != "value" {
			t.Errorf("client %d: GET is answered %q, %v", client, got, err)
			return commands
		}
		got, err := c.do(end, "LOCK", "shared", "BLOCK", 1000)
		if err != nil && !strings.HasPrefix(err.Error(), "DRAINING") {
			t.Errorf("client %d: LOCK: %v", client, err)
			return commands
		}
		if err != nil || got == nil {
			continue
		}
		if !inside.TryLock() {
			t.Errorf("client %d: a lock is held twice", client)
			return commands
		}
		if _, err := c.conn.Do("PING"); err != nil { // a holder keeps its connection
			t.Errorf("client %d: PING of a holder: %v", client, err)
		}
		inside.Unlock()
		if got, err := redis.Int(c.conn.Do("UNLOCK", "shared")); err != nil || got != 1 {
			t.Errorf("client %d: UNLOCK is answered %d, %v", client, got, err)
			return commands
		}
	}
}

// blocked has clients wait at a process for locks that the holder has, half of them in a fair queue, and returns their connections.
func blocked(t *testing.T, p *process, addr string, holder redis.Conn, name string, clients int) (waiting []redis.Conn) {
	t.Helper()
	verbs := [2]string{"LOCK", "FAIRLOCK"}
	for _, verb := range verbs {
		expect(t, holder, "OK", verb, name+verb)
	}
	for i := range clients {
		c := p.dial("tcp", addr)
		if err := c.Send(verbs[i%2], name+verbs[i%2], "BLOCK", 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		list, err := holder.Do("LOCKLIST", "MATCH", name+"*")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(fmt.Sprintf("%s", list), "waiting-ms") == clients {
			return waiting
		}
		if time.Now().After(end) {
			t.Fatalf("%d clients do not come to wait: %s", clients, list)
		}
	}
}

// ready asks /readyz often, on new connections that the system spreads over all who listen: each is answered by one that serves, and not by
// one that starts or drains. On a busy machine that one may have to be asked again, because Redis takes long.
func ready(t *testing.T, metrics string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	end := time.Now().Add(patience)
	for answered := 0; answered < 50; {
		resp, err := client.Get("http://" + metrics + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK && err == nil {
			answered++
			continue
		}
		said := string(body)
		if err != nil || strings.Contains(said, "starting") || strings.Contains(said, "draining") || time.Now().After(end) {
			t.Fatalf("/readyz is answered %d %q, %v", resp.StatusCode, said, err)
		}
	}
}

// A new process serves at the same address while the old one drains: clients that connect again get all their replies, no lock is
// held twice, who holds one keeps it until it unlocks, and who waits for one is told to ask again. The host is ready all the time.
func TestUpgradeWithReusePort(t *testing.T) {
	t.Parallel()
	upgrades, clients, waiters := 2, 20, 4
	if harness.Long() {
		upgrades, clients, waiters = 5, 200, 100
	}
	server := testredis.Start(t)
	server.Do(t, "SET", "kept", "value")
	addr, metrics := freeAddr(t), freeAddr(t)
	args := []string{"--upstream", server.URL(), "--listen", addr, "--metrics-listen", metrics, "--reuse-port", "yes", "--drain-delay", "1s", "--drain-timeout", "1m"}
	old := start(t, args...)
	stop := make(chan struct{})
	var work sync.WaitGroup
	var commands atomic.Int64
	var inside sync.Mutex // TryLock fails when two have the lock
	defer work.Wait()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	for i := range clients {
		work.Go(func() { commands.Add(int64(upgraded(t, addr, i, &inside, stop))) })
	}
	for i := range upgrades {
		name := fmt.Sprintf("kept-%d-", i)
		holder := old.dial("tcp", addr)
		waiting := blocked(t, old, addr, holder, name, waiters)
		next := start(t, args...)
		next.awaitLog("serving")
		old.cmd.Process.Signal(syscall.SIGTERM)
		old.awaitLog("draining")
		ready(t, metrics)
		for _, c := range waiting {
			if got, err := c.Receive(); err == nil || !strings.HasPrefix(err.Error(), "DRAINING") {
				t.Errorf("upgrade %d: who waits is answered %v, %v", i, got, err)
			}
		}
		for _, verb := range []string{"LOCK", "FAIRLOCK"} {
			expect(t, holder, int64(1), "RENEW", name+verb)
			expect(t, holder, int64(1), "UNLOCK", name+verb)
		}
		if code := old.exit(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		old = next
	}
	end()
	work.Wait()
	t.Logf("%d upgrades: %d clients had %d commands answered", upgrades, clients, commands.Load())
}

// servedBy is the proxy that has accepted c.
func servedBy(c redis.Conn) (id string, err error) {
	info, err := redis.String(c.Do("INFO", "lockproxy"))
	_, after, _ := strings.Cut(info, "lockproxy_id:")
	id, _, _ = strings.Cut(after, "\r\n")
	return id, err
}

// newcomer is the proxy that a new client comes to.
func newcomer(addr string) (id string, err error) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return servedBy(c)
}

// Where another process serves, one that drains does not go on taking clients for --drain-delay: the other one says that the host is ready,
// so that nobody could learn anything in that time.
func TestNewClientsComeToTheNewProcess(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	args := []string{"--upstream", testredis.Start(t).URL(), "--listen", addr, "--metrics-listen", freeAddr(t), "--reuse-port", "yes", "--drain-delay", "1h", "--drain-timeout", "1h"}
	old := start(t, args...)
	holder := old.dial("tcp", addr)
	expect(t, holder, "OK", "LOCK", "kept")
	first, err := servedBy(holder)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	start(t, args...).awaitLog("serving")
	old.cmd.Process.Signal(syscall.SIGTERM)
	old.awaitLog("draining")
	// Its listeners are closed soon after, and then no client comes to it any more.
	olds, news := 0, 0
	for end := time.Now().Add(patience); news < 100; {
		id, err := newcomer(addr)
		if err == nil && id != first {
			news++
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%d clients have come to the process that drains, or to none: %v", olds, err)
		}
		olds, news = olds+1, 0
		time.Sleep(5 * time.Millisecond)
	}
	expect(t, holder, int64(1), "UNLOCK", "kept")
	if code := old.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A process that might have been replaced, and was not, takes clients for --drain-delay, so that load balancers can notice.
func TestLastProcessServesOn(t *testing.T) {
	t.Parallel()
	addr, metrics := freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", testredis.Start(t).URL(), "--listen", addr, "--metrics-listen", metrics, "--reuse-port", "yes", "--drain-delay", "1h")
	expect(t, p.dial("tcp", addr), "PONG", "PING")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.awaitLog("draining")
	for range 10 {
		late := p.dial("tcp", addr)
		expect(t, late, "OK", "LOCK", "l")
		expect(t, late, int64(1), "UNLOCK", "l")
	}
	if resp, err := http.Get("http://" + metrics + "/readyz"); err == nil {
		resp.Body.Close()
		t.Errorf("it is asked whether the host is ready, and says %d", resp.StatusCode)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != exitForce {
		t.Errorf("exit code %d", code)
	}
}

// A new process that cannot serve yet is not asked whether the host is ready, as it would say no.
func TestReadyWhileAnotherStarts(t *testing.T) {
	t.Parallel()
	metrics := freeAddr(t)
	args := []string{"--listen", freeAddr(t), "--metrics-listen", metrics, "--reuse-port", "yes", "--upstream"}
	start(t, append(args, testredis.Start(t).URL())...)
	awaitPage(t, "http://"+metrics+"/readyz", http.StatusOK, "ok")
	start(t, append(args, "redis-cluster://"+freeAddr(t))...).awaitLog("cluster")
	ready(t, metrics)
}
