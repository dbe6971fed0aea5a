package proxies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	self     = "11111111-1111-1111-1111-111111111111"
	other    = "22222222-2222-2222-2222-222222222222"
	stranger = "33333333-3333-3333-3333-333333333333"
)

func list(lines ...string) []resp.Reply {
	return []resp.Reply{{Kind: '$', Text: []byte(strings.Join(lines, "\n") + "\n")}}
}

// line is one of CLIENT LIST, of a connection of a proxy.
func line(id, addr, seen, user string) string {
	name := Name(Proxy{ID: id, Record: Record{Host: "h", Addr: addr, Version: "v", Started: time.Unix(1000, 0)}})
	return fmt.Sprintf("id=7 addr=%s laddr=1.1.1.1:1 fd=8 name=%s age=3 user=%s resp=2", seen, name, user)
}

// registry asks what is at *answer.
func registry(answer *[]resp.Reply, err *error, quorum bool) *Registry {
	return New(Options{Self: Proxy{ID: self, Record: Record{Host: "h"}}, Service: "service", Quorum: quorum,
		Ask: func(context.Context) ([]resp.Reply, error) { return *answer, *err }})
}

// A proxy is there as long as Redis lists its connections, and afterwards known as gone; whose connection an owner is
// follows from that.
func TestProxiesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fault error
		answer := list(line(self, "10.0.0.1:6380", "10.0.0.1:5", "service"), line(other, "0.0.0.0:6380", "10.0.0.2:5", "service"))
		r := registry(&answer, &fault, false)
		of := func(owner string) string {
			p, known, none := r.Of(owner)
			return fmt.Sprint(p.Addr, " ", known, " ", none, " ", p.Gone)
		}
		for owner, want := range map[string]string{other + ":1": "10.0.0.2:6380 true false false", stranger + ":1": " false true false", self + ":1": " false false false",
			"worker:7": " false false false", other + ":x": " false false false"} {
			if got := of(owner); got != want {
				t.Errorf("%s: %s", owner, got)
			}
		}
		answer = list(line(self, "10.0.0.1:6380", "10.0.0.1:5", "service"))
		time.Sleep(8 * time.Second)
		if got := of(other + ":1"); got != "10.0.0.2:6380 true false false" {
			t.Error("its connections may have been lost at a failover:", got)
		}
		time.Sleep(3 * time.Second)
		if got := of(other + ":1"); got != "10.0.0.2:6380 true false true" {
			t.Error("after its time:", got)
		}
		if all, err := r.All(); len(all) != 1 || err != nil || !all[0].Gone {
			t.Errorf("%v, %v", all, err)
		}
		if me := r.Self(); me.Addr != "10.0.0.1:6380" {
			t.Errorf("%+v", me)
		}
		time.Sleep(goneFor)
		if all, _ := r.All(); len(all) != 0 {
			t.Errorf("%v", all)
		}
	})
}

// Only a list that is whole says that an owner is no proxy's; what is none changes nothing that is known.
func TestProxiesInTrouble(t *testing.T) {
	t.Parallel()
	mine, theirs := line(self, ":1", "10.0.0.1:5", "service"), line(other, ":2", "10.0.0.2:5", "service")
	for name, c := range map[string]struct {
		answer        []resp.Reply
		fault         error
		quorum        bool
		known, none   bool
		troubled, all bool
	}{
		"good":              {answer: list(mine, theirs), known: true, none: true},
		"with a quorum":     {answer: list(mine, theirs), quorum: true, known: true},
		"away":              {fault: errors.New("away"), troubled: true},
		"refused":           {answer: []resp.Reply{{Kind: '-', Text: []byte("NOPERM no")}}, troubled: true},
		"one node refuses":  {answer: append(list(mine, theirs), resp.Reply{Kind: '-', Text: []byte("NOPERM no")}), known: true, troubled: true},
		"without itself":    {answer: list(theirs), known: true, troubled: true},
		"nobody":            {troubled: true},
		"of another user":   {answer: list(mine, line(other, ":2", "10.0.0.2:5", "evil")), none: true},
		"nonsense":          {answer: list(mine, "name=lockproxy:"+other+":%zz addr", "=", "name=lockproxy:x:addr=1"), none: true},
		"of no size at all": {answer: list(mine, "user=service name=lockproxy:"+other+":"+strings.Repeat("a", mostName+1)), none: true},
	} {
		r := registry(&c.answer, &c.fault, c.quorum)
		_, known, _ := r.Of(other + ":1")
		_, _, none := r.Of(stranger + ":1")
		if _, err := r.All(); known != c.known || none != c.none || (err != nil) != c.troubled {
			t.Errorf("%s: %v, %v, %v", name, known, none, err)
		}
	}
}

