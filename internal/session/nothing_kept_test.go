package session

import (
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// comeAndGo are commands that leave a client, and the proxy, as they were before. # is another number in each round.
var comeAndGo = []string{
	"SET k# x|GET k#|DEL k#",
	"MULTI|SET {k}a x|GET {k}a|EXEC",
	"MULTI|SET {k}a x|DISCARD",
	"WATCH {k}a|UNWATCH",
	"WATCH k#|MULTI|SET k# x|EXEC|DEL k#",
	"LPUSH q# x|BLPOP q# 0",
	"SUBSCRIBE c#|UNSUBSCRIBE c#",
	"PSUBSCRIBE p#*|PUNSUBSCRIBE p#*",
	"CLIENT TRACKING ON BCAST PREFIX p#|CLIENT TRACKING OFF",
	"EVAL return{KEYS[1]} 1 k#",
	"SELECT 0|CLIENT SETNAME n#|CLIENT SETNAME x",
	"CLIENT REPLY SKIP|PING|PING",
	"LOCK l#|UNLOCK l#",
	"LOCK l FENCE|RENEW l|LOCKINFO l|UNLOCK l",
	"LOCK l#|LOCK l# SELF|UNLOCK l#|UNLOCK l#",
	"LOCK l# OWNER o# PX 60000|RENEW l# OWNER o# PX 60000|UNLOCK l# OWNER o#",
	"LOCK l# PX 1",
	"FAIRLOCK l#|UNLOCK l#",
	"RLOCK l#|WLOCK l# BLOCK 1|UNLOCK l#",
	"WLOCK l#|RLOCK l# SELF|UNLOCK l# READ|UNLOCK l#",
	"MULTILOCK 2 {l#}a {l#}b|UNLOCK {l#}a|UNLOCK {l#}b",
	"LOCK {l}#|FENCED {l}# SET {l}v x|UNLOCK {l}#",
	"LOCK l#|UNLOCK l# FORCE",
	"UNLOCK l#|RENEW l# PX 5|NOSUCH|LOCK|GET",
}

// What comes and goes leaves nothing behind, however often.
func TestNothingIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("some ten thousand round trips")
	}
	for mode, start := range map[string]func(t *testing.T) *proxy{
		"one Redis": func(t *testing.T) *proxy { _, p := startBoth(t, nil); return p },
		"a cluster": func(t *testing.T) *proxy { return startProxyOf(t, testredis.StartCluster(t, 3, 0), nil) },
	} {
		t.Run(mode, func(t *testing.T) {
			p := start(t)
			t.Run("clients", func(t *testing.T) {
				many := func(n int) {
					for range n {
						w := &wire{t: t, conn: dialed(t, p.addr)}
						w.raw([]byte("LOCK l\r\nWATCH k\r\nSUBSCRIBE c\r\nECHO end\r\n"))
						w.frame()
						w.conn.Close()
					}
					eventually(t, "all have gone", func() bool { return p.dedicatedCount() == 0 })
				}
				keepsNothing(t, many)
			})
			round := 0
			for _, what := range comeAndGo {
				t.Run(what, func(t *testing.T) {
					p := &proxy{t: t, srv: p.srv, addr: p.addr}
					w := dialWire(t, p.addr)
					many := func(n int) {
						for range n {
							round++
							all := strings.ReplaceAll(what, "#", strconv.Itoa(round))
							w.raw([]byte(strings.ReplaceAll(all, "|", "\r\n") + "\r\nECHO end\r\n"))
							for w.frame() != "$3\r\nend\r\n" {
							}
						}
					}
					keepsNothing(t, many)
					runtime.KeepAlive(w)
				})
			}
		})
	}
}

// keepsNothing has the rounds be run until they leave nothing behind. What is made once may grow in between; what is
// kept of each round grows each time.
func keepsNothing(t *testing.T, many func(rounds int)) {
	t.Helper()
	const most = 200
	n := rounds(300, 150)
	var each []int
	for before := settledHeap(); len(each) < 6; {
		many(n)
		now := settledHeap()
		if each = append(each, (now-before)/n); len(each) > 1 && each[len(each)-1] < most {
			return
		}
		before = now
	}
	t.Errorf("bytes that are kept of each round: %d", each)
}

func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// settledHeap is the heap without what sync.Pool and finalizers keep for a moment.
func settledHeap() int {
	runtime.GC()
	return heap()
}
