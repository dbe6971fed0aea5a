package session

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// stressed is a client that does whatever Redis keeps state for, and knows the reply to all of it. Its keys, channels
// and values carry its name and generation, and its values the database, so that whatever is another's is noticed.
type stressed struct {
	t      *testing.T
	addr   string
	user   string
	past   *wire // to Redis itself
	n      int
	gen    int
	w      *wire
	me     string // prefix of all it owns
	proto  int
	db     int
	logged bool // in as user
	say    []byte
	want   []string
	push   map[string]int // pushes to come, in RESP3
	count  int
}

func (c *stressed) connect() bool {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		c.t.Error(err)
		return false
	}
	c.w = &wire{t: c.t, conn: conn}
	c.gen++
	c.me = fmt.Sprintf("c%d.%d", c.n, c.gen)
	c.proto, c.db, c.logged, c.push = 2, 0, false, map[string]int{}
	return true
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func list(elems ...string) string {
	return fmt.Sprintf("*%d\r\n%s", len(elems), strings.Join(elems, ""))
}

func (c *stressed) null(two string) string {
	if c.proto == 3 {
		return "_\r\n"
	}
	return two
}

// on is a frame that comes by itself.
func (c *stressed) on(elems ...string) string {
	if c.proto == 3 {
		return ">" + list(elems...)[1:]
	}
	return list(elems...)
}

// do adds a command and its replies.
func (c *stressed) do(line string, want ...string) {
	c.say = resp.AppendCommand(c.say, strings.Fields(line)...)
	c.want = append(c.want, want...)
}

// run sends what was added, in some pieces, and compares.
func (c *stressed) run() bool {
	for len(c.say) > 0 {
		n := len(c.say)
		if rand.IntN(3) == 0 {
			n = 1 + rand.IntN(n)
		}
		if _, err := c.w.conn.Write(c.say[:n]); err != nil {
			c.t.Errorf("%s: %v", c.me, err)
			return false
		}
		c.say = c.say[n:]
	}
	for i := 0; i < len(c.want); {
		f, err := c.w.tryFrame(patience)
		switch {
		case err == nil && c.push[f] > 0:
			c.push[f]--
			continue
		case err == nil && f == c.want[i]:
			i++
			continue
		}
		c.t.Errorf("%s, RESP%d: got %.200q (%v), want reply %d of %.1000q", c.me, c.proto, f, err, i, c.want)
		return false
	}
	c.count += len(c.want)
	c.want = c.want[:0]
	return true
}

func (c *stressed) key() string { return fmt.Sprintf("%s:%d", c.me, rand.IntN(3)) }

func (c *stressed) value() string { return fmt.Sprintf("%s@%d=%d", c.me, c.db, rand.IntN(1000)) }

