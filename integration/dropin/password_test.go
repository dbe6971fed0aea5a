package dropin

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// door is a set of servers whose clients need no password, as yet.
type door struct {
	admins []redis.Conn // each server's, made while that is so
	addr   string       // of lockproxy before them
}

const boss = "--user boss on >b ~* &* +@all"

func doors(t *testing.T) map[string]func(t *testing.T) *door {
	at := func(t *testing.T, url string, servers ...*testredis.Server) *door {
		d := &door{}
		for _, s := range servers {
			d.admins = append(d.admins, s.Dial(t))
		}
		d.addr = harness.StartProxy(t, url).Addr()
		return d
	}
	return map[string]func(t *testing.T) *door{
		"one Redis": func(t *testing.T) *door {
			s := testredis.Start(t, boss)
			return at(t, strings.Replace(s.URL(), "://", "://boss:b@", 1), s)
		},
		"Sentinel": func(t *testing.T) *door {
			g := testredis.StartGroup(t, testredis.GroupOptions{Node: []string{boss}})
			return at(t, strings.Replace(g.URL(), "://", "://boss:b@", 1), g.Master())
		},
		"cluster": func(t *testing.T) *door {
			tc := testredis.StartCluster(t, 3, 0, boss)
			return at(t, strings.Replace(harness.ClusterURL(tc), "://", "://boss:b@", 1), tc.Servers...)
		},
	}
}

func (d *door) each(t *testing.T, args ...any) {
	t.Helper()
	for _, c := range d.admins {
		if _, err := c.Do(args[0].(string), args[1:]...); err != nil {
			t.Fatal(err)
		}
	}
}

// newcomers are what clients may say first.
var newcomers = []string{
	"GET a", "GET b", "GET c", "MGET a b c", "LOCK l", "LOCK l BLOCK 100 PX 1000 FENCE", "FAIRLOCK l", "MULTILOCK 1 l", "UNLOCK l FORCE", "LOCKINFO l", "LOCKLIST",
	"MULTI", "WATCH a", "BLPOP a 0.01", "SUBSCRIBE x", "SSUBSCRIBE x", "EVAL return(1) 0", "SELECT 0", "CLIENT ID", "DBSIZE",
}

const asksPassword = "-NOAUTH Authentication required.\r\n"

// strangers has each of the newcomers' commands said by a client of its own.
func (d *door) strangers(t *testing.T) (served []string) {
	for _, line := range newcomers {
		w := harness.Dial(t, d.addr)
		if got := w.Do(strings.Fields(line)...); got != asksPassword {
			served = append(served, line+": "+got)
		}
		w.C.Close()
	}
	return served
}

// Once Redis asks for a password no newcomer is served without, whatever the way it came to ask, and however short the time was
// in which it did not. Whoever was in before stays in, as at Redis.
func TestStrangersStayOutOnceTheDoorIsClosed(t *testing.T) {
	t.Parallel()
	for name, start := range doors(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			for _, change := range []string{
				"CONFIG SET requirepass secret", "ACL SETUSER default off", "ACL SETUSER default resetpass", "ACL SETUSER default resetpass >secret",
			} {
				d.each(t, "ACL", "SETUSER", "default", "on", "nopass")
				early, listener := harness.Dial(t, d.addr), harness.Dial(t, d.addr)
				harness.Eventually(t, "a client is served", func() bool { return early.Do("SET", "a", "1") == "+OK\r\n" })
				harness.Eventually(t, "all nodes serve", func() bool { return early.Do("MGET", "a", "b", "c")[0] == '*' })
				listener.Do("SUBSCRIBE", "x")
				fields := strings.Fields(change)
				args := make([]any, len(fields))
				for i, f := range fields {
					args[i] = f
				}
				d.each(t, args...)
				for range 3 {
					if served := d.strangers(t); served != nil {
						t.Fatalf("%s: %q", change, served)
					}
				}
				harness.Expect(t, early, "$1\r\n1\r\n", "GET", "a")
				harness.Expect(t, early, "+OK\r\n", "LOCK", "late")
				harness.Expect(t, early, ":1\r\n", "UNLOCK", "late")
				if got, err := listener.Try("PING"); err != nil || !strings.Contains(got, "pong") {
					t.Errorf("%s: a subscriber from before: %q, %v", change, got, err)
				}
				harness.Expect(t, early, "+RESET\r\n", "RESET") // it is a newcomer now
				harness.Expect(t, early, asksPassword, "GET", "a")
				early.C.Close()
				listener.C.Close()
			}
		})
	}
}
