package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// fleet is some proxies before one Redis, each with a page.
type fleet struct {
	t         *testing.T
	processes []*process
	pages     []string
	conns     []redis.Conn
}

// toldLock is a lock as /locks.json has it.
type toldLock struct {
	Name             string
	Holders, Waiters []struct{ Owner, Proxy string }
}

func startFleet(t *testing.T, upstream string) *fleet {
	f := &fleet{t: t}
	for range 3 {
		addr, at := freeAddr(t), freeAddr(t)
		p := start(t, "--upstream", upstream, "--listen", addr, "--admin-listen", at, "--operators", "default", "--drain-timeout", "0")
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
	r, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.pages[i]+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w, err := http.DefaultClient.Do(r)
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

// One page shows what all proxies hold and wait for, before one Redis, a cluster and Sentinels. A force at it frees what it
// says at another proxy, and nothing else, and the holder hears of it. One that is stopped, or killed, is known as such.
func TestPageShowsAllProxies(t *testing.T) {
	t.Parallel()
	for name, upstream := range map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return testredis.Start(t).URL() },
		"sentinel": func(t *testing.T) string { return testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1}).URL() },
		"cluster": func(t *testing.T) string {
			return "redis-cluster://" + testredis.StartCluster(t, 3, 0).Servers[0].Addr()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, upstream(t))
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
				f.eventually(call, func() bool {
					rows, err := redis.Values(f.conns[0].Do("LOCKPROXY", args...))
					row := ""
					if len(rows) > 0 {
						row = fmt.Sprintf("%q", rows[0])
					}
					return err == nil && len(rows) == want && (call != "WAITERS 5 ALL" || strings.Contains(row, b.Waiters[0].Proxy) && strings.Contains(row, `"told-ms-ago"`))
				})
			}
			for _, path := range []string{"/", "/lock?db=0&name=b", "/proxies"} {
				if text := f.do(0, 200, path, nil); !strings.Contains(text, b.Holders[0].Proxy[:8]) {
					t.Errorf("%s does not name the other proxy:\n%s", path, text)
				}
			}
			f.do(0, 200, "/lock?db=0&name=b", url.Values{"sure": {"yes"}, "holder": {"plain:" + b.Holders[0].Owner}})
			if got, err := redis.String(waiting.Receive()); got != "OK" || err != nil {
				t.Errorf("who waits for the lock that was freed: %q, %v", got, err)
			}
			f.processes[0].awaitLog("lock freed by force")
			f.eventually("the holder's proxy tells of the force", func() bool {
				rows, err := redis.Values(f.conns[1].Do("LOCKPROXY", "EVENTS", 5, "b", "end"))
				return err == nil && len(rows) == 1 && strings.Contains(fmt.Sprintf("%q", rows[0]), `"forced"`)
			})
			if _, err := f.conns[1].Do("UNLOCK", "b"); err == nil || !strings.HasPrefix(err.Error(), "LOCKLOST") {
				t.Errorf("the holder hears %v", err)
			}
			expect(t, f.conns[0], int64(1), "UNLOCK", "a")
			expect(t, f.conns[2], int64(1), "UNLOCK", "c")
			stopped := f.processes[1].cmd.Process
			f.signal(stopped, syscall.SIGSTOP)
			f.eventually("one does not answer", func() bool { return slices.Equal(f.states(0), []string{"down it does not answer", "self ", "up "}) })
			f.eventually("the page says so", func() bool { return strings.Contains(f.do(0, 200, "/", nil), "No answer</a>") })
			f.signal(stopped, syscall.SIGCONT)
			f.eventually("it answers again", func() bool { return slices.Equal(f.states(0), []string{"self ", "up ", "up "}) })
			f.signal(f.processes[2].cmd.Process, syscall.SIGKILL)
			f.eventually("one has gone", func() bool {
				return slices.ContainsFunc(f.states(0), func(s string) bool { return strings.HasPrefix(s, "gone") })
			})
			if text := f.do(0, 200, "/lock?db=0&name=b", nil); !strings.Contains(text, "which has gone") {
				t.Errorf("the lock of the dead one:\n%s", text)
			}
		})
	}
}

func (f *fleet) signal(to *os.Process, what syscall.Signal) {
	f.t.Helper()
	if err := to.Signal(what); err != nil {
		f.t.Fatal(err)
	}
}

// addr is where the clients of a proxy connect to.
func (f *fleet) addr(i int) string {
	at := slices.Index(f.processes[i].cmd.Args, "--listen")
	return f.processes[i].cmd.Args[at+1]
}
