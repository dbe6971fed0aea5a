package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// An account whose password is rotated, at a server and in a file.
type account struct {
	server *testredis.Server
	user   string
	flag   string // that names the file
}

// The passwords of the proxy's accounts are rotated, at the servers and in files, while clients lock and read: no one of them is told an error, and
// what connections are made afterwards, by all of them being closed, have the new one.
func TestServicePasswordRotated(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		rotated(t, "redis://service@"+server.Addr(), account{server, "service", "--upstream-password-file"})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := testredis.StartCluster(t, 2, 0)
		rotated(t, "redis-cluster://service@"+c.Servers[0].Addr(),
			account{c.Servers[0], "service", "--upstream-password-file"}, account{c.Servers[1], "service", "--upstream-password-file"})
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		watcher := testredis.StartSentinel(t, "", fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", testredis.MasterName, server.Port()))
		rotated(t, "redis+sentinel://service@"+watcher.Addr()+"/"+testredis.MasterName+"?sentinel-user=watcher",
			account{server, "service", "--upstream-password-file"}, account{watcher, "watcher", "--sentinel-password-file"})
	})
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		var nodes []account
		var urls []string
		for range 3 {
			server := testredis.Start(t)
			nodes = append(nodes, account{server, "voter", "--quorum-password-file"})
			urls = append(urls, "redis://voter@"+server.Addr())
		}
		rotatedWith(t, []string{"--upstream", testredis.Start(t).URL(), "--quorum", strings.Join(urls, ","),
			"--quorum-max-lease", "8s", "--lock-watchdog-timeout", "8s", "--quorum-node-timeout", "800ms"}, nodes...)
	})
}

// inSilence says whether too few nodes of a quorum have answered in time, as on a busy machine, and none has refused, or was lost: a NOQUORUM for
// another reason says which.
func inSilence(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOQUORUM ") && !strings.HasSuffix(err.Error(), ")")
}

func rotated(t *testing.T, url string, accounts ...account) {
	rotatedWith(t, []string{"--upstream", url}, accounts...)
}

func rotatedWith(t *testing.T, args []string, accounts ...account) {
	each := func(words ...any) {
		t.Helper()
		for _, a := range accounts {
			a.server.Do(t, append([]any{"ACL", "SETUSER", a.user}, words...)...)
		}
	}
	each("on", ">old", "~*", "&*", "+@all")
	addr, files := freeAddr(t), map[string]string{}
	for _, a := range accounts {
		files[a.flag] = filepath.Join(t.TempDir(), "password")
	}
	write := func(password string) {
		t.Helper()
		for _, file := range files {
			if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("old\n")
	args = append(args, "--listen", addr)
	for flag, file := range files {
		args = append(args, flag, file)
	}
	p := start(t, args...)
	locks := func() bool {
		c := p.dial("tcp", addr)
		defer c.Close()
		for i := range 20 {
			if got, err := redis.String(c.Do("LOCK", fmt.Sprint("l", i))); err != nil || got != "OK" {
				return false
			}
			if _, err := c.Do("UNLOCK", fmt.Sprint("l", i)); err != nil {
				return false
			}
		}
		return true
	}
	await(t, "locks: a quorum's nodes are too young at first", locks)
	var clients sync.WaitGroup
	var over atomic.Bool
	var rounds [20]atomic.Int64
	for i := range rounds {
		c := p.dial("tcp", addr)
		clients.Go(func() {
			for !over.Load() {
				for _, line := range []string{fmt.Sprint("LOCK l", i), fmt.Sprint("GET k", i), fmt.Sprint("UNLOCK l", i)} {
					words := redis.Args{}.AddFlat(strings.Fields(line))
					_, err := c.Do(words[0].(string), words[1:]...)
					for try := 0; try < 50 && inSilence(err); try++ {
						_, err = c.Do(words[0].(string), words[1:]...)
					}
					if err != nil {
						t.Errorf("%s: %v", line, err)
						return
					}
				}
				rounds[i].Add(1)
				time.Sleep(5 * time.Millisecond) // which leaves the processors to other tests
			}
		})
	}
	defer clients.Wait()
	defer over.Store(true)
	another := func() {
		t.Helper()
		for i := range rounds {
			before := rounds[i].Load()
			await(t, "another round of each client", func() bool { return rounds[i].Load() > before+1 || t.Failed() })
		}
	}
	another()
	each(">new")
	another()
	write("new\n")
	readers := len(files)
	if _, ok := files["--quorum-password-file"]; ok {
		readers = len(accounts) // one a node
	}
	await(t, "the new passwords are known", func() bool { return strings.Count(p.logged(), "passwords reloaded") == readers })
	each("<old")
	another()
	over.Store(true)
	clients.Wait()
	connections := func(a account) (all []string) {
		list, err := redis.String(a.server.Do(t, "CLIENT", "LIST"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(list) {
			if strings.Contains(line, " user="+a.user+" ") {
				all = append(all, strings.Fields(line)[0])
			}
		}
		return all
	}
	for _, a := range accounts {
		before := connections(a)
		if len(before) == 0 {
			t.Fatalf("no connection is %s's", a.user)
		}
		a.server.Do(t, "CLIENT", "KILL", "USER", a.user)
		await(t, "new connections of "+a.user, func() bool {
			now := connections(a)
			return len(now) > 0 && !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(before, id) })
		})
	}
	await(t, "locks at each server", locks)
	if strings.Contains(p.logged(), "WRONGPASS") {
		t.Error("the old password was used when it was not valid any more")
	}
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
