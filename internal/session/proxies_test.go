package session

import (
	"maps"
	"testing"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Other proxies are found by the names of the service account's connections, and by nobody else's.
func TestProxiesInClientList(t *testing.T) {
	t.Parallel()
	const a, b, c, d = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222", "33333333-3333-3333-3333-333333333333", "44444444-4444-4444-4444-444444444444"
	text := func(lines string) resp.Reply { return resp.Reply{Kind: '$', Text: []byte(lines)} }
	got := proxiesIn([]resp.Reply{
		text("id=1 addr=10.0.0.1:5000 name=lockproxy:" + a + ":0.0.0.0:6380 db=0 user=service\nid=2 addr=10.0.0.1:1 name=lockproxy user=service\n" +
			"id=5 addr=6.6.6.6:1 name=lockproxy:" + d + ":6.6.6.6:6380 user=other\nid=6 addr=6.6.6.6:1 name=lockproxy:" + a + ":6.6.6.6:6380 user=evil\n" +
			"id=3 addr=6.6.6.6:1 name=lockproxy:" + b + ":6.6.6.6:6380 user=evil\nid=4 addr=6.6.6.6:1 name=lockproxy:x:6.6.6.6:6380 user=service\nnonsense\n"),
		text("id=1 addr=10.0.0.2:7 name=lockproxy:" + b + ":proxy.internal:6380 user=service\nid=2 addr=[::1]:7 name=lockproxy:" + c + "::6380\n"),
		{Kind: '-', Text: []byte("NOPERM")},
	}, "service")
	if want := map[string]string{a: "10.0.0.1:6380", b: "proxy.internal:6380", c: "[::1]:6380", d: ""}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, one := range [][3]string{
		{"127.0.0.1:6380", "10.0.0.1:5", "10.0.0.1:6380"}, {"localhost:6380", "10.0.0.1:5", "10.0.0.1:6380"}, {"[::]:1", "[fe80::1]:5", "[fe80::1]:1"}, {":6380", "/run/redis.sock:0", ":6380"},
		{"unix:///run/x", "10.0.0.1:5", "unix:///run/x"}, {"10.1.1.1:1", "10.0.0.1:5", "10.1.1.1:1"}, {":1", "", ":1"},
	} {
		if got := reachedAt(one[0], one[1]); got != one[2] {
			t.Errorf("%q seen at %q: %q, want %q", one[0], one[1], got, one[2])
		}
	}
}

// Redis is not asked about a holder that is no proxy's, as those are that other programs have written.
func TestProxyOfNoProxy(t *testing.T) {
	t.Parallel()
	p := proxies{self: "11111111-1111-1111-1111-111111111111"}
	for _, owner := range []string{"", "worker-7", "worker:7", p.self + ":1"} {
		if at, none := p.ProxyOf(owner, nil); at != "" || none || !p.until.IsZero() {
			t.Errorf("%q: %q, %v, asked at %v", owner, at, none, p.until)
		}
	}
}

// An owner that is no proxy's is a Redisson's if the list is whole: this proxy is in it, and locks are at that Redis.
func TestOwnerOfNoProxy(t *testing.T) {
	t.Parallel()
	const self, other, stranger = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222", "33333333-3333-3333-3333-333333333333"
	here, there := "name=lockproxy:"+self+":10.0.0.1:1\n", "name=lockproxy:"+other+":10.0.0.2:2\n"
	for name, c := range map[string]struct {
		list, owner string
		quorum      bool
		at          string
		none        bool
	}{
		"another proxy's":       {here + there, other + ":1", false, "10.0.0.2:2", false},
		"a Redisson's":          {here + there, stranger + ":1", false, "", true},
		"with a quorum":         {here + there, stranger + ":1", true, "", false},
		"of another user":       {here + "user=x " + there, other + ":1", false, "", false},
		"a list without itself": {there, stranger + ":1", false, "", false},
		"our own":               {here, self + ":1", false, "", false},
	} {
		p := proxies{self: self, service: "default", quorum: c.quorum}
		at, none := p.find(c.owner, func([][]byte) ([]resp.Reply, error) { return []resp.Reply{{Kind: '$', Text: []byte(c.list)}}, nil })
		if at != c.at || none != c.none {
			t.Errorf("%s: %q, %v", name, at, none)
		}
	}
}