var deeds = []func(*stressed) bool{
	func(c *stressed) bool { // shared
		k, v := c.key(), c.value()
		c.do("SET "+k+" "+v, "+OK\r\n")
		c.do("GET "+k, bulk(v))
		return c.run()
	},
	func(c *stressed) bool { // a transaction, with an error in it and ordinary commands around
		k, v := c.key(), c.value()
		c.do("ECHO "+v, bulk(v))
		c.do("MULTI", "+OK\r\n")
		c.do("SET "+k+" "+v, "+QUEUED\r\n")
		c.do("INCR "+k, "+QUEUED\r\n")
		c.do("GET "+k, "+QUEUED\r\n")
		c.do("EXEC", list("+OK\r\n", "-ERR value is not an integer or out of range\r\n", bulk(v)))
		c.do("GET "+k, bulk(v))
		return c.run()
	},
	func(c *stressed) bool { // aborted, discarded
		c.do("MULTI", "+OK\r\n")
		c.do("LOCK x", "-"+notInMulti+"\r\n")
		c.do("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		c.do("MULTI", "+OK\r\n")
		c.do("SET "+c.key()+" x", "+QUEUED\r\n")
		c.do("DISCARD", "+OK\r\n")
		c.do("EXEC", "-ERR EXEC without MULTI\r\n")
		return c.run()
	},
	func(c *stressed) bool { // a database chosen within
		db := rand.IntN(4)
		c.do("MULTI", "+OK\r\n")
		c.do(fmt.Sprintf("SELECT %d", db), "+QUEUED\r\n")
		c.db = db
		k, v := c.key(), c.value()
		c.do("SET "+k+" "+v, "+QUEUED\r\n")
		c.do("EXEC", list("+OK\r\n", "+OK\r\n"))
		c.do("GET "+k, bulk(v))
		return c.run()
	},
	func(c *stressed) bool {
		c.db = rand.IntN(4)
		c.do(fmt.Sprintf("SELECT %d", c.db), "+OK\r\n")
		return c.run()
	},
	func(c *stressed) bool { // watched, and perhaps changed
		k, v := c.key(), c.value()
		c.do("WATCH "+k, "+OK\r\n")
		c.do("EXEC", "-ERR EXEC without MULTI\r\n")
		reply := list("+OK\r\n")
		if rand.IntN(2) == 0 {
			c.do("SET "+k+" "+v, "+OK\r\n")
			reply = c.null("*-1\r\n")
		}
		if rand.IntN(3) == 0 {
			c.do("LOCK "+k+"l", "+OK\r\n")
			c.do("UNLOCK "+k+"l", ":1\r\n")
		}
		c.do("MULTI", "+OK\r\n")
		c.do("SET "+k+" "+v, "+QUEUED\r\n")
		c.do("EXEC", reply)
		return c.run()
	},
	func(c *stressed) bool { // watched only
		c.do("WATCH "+c.key(), "+OK\r\n")
		c.do("UNWATCH", "+OK\r\n")
		return c.run()
	},
	func(c *stressed) bool { // waits, in vain and not
		q, v := c.me+"q", c.value()
		c.do("BLPOP "+q+" 0.005", c.null("*-1\r\n"))
		c.do("RPUSH "+q+" "+v, ":1\r\n")
		c.do("BLPOP "+q+" 0", list(bulk(q), bulk(v)))
		c.do("ECHO "+v, bulk(v))
		c.do("BLMPOP 0.002 1 "+q+" LEFT", c.null("*-1\r\n"))
		c.do("WAIT 0 0", ":0\r\n")
		return c.run()
	},
	func(c *stressed) bool { // subscribes, hears, leaves
		a, v := c.me+"ch", c.value()
		c.do("SUBSCRIBE "+a+" "+a+" "+a+"2", c.on(bulk("subscribe"), bulk(a), ":1\r\n"), c.on(bulk("subscribe"), bulk(a), ":1\r\n"),
			c.on(bulk("subscribe"), bulk(a+"2"), ":2\r\n"))
		if c.proto == 3 {
			c.do("LOCK "+a+" BLOCK 0", "+OK\r\n")
			c.do("UNLOCK "+a, ":1\r\n")
			c.do("GET nobodys", "_\r\n")
		}
		if !c.run() {
			return false
		}
		n := rand.IntN(4)
		for range n {
			c.past.do("PUBLISH", a, v)
			c.want = append(c.want, c.on(bulk("message"), bulk(a), bulk(v)))
		}
		if !c.run() {
			return false
		}
		c.do("UNSUBSCRIBE "+a, c.on(bulk("unsubscribe"), bulk(a), ":1\r\n"))
		c.do("UNSUBSCRIBE", c.on(bulk("unsubscribe"), bulk(a+"2"), ":0\r\n"))
		c.do("ECHO "+v, bulk(v))
		return c.run()
	},
	func(c *stressed) bool { // tracks
		if c.proto != 3 {
			return true
		}
		k := c.key()
		c.do("CLIENT TRACKING ON", "+OK\r\n")
		c.do("DEL "+k+"t", ":0\r\n")
		c.do("GET "+k+"t", "_\r\n")
		c.push[">2\r\n"+bulk("invalidate")+list(bulk(k+"t"))]++
		c.do("SET "+k+"t x PX 100000", "+OK\r\n")
		c.do("CLIENT TRACKING OFF", "+OK\r\n")
		c.do("DEL "+k+"t", ":1\r\n")
		return c.run()
	},
	func(c *stressed) bool { // the other protocol, perhaps while Redis keeps state
		within := rand.IntN(2) == 0
		if within {
			c.do("WATCH "+c.key(), "+OK\r\n")
			if !c.run() {
				return false
			}
		}
		c.proto = 5 - c.proto
		if _, err := c.w.conn.Write(resp.AppendCommand(nil, "HELLO", fmt.Sprint(c.proto), "AUTH", c.user, "any")); err != nil {
			c.t.Error(err)
			return false
		}
		if f, err := c.w.tryFrame(patience); err != nil || f[0] == '-' {
			c.t.Errorf("%s: HELLO: %q %v", c.me, f, err)
			return false
		}
		c.logged = true
		if within {
			c.do("UNWATCH", "+OK\r\n")
		}
		return c.run()
	},
	func(c *stressed) bool { // locks
		c.do("LOCK "+c.me+" BLOCK 60000", "+OK\r\n")
		c.do("ECHO "+c.me, bulk(c.me))
		c.do("UNLOCK "+c.me, ":1\r\n")
		return c.run()
	},
	func(c *stressed) bool { // named
		if c.user == "u1" && c.logged {
			c.do("CLIENT SETNAME x", "-NOPERM this user has no permissions to run the 'client|setname' command\r\n")
			return c.run()
		}
		c.do("CLIENT SETNAME "+c.me, "+OK\r\n")
		c.do("MULTI", "+OK\r\n")
		c.do("CLIENT GETNAME", "+QUEUED\r\n")
		c.do("EXEC", list(bulk(c.me)))
		c.do("CLIENT GETNAME", bulk(c.me))
		return c.run()
	},
	func(c *stressed) bool { // silent
		k, v := c.key(), c.value()
		c.do("CLIENT REPLY OFF")
		c.do("MULTI")
		c.do("SET " + k + " " + v)
		c.do("EXEC")
		c.do("BLPOP " + c.me + "q 0.001")
		c.do("CLIENT REPLY ON", "+OK\r\n")
		c.do("CLIENT REPLY SKIP")
		c.do("WATCH " + k)
		c.do("UNWATCH", "+OK\r\n")
		c.do("GET "+k, bulk(v))
		return c.run()
	},
	func(c *stressed) bool { // as new
		switch rand.IntN(3) {
		case 0:
			c.do("WATCH "+c.key(), "+OK\r\n")
			c.do("MULTI", "+OK\r\n")
		case 1:
			c.do("SUBSCRIBE "+c.me, c.on(bulk("subscribe"), bulk(c.me), ":1\r\n"))
		}
		c.do("RESET", "+RESET\r\n")
		ok := c.run()
		c.proto, c.db, c.logged = 2, 0, false
		return ok
	},
	func(c *stressed) bool { // hangs up in the middle
		c.do("WATCH " + c.key())
		c.do("MULTI")
		c.do("SELECT 3")
		c.do("EXEC")
		lines := []string{"BLPOP " + c.me + "q 0", "SUBSCRIBE a b", "MULTI", "CLIENT TRACKING ON", "LOCK " + c.me, "CLIENT REPLY OFF", "WATCH k"}
		for _, i := range rand.Perm(len(lines))[:rand.IntN(len(lines))] {
			c.do(lines[i])
		}
		_, _ = c.w.conn.Write(c.say[:rand.IntN(len(c.say)+1)])
		c.say, c.want = nil, nil
		switch rand.IntN(3) {
		case 0:
			_ = c.w.conn.(*net.TCPConn).SetLinger(0)
		case 1:
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		}
		c.w.conn.Close()
		return c.connect()
	},
}

func stressTime() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TESTS_STRESS")); err == nil {
		return d
	}
	return 2 * time.Second
}

