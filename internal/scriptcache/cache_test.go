package scriptcache

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// What is remembered is bounded, by number and by bytes.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := New()
	long := bytes.Repeat([]byte("-"), longestBody-5)
	for i := range 2 * keptBytes / longestBody {
		c.Remember(fmt.Appendf(long, "%05d", i), Key(i+1), c.Version())
		c.AddQuick(Key(i + 1))
	}
	if c.bytes > keptBytes || c.bytes < keptBytes/2 || c.IsQuick(1) {
		t.Errorf("%d bytes, the oldest is known: %v", c.bytes, c.IsQuick(1))
	}
	for i := range 2 * keptScripts {
		c.Remember(fmt.Append(nil, i), 0, c.Version())
	}
	if n := c.bodies.Len(); n != keptScripts {
		t.Errorf("%d scripts", n)
	}
	c.Remember(append(long, "too long"...), 0, c.Version())
	sum := sha1.Sum(append(long, "too long"...))
	if _, _, known := c.find(hex.EncodeToString(sum[:]), "node"); known {
		t.Error("a very long script is kept")
	}
	seen := c.Version()
	c.Clear()
	c.Remember([]byte("before the flush"), 0, seen)
	if c.bytes != 0 || c.bodies.Len() != 0 {
		t.Errorf("after a flush: %d bytes in %d scripts", c.bytes, c.bodies.Len())
	}
}

// What was learnt before a flush does not come back behind it.
func TestFlushForgets(t *testing.T) {
	c := New()
	before := c.Version()
	key := c.Key(0, []byte("return 1"))
	c.Remember([]byte("return 1"), key, before)
	c.AddQuick(key)
	sum := sha1.Sum([]byte("return 1"))
	sha := hex.EncodeToString(sum[:])
	if _, _, known := c.find(sha, "node"); !known || !c.IsQuick(key) {
		t.Fatal("a script that Redis has taken is not known")
	}
	c.FlushBegins()
	if _, _, known := c.find(sha, "node"); known {
		t.Error("a script may be loaded again while Redis is about to forget it")
	}
	c.FlushEnds()
	c.Clear()
	c.Remember([]byte("return 1"), key, before)
	if _, _, known := c.find(sha, "node"); known || c.IsQuick(key) {
		t.Error("a script is known that was sent before the flush")
	}
}

// A lane is quick for all of its users, and stuck while one of their runs takes long.
func TestLanes(t *testing.T) {
	l := NewLanes()
	id := upstream.Identity{User: "u"}
	a, b := l.Join(id), l.Join(id)
	if a != b || a.ID() == id {
		t.Error("two users of one identity do not share a lane of its own")
	}
	synctest.Test(t, func(t *testing.T) { // where no time passes by itself
		a.Timed(func() {
			if a.Stuck() {
				t.Error("a run that has just begun is stuck")
			}
			a.moved.Store(time.Now().Add(-2 * QuickTime).UnixNano())
			if !b.Stuck() {
				t.Error("nobody hears that the lane is stuck")
			}
		})
	})
	if a.Stuck() {
		t.Error("the lane is stuck, though its run has ended")
	}
	a.Leave()
	b.Leave()
	taken := map[upstream.Identity]bool{}
	for range MaxAlone {
		lane, ok := l.Take(id)
		if !ok || taken[lane] || lane == a.ID() {
			t.Fatal("a lane of one's own", lane, ok)
		}
		taken[lane] = true
	}
	if _, ok := l.Take(id); ok {
		t.Error("there is no bound")
	}
	for lane := range taken {
		l.GiveBack(lane)
	}
	if n := l.InUse(); n != 0 {
		t.Error(n, "lanes are in use")
	}
}

// A node that does not answer while it is asked about scripts holds up only those whose scripts it is to load, and a SCRIPT FLUSH. One node loads
// one script once.
func TestReloadAtOneNodeOnly(t *testing.T) {
	c := New()
	c.Remember([]byte("return 1"), 0, c.Version())
	sum := sha1.Sum([]byte("return 1"))
	sha := hex.EncodeToString(sum[:])
	seen, asked, hung := c.Version(), make(chan struct{}, 2), make(chan struct{})
	var loads sync.Map
	at := func(node string) State {
		ask := func(words ...string) ([]byte, error) {
			if node == "hung" {
				asked <- struct{}{}
				<-hung
			}
			if words[1] == "EXISTS" {
				return []byte("*1\r\n:0\r\n"), nil
			}
			if _, twice := loads.Swap(node, true); twice {
				t.Errorf("%s has loaded it twice", node)
			}
			return []byte("$40\r\n" + sha + "\r\n"), nil
		}
		open := func() (Ask, func(), error) { return ask, func() {}, nil }
		return c.Reload(open, node, []string{sha}, seen)[sha]
	}
	got := make(chan State, 2)
	for range cap(got) {
		go func() { got <- at("hung") }()
	}
	<-asked
	for range 2 {
		if state := at("well"); state != Loaded {
			t.Errorf("a healthy node: %v", state)
		}
	}
	close(hung)
	for range cap(got) {
		if state := <-got; state != Loaded {
			t.Errorf("the other node: %v", state)
		}
	}
}
