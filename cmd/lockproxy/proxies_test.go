package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// fleet is some proxies before one Redis, each with a page.
type fleet struct {
	t         *testing.T
	client    http.Client
	scheme    string
	token     string
	processes []*process
	pages     []string
	conns     []redis.Conn
}

// toldLock is a lock as /locks.json has it.
type toldLock struct {
	Name             string
	Holders, Waiters []struct{ Owner, Proxy string }
}

func startFleet(t *testing.T, upstream string, flags ...string) *fleet {
	f := &fleet{t: t, scheme: "http://"}
	for range 3 {
		addr, at := freeAddr(t), freeAddr(t)
		p := start(t, append([]string{"--upstream", upstream, "--listen", addr, "--admin-listen", at, "--operators", "default", "--drain-timeout", "0"}, flags...)...)
		p.awaitLog("the page for operators is there")
		f.processes, f.pages, f.conns = append(f.processes, p), append(f.pages, at), append(f.conns, p.dial("tcp", addr))
	}
	return f
}

// do asks a page, which answers with that code.
func (f *fleet) do(i int, code int, path string, form url.Values) string {
	f.t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.scheme+f.pages[i]+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if f.token != "" {
		r.SetBasicAuth("ann", f.token)
	}
	w, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil || w.StatusCode != code {
		f.t.Fatalf("%s: %d, %v: %s", path, w.StatusCode, err, text)
	}
	return string(text)
}

// locks are those that a page shows.
func (f *fleet) locks(i int) (all []toldLock) {
	f.t.Helper()
	var told struct{ Locks []toldLock }
	if err := json.Unmarshal([]byte(f.do(i, 200, "/locks.json?sort=name", nil)), &told); err != nil {
		f.t.Fatal(err)
	}
	return told.Locks
}

// states are how a page says that the proxies are.
func (f *fleet) states(i int) (all []string) {
	f.t.Helper()
	var told struct {
		Proxies []struct{ State, Trouble string }
	}
	if err := json.Unmarshal([]byte(f.do(i, 200, "/proxies.json", nil)), &told); err != nil {
		f.t.Fatal(err)
	}
	for _, p := range told.Proxies {
		all = append(all, p.State+" "+p.Trouble)
	}
	slices.Sort(all)
	return all
}

// eventually waits until something is so, and returns how long that took.
func (f *fleet) eventually(what string, is func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for ; !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			f.t.Fatalf("never: %s; %v, %v\n%s", what, f.states(0), f.locks(0), f.processes[0].logged())
		}
	}
	return time.Since(began)
}

// know waits until all know each other.
func (f *fleet) know() {
	f.t.Helper()
	for i := range f.pages {
		f.eventually("all pages answer each other", func() bool { return slices.Equal(f.states(i), []string{"self ", "up ", "up "}) })
	}
}