// Redis is asked once in a while, however many ask, and what a hostile user of the service account lists has bounds.
func TestProxiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := New(Options{Self: Proxy{ID: self}, Service: "default", Ask: func(context.Context) ([]resp.Reply, error) {
			asked++
			lines := []string{line(self, ":1", "10.0.0.1:5", "default")}
			for i := range 1000 {
				lines = append(lines, line(fmt.Sprintf("%08d-2222-2222-2222-%012d", i, asked), ":1", "10.0.0.1:5", "default"))
			}
			return list(lines...), nil
		}})
		for range 100 {
			r.All()
		}
		if all, _ := r.All(); asked != 1 || len(all) > mostProxies {
			t.Errorf("asked %d times, %d proxies", asked, len(all))
		}
		time.Sleep(2 * TTL)
		if all, _ := r.All(); len(all) > mostProxies+mostGone || asked != 2 {
			t.Errorf("asked %d times, %d proxies", asked, len(all))
		}
	})
}

// A name says what it was made of, whatever that is, and is one that Redis takes.
func TestName(t *testing.T) {
	t.Parallel()
	for _, want := range []Record{
		{Host: "h", Addr: "10.0.0.1:6380", Page: "10.0.0.1:9181", Secure: true, Version: "v1.2", Started: time.Unix(1_700_000_000, 0)},
		{Host: "a b\n<\"\xff user=evil", Addr: "unix:///run/a b", Version: "", Started: time.Unix(0, 0)},
	} {
		name := Name(Proxy{ID: self, Record: want})
		if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
			t.Errorf("%q is no name", name)
		}
		seen := map[string]Record{}
		listed("user=service name="+name+" addr=/run/redis.sock:0\n", "service", seen)
		if got := seen[self]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Where others find who listens.
func TestReached(t *testing.T) {
	t.Parallel()
	for _, c := range [][4]string{
		{"127.0.0.1:6380", "10.0.0.1:5", "10.0.0.1:6380", "127.0.0.1:6380"}, {"localhost:6380", "10.0.0.1:5", "10.0.0.1:6380", "localhost:6380"}, {"[::]:1", "[fe80::1]:5", "[fe80::1]:1", "[fe80::1]:1"},
		{":6380", "", ":6380", ":6380"}, {":6380", "/run/redis.sock:0", ":6380", ":6380"}, {"unix:///run/x", "10.0.0.1:5", "unix:///run/x", "unix:///run/x"}, {"10.1.1.1:1", "10.0.0.1:5", "10.1.1.1:1", "10.1.1.1:1"},
		{"0.0.0.0:1", "10.0.0.1:5", "10.0.0.1:1", "10.0.0.1:1"}, {"lock.internal:1", "10.0.0.1:5", "lock.internal:1", "lock.internal:1"},
	} {
		if clients, page := reached(c[0], c[1], false), reached(c[0], c[1], true); !slices.Equal([]string{clients, page}, c[2:]) {
			t.Errorf("%q seen at %q: %q, %q", c[0], c[1], clients, page)
		}
	}
}
