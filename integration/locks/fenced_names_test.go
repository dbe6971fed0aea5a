package locks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// fencedNames are locks: as most are, one whole hash tag, and ending like an owner.
var fencedNames = []string{"lock%d", "{lock%d}", "{lock%d}:3f2504e0-4f89-11d3-9a0c-0305e82c3301"}

// fencedOwners are owners ("": the connection) of which some have for a name what others have for a field in the hash of a read/write lock.
var fencedOwners = []string{"", "job", "job:7", "job%3A7", "job%253A7", "%%job", "%%job%3A7"}

// TestFencedNames: FENCED, and what else asks who holds a lock, knows an owner by whatever name, of whatever lock, and takes nobody for another.
func TestFencedNames(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		if upstream == "" {
			fencedByName(t, p, p)
		} else {
			fencedByName(t, p, harness.StartProxy(t, upstream))
		}
	})
	t.Run("cluster", func(t *testing.T) {
		tc := testredis.StartCluster(t, 3, 0)
		fencedByName(t, harness.StartClusterProxy(t, tc), harness.StartClusterProxy(t, tc))
	})
}

func fencedByName(t *testing.T, near, far *harness.Proxy) {
	w, other := harness.Dial(t, near.Addr()), harness.Dial(t, far.Addr())
	n := 0
	for _, verb := range []string{"LOCK", "FAIRLOCK", "RLOCK", "WLOCK"} {
		for _, pattern := range fencedNames {
			for _, owner := range fencedOwners {
				n++
				name, inc := fmt.Sprintf(pattern, n), fmt.Sprintf("INCR {lock%d}:n", n)
				what := verb + " " + name + " " + owner
				as := func(verb, owner, rest string) []string {
					words := []string{verb, name}
					if owner != "" {
						words = append(words, "OWNER", owner)
					}
					return append(words, strings.Fields(rest)...)
				}
				check := func(w *harness.Wire, want string, words []string) {
					t.Helper()
					if got := w.Do(words...); !strings.HasPrefix(got, want) {
						t.Errorf("%s: %q: %q, want %q", what, words, got, want)
					}
				}
				if verb == "FAIRLOCK" && strings.HasPrefix(name, "{") && strings.HasSuffix(name, "}") {
					check(w, "-ERR ", as(verb, owner, "PX 600000")) // its queue would be another lock's
					check(w, "-NOTHELD ", as("FENCED", owner, inc))
					continue
				}
				check(w, "+OK\r\n", as(verb, owner, "PX 600000"))
				check(w, ":", as("FENCED", owner, inc))
				if verb == "RLOCK" && owner == "" { // once more, for a short time
					harness.Eventually(t, "it is granted", func() bool { return w.Do(as(verb, owner, "PX 50")...) == "+OK\r\n" })
					check(w, ":", as("FENCED", owner, inc))
					check(w, ":0\r\n", as("UNLOCK", owner, ""))
				}
				for _, o := range fencedOwners {
					if o == owner && o != "" {
						check(other, ":", as("FENCED", o, inc))
						check(other, ":1\r\n", as("RENEW", o, "PX 600000"))
						continue
					}
					check(other, "-NOTHELD ", as("FENCED", o, inc))
					check(other, "-NOTHELD ", as("RENEW", o, "PX 600000"))
					check(other, "-NOTHELD ", as("UNLOCK", o, ""))
				}
				if info := other.Do("LOCKINFO", name); owner != "" && !strings.Contains(info, "\r\n"+owner+"\r\n") {
					t.Errorf("%s: LOCKINFO %q", what, info)
				}
				if list := w.Do("LOCKLIST"); owner != "" && !strings.Contains(list, "\r\n"+owner+"\r\n") {
					t.Errorf("%s: LOCKLIST %q", what, list)
				}
				giver := other
				if owner == "" {
					giver = w
				}
				check(giver, ":1\r\n", as("UNLOCK", owner, ""))
				if got := w.Do(as("FENCED", owner, inc)...); !isRefused(got) {
					t.Errorf("%s: given back: %q", what, got)
				}
			}
		}
	}
}

// TestKindsThroughAnotherProxy: what a named owner took last through this proxy is not what its UNLOCK and RENEW are about, but what it holds now,
// through another one.
func TestKindsThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	near, far := harness.Dial(t, harness.StartProxy(t, server.URL()).Addr()), harness.Dial(t, harness.StartProxy(t, server.URL()).Addr())
	verbs := []string{"LOCK", "RLOCK", "WLOCK"}
	for _, before := range verbs {
		for _, now := range verbs {
			key := before + ", then " + now
			harness.Expect(t, near, "+OK\r\n", before, key, "OWNER", "job:7", "EX", "30")
			harness.Expect(t, near, ":1\r\n", "UNLOCK", key, "OWNER", "job:7")
			harness.Expect(t, far, "+OK\r\n", now, key, "OWNER", "job:7", "EX", "30")
			harness.Expect(t, near, ":1\r\n", "RENEW", key, "PX", "600000", "OWNER", "job:7")
			harness.Expect(t, near, ":1\r\n", "UNLOCK", key, "OWNER", "job:7")
			harness.Expect(t, near, "+OK\r\n", "LOCK", key) // it is free
		}
	}
}