var leftState = regexp.MustCompile(`flags=\S*[PxbtO]| (sub|psub|ssub)=[1-9]| multi=[0-9]`)

func TestStress(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Do(t, "ACL", "SETUSER", "u0", "on", "nopass", "+@all", "~*", "&*")
	server.Do(t, "ACL", "SETUSER", "u1", "on", "nopass", "+@all", "~*", "&*", "-ping", "-client|id", "-client|setname")
	p := startProxy(t, server.URL(), nil)
	if got := p.do1(t, "LOCK", "first"); got != "+OK\r\n" { // what locks need is known then: clients' short BLOCK does not wait for that
		t.Fatal(got)
	}
	var clients sync.WaitGroup
	until := time.Now().Add(stressTime())
	counts := make([]int, 64)
	for n := range counts {
		past := dialWire(t, server.Addr())
		clients.Go(func() {
			c := &stressed{t: t, addr: p.addr, n: n, user: fmt.Sprintf("u%d", n%2), past: past}
			for ok := c.connect(); ok && time.Now().Before(until); {
				ok = deeds[rand.IntN(len(deeds))](c)
			}
			counts[n] = c.count
			c.w.conn.Close()
		})
	}
	clients.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	t.Logf("%d replies", total)
	eventually(t, "no session is left", func() bool { return p.srv.clients.n.Load() == 0 })
	eventually(t, "no connection is in use", func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == 0 })
	_, idle := p.srv.o.Node.DedicatedCount()
	t.Logf("%d idle", idle)
	eventually(t, "no connection has state", func() bool { // Redis learns a moment later which are closed
		return !slices.ContainsFunc(strings.Split(string(server.Do(t, "CLIENT", "LIST").([]byte)), "\n"), func(line string) bool {
			return leftState.MatchString(line) && !strings.Contains(line, "cmd=ssubscribe") && !strings.Contains(line, "cmd=subscribe")
		})
	})
}