// One page shows what all proxies hold and wait for; a force at another one frees what it says, and nothing else; and
// of one that was killed nothing is waited for.
func TestPageShowsAllProxies(t *testing.T) {
	t.Parallel()
	authority := testredis.NewAuthority(t)
	cert, key := authority.Issue("127.0.0.1")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token that is long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	secure := []string{"--admin-tls-cert", cert, "--admin-tls-key", key}
	for name, c := range map[string]struct {
		cluster bool
		flags   []string
		token   string
	}{
		"redis":        {},
		"cluster":      {cluster: true},
		"token":        {flags: []string{"--admin-token-file", token}, token: "a token that is long enough"},
		"TLS":          {flags: append(secure, "--admin-token-file", token), token: "a token that is long enough"},
		"certificates": {flags: append(secure, "--admin-tls-client-ca", authority.File)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := ""
			if c.cluster {
				upstream = "redis-cluster://" + testredis.StartCluster(t, 3, 0).Servers[0].Addr()
			} else {
				upstream = testredis.Start(t).URL()
			}
			f := startFleet(t, upstream, c.flags...)
			f.token = c.token
			if slices.Contains(c.flags, "--admin-tls-cert") {
				f.scheme, f.client.Transport = "https://", &http.Transport{TLSClientConfig: authority.Client("127.0.0.1")}
			}
			f.know()
			for i, key := range []string{"a", "b", "c"} {
				expect(t, f.conns[i], "OK", "LOCK", key)
			}
			waiting := f.processes[2].dial("tcp", f.addr(2))
			if err := waiting.Send("LOCK", "b", "BLOCK", 0); err != nil {
				t.Fatal(err)
			}
			if err := waiting.Flush(); err != nil {
				t.Fatal(err)
			}
			took := f.eventually("all locks are shown", func() bool {
				all := f.locks(0)
				return len(all) == 3 && len(all[1].Holders) == 1 && len(all[1].Waiters) == 1
			})
			t.Log("all locks are shown after", took)
			b := f.locks(0)[1]
			if b.Name != "b" || b.Holders[0].Proxy == b.Waiters[0].Proxy || !strings.HasPrefix(b.Holders[0].Owner, b.Holders[0].Proxy) {
				t.Errorf("%+v", b)
			}
			for call, want := range map[string]int{"PROXIES": 3, "LOCKS -1 ALL": 3, "LOCKS ALL": 3, "LOCKS 2 ALL": 2, "LOCKS": 1, "WAITERS 5 ALL": 1, "WAITERS": 0} {
				var args []any
				for _, word := range strings.Fields(call) {
					args = append(args, word)
				}
				rows, err := redis.Values(f.conns[0].Do("LOCKPROXY", args...))
				if err != nil || len(rows) != want {
					t.Errorf("%s: %d, %v", call, len(rows), err)
				}
				if call == "WAITERS 5 ALL" {
					if row := fmt.Sprintf("%q", rows[0]); !strings.Contains(row, b.Waiters[0].Proxy) || !strings.Contains(row, `"b"`) {
						t.Error(row)
					}
				}
			}
			link := `href="` + f.scheme + f.pages[1] + "/?name=b"
			for _, path := range []string{"/", "/lock?db=0&name=b", "/proxies"} {
				text := f.do(0, 200, path, nil)
				if has := strings.Contains(text, f.addr(1)) && strings.Contains(text, `href="`+f.scheme+f.pages[1]+"/"); !has || strings.Contains(text, link) != (path == "/lock?db=0&name=b") {
					t.Errorf("%s does not lead to the other proxy:\n%s", path, text)
				}
			}
			f.do(1, 200, "/lock?db=0&name=b", url.Values{"sure": {"yes"}, "holder": {"plain:" + b.Holders[0].Owner}})
			if got, err := redis.String(waiting.Receive()); got != "OK" || err != nil {
				t.Errorf("who waits for the lock that was freed: %q, %v", got, err)
			}
			f.processes[1].awaitLog("lock freed by force")
			expect(t, f.conns[0], int64(1), "UNLOCK", "a")
			expect(t, f.conns[2], int64(1), "UNLOCK", "c")
			if err := f.processes[2].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			f.eventually("the dead one is shown to be silent, and then as gone", func() bool {
				expect(t, f.conns[0], "OK", "LOCK", "a")
				expect(t, f.conns[0], int64(1), "UNLOCK", "a")
				return slices.ContainsFunc(f.states(0), func(s string) bool { return strings.HasPrefix(s, "gone") })
			})
			if text := f.do(0, 200, "/lock?db=0&name=b", nil); !strings.Contains(text, "which has gone") {
				t.Errorf("the lock of the dead one:\n%s", text)
			}
		})
	}
}

// addr is where the clients of a proxy connect to.
func (f *fleet) addr(i int) string {
	at := slices.Index(f.processes[i].cmd.Args, "--listen")
	return f.processes[i].cmd.Args[at+1]
}

// A proxy with another token, or none, is not asked in vain only: it learns nothing, and tells nothing that is shown.
func TestProxiesWithOtherTokens(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	f := &fleet{t: t, scheme: "http://", token: "the token of the first one"}
	for i, text := range []string{f.token, "the token of the second one"} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		addr, at := freeAddr(t), freeAddr(t)
		p := start(t, "--upstream", redis.URL(), "--listen", addr, "--admin-listen", at, "--admin-token-file", file, "--drain-timeout", "0")
		f.processes, f.pages, f.conns = append(f.processes, p), append(f.pages, at), append(f.conns, p.dial("tcp", addr))
		expect(t, f.conns[i], "OK", "LOCK", text)
	}
	f.eventually("the other one refuses", func() bool {
		return slices.ContainsFunc(f.states(0), func(s string) bool { return strings.HasPrefix(s, "down it has another token") })
	})
	if all := f.locks(0); len(all) != 1 {
		t.Errorf("%v", all)
	}
	f.processes[1].awaitLog("a wrong token for the page for operators")
}
