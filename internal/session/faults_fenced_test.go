package session_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The connection is lost at every stage of FENCED: before the command is sent nothing was run, and the lock is released as
// always; afterwards nobody knows, and the lock runs out.
func TestFencedLosesItsConnection(t *testing.T) {
	t.Parallel()
	const unsent, unknown = "upstream unavailable", "unknown"
	for name, c := range map[string]struct {
		word           string // the connection is cut when this is on its way to Redis
		answered       bool   // or when the reply to it is
		told, unlocked string
		ran            bool
	}{
		"WATCH on its way": {word: "WATCH", told: unsent, unlocked: ":1"},
		"WATCH answered":   {word: "WATCH", answered: true, told: unsent, unlocked: ":1"},
		"EXEC on its way":  {word: "EXEC", told: unknown, unlocked: "not released"},
		"EXEC answered":    {word: "EXEC", answered: true, told: unknown, unlocked: "not released", ran: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			data := testredis.NewProxy(t, server.Addr())
			addr := twoWires(t, data.Addr(), server.Addr(), lock.ManagerOptions{Watchdog: 10 * time.Minute})
			client := connect(t, addr)
			if got := client.ask("LOCK l"); got != "OK" {
				t.Fatal(got)
			}
			// A connection is kept for the next FENCED as soon as Redis' commands are known.
			redis := around(t, server)
			for end, kept := time.Now().Add(longEnough), false; !kept; kept = strings.Contains(redis.ask("CLIENT LIST"), "cmd=exec ") {
				if got := client.ask("FENCED l SET y 1"); got != "OK" || time.Now().After(end) {
					t.Fatal(got)
				}
				time.Sleep(20 * time.Millisecond) // one that is not kept is gone by then
			}
			var mu sync.Mutex // nothing passes on another connection while all are cut
			var asked, cut bool
			isCut := make(chan struct{})
			data.Filter(func(toServer bool, b []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				asked = asked || toServer && bytes.Contains(b, []byte(c.word))
				if toServer == c.answered || !asked || cut {
					return true
				}
				cut = true
				data.CutAll()
				close(isCut)
				return false
			})
			if err := client.say("FENCED l SET x 1"); err != nil {
				t.Fatal(err)
			}
			told := client.hear()
			<-isCut // all of it: a connection that is made meanwhile may be cut, too
			for end := time.Now().Add(longEnough); connect(t, addr).ask("PING") != "PONG"; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no connection is made again")
				}
			}
			unlocked := client.ask("UNLOCK l")
			ran := redis.ask("EXISTS x") == ":1"
			if !strings.Contains(told, c.told) || !strings.Contains(unlocked, c.unlocked) || ran != c.ran {
				t.Errorf("told %q, UNLOCK %q, ran %v; want %+v", told, unlocked, ran, c)
			}
			if got := client.ask("PING"); got != "PONG" {
				t.Errorf("PING: %q", got)
			}
		})
	}
}
