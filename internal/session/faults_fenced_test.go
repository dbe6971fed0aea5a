package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The connection is lost at every stage of FENCED: before the command is sent nothing was run, and the lock is released as
// always; afterwards nobody knows, and the lock runs out.
func TestFencedLosesItsConnection(t *testing.T) {
	t.Parallel()
	const oneWay = 400 * time.Millisecond
	for after, c := range map[time.Duration]struct {
		told, unlocked string
		ran            bool
	}{
		oneWay / 2:     {told: "upstream unavailable", unlocked: ":1"},
		3 * oneWay / 2: {told: "upstream unavailable", unlocked: ":1"},
		5 * oneWay / 2: {told: "unknown", unlocked: "not released"},
		7 * oneWay / 2: {told: "unknown", unlocked: "not released", ran: true},
	} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			data := testredis.NewProxy(t, server.Addr())
			addr := twoWires(t, data.Addr(), server.Addr(), lock.Options{Watchdog: 20 * time.Second})
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
			data.Latency(oneWay)
			if err := client.say("FENCED l SET x 1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			data.CutAll()
			data.Clear()
			told := client.hear()
			unlocked := client.ask("UNLOCK l")
			ran := redis.ask("EXISTS x") == ":1"
			if !strings.Contains(told, c.told) || !strings.Contains(unlocked, c.unlocked) || ran != c.ran {
				t.Errorf("told %q, UNLOCK %q, ran %v; want %+v", told, unlocked, ran, c)
			}
			if got := client.ask("PING"); !strings.Contains(got, "PONG") {
				t.Errorf("PING: %q", got)
			}
		})
	}
}
