package session

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client that did not ask for pushes, and whose library is not known to keep them apart, sees replies only.
func TestLossIsPushedToWhoCanTakeIt(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	for _, c := range []struct {
		name  string
		says  [][]string
		hears bool
	}{
		{"nothing said", nil, false},
		{"a library that takes a push for a reply", [][]string{{"CLIENT", "SETINFO", "LIB-NAME", "redis-client(sidekiq)"}}, false},
		{"another capability", [][]string{{"CLIENT", "CAPA", "redirect"}}, false},
		{"asked, then reset", [][]string{{"CLIENT", "CAPA", "lock-lost"}, {"RESET"}, {"HELLO", "3"}}, false},
		{"asked", [][]string{{"CLIENT", "CAPA", "lock-lost"}}, true},
		{"a library that keeps pushes apart", [][]string{{"CLIENT", "SETINFO", "LIB-NAME", "Lettuce"}}, true},
		{"one built upon it", [][]string{{"CLIENT", "SETINFO", "LIB-NAME", "redis-py(django-redis_v1)"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := dialWire(t, p.addr)
			w.do("HELLO", "3")
			for _, words := range c.says {
				w.do(words...)
			}
			before := p.srv.o.Locks.Stats().Lost
			w.expect("+OK\r\n", "LOCK", "k")
			server.Do(t, "DEL", "k")
			eventually(t, "it is lost", func() bool { return p.srv.o.Locks.Stats().Lost > before })
			if c.hears {
				if got, err := w.tryFrame(patience); err != nil || !strings.HasPrefix(got, ">4\r\n") {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			w.expect("+PONG\r\n", "PING")
			if got := w.do("UNLOCK", "k"); !strings.HasPrefix(got, "-LOCKLOST") {
				t.Fatalf("got %q", got)
			}
		})
	}
}
