package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The service account's password is rotated, at Redis and in the file, while clients lock and read: no one of them is told an error, and what
// connections are made afterwards have the new one.
func TestServicePasswordRotated(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	do := func(args ...any) { server.Do(t, args...) }
	do("ACL", "SETUSER", "service", "on", ">old", "~*", "&*", "+@all")
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	addr := freeAddr(t)
	p := start(t, "--upstream", "redis://service@"+server.Addr(), "--upstream-password-file", file, "--listen", addr)
	var clients sync.WaitGroup
	var over atomic.Bool
	var rounds [20]atomic.Int64
	for i := range rounds {
		c := p.dial("tcp", addr)
		clients.Go(func() {
			for !over.Load() {
				for _, line := range []string{fmt.Sprint("LOCK l", i), "GET k", fmt.Sprint("UNLOCK l", i)} {
					words := redis.Args{}.AddFlat(strings.Fields(line))
					if _, err := c.Do(words[0].(string), words[1:]...); err != nil {
						t.Errorf("%s: %v", line, err)
						return
					}
				}
				rounds[i].Add(1)
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
	do("ACL", "SETUSER", "service", ">new")
	another()
	write("new\n")
	p.awaitLog("passwords reloaded")
	do("ACL", "SETUSER", "service", "<old")
	another()
	fresh := p.dial("tcp", addr)
	expect(t, fresh, "OK", "SELECT", 1) // whose locks need connections of their own
	expect(t, fresh, "OK", "LOCK", "l")
	expect(t, fresh, "OK", "RLOCK", "r")
	expect(t, fresh, int64(1), "UNLOCK", "l")
	expect(t, fresh, int64(1), "UNLOCK", "r")
	another()
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
