package session

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Redis closes a connection on which it holds more than 1 KB to somebody who has not logged in. Strangers share one: however many
// there are, and however much they pipeline, each gets its answers, and none is closed with the others.
func TestStrangersAreAnsweredHoweverMany(t *testing.T) {
	t.Parallel()
	server := startRedis(t, "--requirepass secret")
	do := admin(t, server)
	p := startProxy(t, server.URL(), nil)
	eventually(t, "the password is known to be needed", p.srv.asksPassword)
	before := stat(t, do, "total_connections_received")
	const many, deep = 50, 200
	direct := dialWire(t, server.Addr())
	hello := direct.do("HELLO", "3")
	stray := dialWire(t, p.addr)
	for _, words := range [][]string{{"GET"}, {"GET", "a", "b"}, {"EXEC"}, {"EXEC", "x"}, {"nosuch"}, {"NOSUCH", "x", strings.Repeat("y", 200), "z"}, {"NOSUCH", strings.Repeat("y", 126), "z"}, {strings.Repeat("n", 200), "a\x00b"}} {
		if want, got := direct.do(words...), stray.do(words...); got != want {
			t.Errorf("%.40q: %q, Redis says %q", words, got, want)
		}
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range many {
		w := dialWire(t, p.addr)
		all.Go(func() {
			for _, words := range [][]string{{"GET", "k"}, {"BLPOP", "q", "0"}, {"LOCK", "l"}, {"SUBSCRIBE", "c"}, {"MULTI"}, {"SELECT", "1"}} {
				for range deep / (1 + i%4) {
					if got := w.do(words...); got != "-NOAUTH Authentication required.\r\n" {
						t.Errorf("%q: %q", words, got)
						return
					}
				}
			}
			if got := w.do("HELLO", "3"); got != hello {
				t.Errorf("HELLO: %q, Redis says %q", got, hello)
			}
		})
	}
	all.Wait()
	// Whether Redis lets strangers in is asked again every 400 ms, on a connection of its own.
	if made := stat(t, do, "total_connections_received") - before; made > 50+4*int(time.Since(began).Seconds()) {
		t.Errorf("%d connections for %d strangers within %v", made, many, time.Since(began))
	}
	w := dialWire(t, p.addr)
	w.raw([]byte(strings.Repeat("GET k\r\n", deep)))
	for range deep {
		w.want("-NOAUTH Authentication required.\r\n")
	}
	w.expect("+OK\r\n", "AUTH", "secret")
	w.expect("$-1\r\n", "GET", "k")

	// Redis' new answer is known within a moment.
	stranger := dialWire(t, p.addr)
	stranger.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	do("CONFIG", "SET", "requirepass", "")
	eventually(t, "strangers are let in again", func() bool { return stranger.do("GET", "k") == "$-1\r\n" })
}

func (s *Server) asksPassword() bool { return s.access.needs.now() == aPassword }

func (s *Server) needKnown() bool { return s.access.needs.now() != unknown }
