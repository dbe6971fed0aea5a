package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The page lists clients, finds one by a part of its name, address or user, and closes the one that was shown: its
// locks end with their leases, and nobody else is closed.
func TestClientsOnThePage(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		clientsOnThePage(t, server.URL(), server)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := testredis.StartCluster(t, 3, 0)
		clientsOnThePage(t, "redis-cluster://"+c.Servers[0].Addr(), nil)
	})
}

func clientsOnThePage(t *testing.T, upstream string, server *testredis.Server) {
	addr, at := freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", upstream, "--listen", addr, "--admin-listen", at, "--drain-timeout", "0", "--max-locks-per-user", "3", "--operators", "default")
	holder, other := p.dial("tcp", addr), p.dial("tcp", addr)
	expect(t, holder, "OK", "CLIENT", "SETNAME", "pay<b>roll")
	for i := range 3 {
		expect(t, holder, "OK", "LOCK", fmt.Sprint("orders:", i))
	}
	if _, err := other.Do("LOCK", "orders:4"); err == nil || !strings.Contains(err.Error(), "max number of locks") {
		t.Errorf("a lock too many: %v", err)
	}
	id, err := redis.Int64(holder.Do("CLIENT", "ID"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string { return fetch(t, "http://"+at+path) }
	list := func(query string) (found struct {
		Of      int
		Clients []struct {
			ID               int64
			Addr, Name, User string
			Locks            int
		}
	}) {
		t.Helper()
		if err := json.Unmarshal([]byte(get("/clients.json"+query)), &found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if all := list(""); all.Of != 2 || len(all.Clients) != 2 || all.Clients[0].ID != id || all.Clients[0].Locks != 3 || all.Clients[0].User != "default" {
		t.Errorf("%+v", all)
	}
	found := list("?name=b%3Eroll")
	if found.Of != 1 || len(found.Clients) != 1 || found.Clients[0].Name != "pay<b>roll" {
		t.Fatalf("%+v", found)
	}
	if none := list("?name=nobody"); none.Of != 0 {
		t.Errorf("%+v", none)
	}
	if text := get("/clients"); !strings.Contains(text, "pay&lt;b&gt;roll") {
		t.Error(text)
	}
	var proxy struct{ Proxy string }
	if err := json.Unmarshal([]byte(get("/nodes.json")), &proxy); err != nil {
		t.Fatal(err)
	}
	kill := func(addr, proxy string) string {
		t.Helper()
		answer, err := http.PostForm(fmt.Sprintf("http://%s/client?id=%d", at, id), url.Values{"sure": {"yes"}, "addr": {url.PathEscape(addr)}, "proxy": {proxy}})
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.Request.URL.Query().Get("said")
	}
	if said := kill(found.Clients[0].Addr, "another"); said != "gone" {
		t.Errorf("at another proxy: %s", said)
	}
	if said := kill("127.0.0.1:1", proxy.Proxy); said != "gone" {
		t.Errorf("of another address: %s", said)
	}
	expect(t, holder, "PONG", "PING")
	if said := kill(found.Clients[0].Addr, proxy.Proxy); said != "closed" {
		t.Errorf("it is %s", said)
	}
	if _, err := holder.Do("PING"); err == nil {
		t.Error("it is there still")
	}
	expect(t, other, "PONG", "PING")
	p.awaitLog("a client was closed at the page for operators")
	awaitText(t, `"of":1`, func() string { return get("/clients.json") })
	if said := kill(found.Clients[0].Addr, proxy.Proxy); said != "gone" {
		t.Errorf("a second time: %s", said)
	}
	if server != nil && server.Do(t, "EXISTS", "orders:1") != int64(1) {
		t.Error("its locks are given back, although its program may be at work")
	}
}

// Ten thousand clients cost no more to list than two hundred take to draw, or nearly so.
func TestManyClientsOnThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("it opens thousands of connections")
	}
	t.Parallel()
	const clients = 2000 // the limit of open files is the test's, too
	addr, at := freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", testredis.Start(t).URL(), "--listen", addr, "--admin-listen", at, "--drain-timeout", "0")
	for i := range clients {
		c := p.dial("tcp", addr)
		if i == clients-1 {
			expect(t, c, "OK", "CLIENT", "SETNAME", "the-last")
			expect(t, c, "OK", "LOCK", "l")
		}
	}
	awaitText(t, `"of":2000`, func() string { return fetch(t, "http://"+at+"/clients.json") })
	began := time.Now()
	text := fetch(t, "http://"+at+"/clients")
	t.Logf("drawn in %v", time.Since(began))
	if strings.Count(text, `class="key"`) != 200 || !strings.Contains(text, "200 of 2,000 clients") {
		t.Errorf("%.2000s", text)
	}
	if first, _, _ := strings.Cut(text, "</tr>\n</tbody>"); !strings.Contains(first[:strings.Index(first, "</td>")+1], "the-last") {
		t.Error("the holder is not first")
	}
	if found := fetch(t, "http://"+at+"/clients.json?name=the-last"); !strings.Contains(found, `"of":1,`) {
		t.Error(found)
	}
}
