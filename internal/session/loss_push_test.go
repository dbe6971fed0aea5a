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
	cases := []struct {
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
	}
	before, wires := p.srv.o.Locks.Stats().Lost, make([]*wire, len(cases))
	for i, c := range cases {
		w := dialWire(t, p.addr)
		w.do("HELLO", "3")
		for _, words := range c.says {
			w.do(words...)
		}
		w.expect("+OK\r\n", "LOCK", c.name)
		wires[i] = w
	}
	for _, c := range cases {
		server.Do(t, "DEL", c.name)
	}
	eventually(t, "all are lost", func() bool { return p.srv.o.Locks.Stats().Lost == before+int64(len(cases)) })
	for i, c := range cases {
		w := wires[i]
		if c.hears {
			if got, err := w.tryFrame(patience); err != nil || !strings.HasPrefix(got, ">4\r\n") {
				t.Fatalf("%s: got %q, %v", c.name, got, err)
			}
		}
		w.expect("+PONG\r\n", "PING")
		if got := w.do("UNLOCK", c.name); !strings.HasPrefix(got, "-LOCKLOST") {
			t.Fatalf("%s: got %q", c.name, got)
		}
	}
}
