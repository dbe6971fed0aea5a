package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	wakes   = "lockproxy_wake:" + queue + ":k"
	rwWakes = "lockproxy_wake:" + rwChannel + ":k"
)

// TestWakeTellsOne: who frees the lock tells the first proxy that waits, and goes on to the next one if nobody listens there. Who is refused
// keeps its place, and who is granted has none any more.
func TestWakeTellsOne(t *testing.T) {
	s := testredis.Start(t)
	conn, heard := s.Dial(t), listener(t, s)
	entries := func() string { return fmt.Sprintf("%s", s.Do(t, "ZRANGE", wakes, 0, -1)) }
	try := func(owner, proxy string, place any) (at int64, reply string) {
		t.Helper()
		reply = run(t, s, scripts.Acquire, plain("k"), owner, 1, 60000, soon, "", "", "PUBLISH", proxy, place)
		n := numbers(t, reply)
		return n[3], reply
	}
	listen := func(proxy string) (end func()) {
		c := redis.PubSubConn{Conn: s.Dial(t)}
		if err := c.Subscribe(channel + ":" + proxy); err != nil {
			t.Fatal(err)
		}
		c.Receive()
		return func() { _ = c.Unsubscribe(); c.Receive() }
	}
	_, got := try("me", "", 0)
	want(t, got, "[1 1 60000 0 0]")
	a, reply := try("x", "a", 0)
	want(t, reply[len(reply)-3:], " 0]")
	_, _ = try("y", "b", 0)
	_, reply = try("z", "c", 0)
	want(t, reply[len(reply)-3:], " 0]")
	want(t, entries(), "[a b c]")
	again, _ := try("x", "a", 0)
	want(t, fmt.Sprint(again), fmt.Sprint(a))
	if ttl := left(t, s, wakes); ttl < 50000 || ttl > 60000 {
		t.Error(ttl)
	}

	// Nobody listens as a, so it is b's turn.
	endB, endC := listen("b"), listen("c")
	heard(conn)
	want(t, release(t, s, "me", 0, ""), "1")
	want(t, fmt.Sprint(heard(conn)), "[pmessage * "+channel+":a 0 pmessage * "+channel+":b 0]")
	want(t, entries(), "[c b]") // until it comes
	_, got = try("y", "b", 1)
	want(t, got, "[1 1 60000 0 0]")
	try("x", "a", a) // it was before the others
	want(t, entries(), "[a c]")

	// Somebody who has no entry listens to the lock's channel: both are told.
	for range 4 {
		one := redis.PubSubConn{Conn: s.Dial(t)}
		if err := one.Subscribe(channel); err != nil {
			t.Fatal(err)
		}
		one.Receive()
	}
	endA := listen("a")
	heard(conn)
	want(t, release(t, s, "y", 0, ""), "1")
	want(t, fmt.Sprint(heard(conn)), "[pmessage * "+channel+" 0 pmessage * "+channel+":a 0]")

	// Who gets the lock has no entry any more; and an entry that is no zset, or that nobody hears, keeps nobody from the lock.
	_, got = try("z", "c", 5)
	want(t, got, "[1 1 60000 0 0]")
	want(t, entries(), "[a]")
	endA()
	endB()
	endC()
	s.Do(t, "SET", wakes, "x")
	_, reply = try("x", "a", 0)
	want(t, reply[:5]+reply[len(reply)-3:], "[0 0  3]") // four listen to the lock's channel, of which it is one
	heard(conn)
	want(t, release(t, s, "z", 0, ""), "1")
	want(t, fmt.Sprint(heard(conn)), "[pmessage * "+channel+" 0]")

	// Who is refused again takes out the entry before it, if nobody listens there.
	s.Do(t, "DEL", wakes)
	try("me", "", 0)
	try("x", "a", 0)
	b, _ := try("y", "b", 0)
	want(t, entries(), "[a b]")
	endA = listen("a")
	try("y", "b", b)
	want(t, entries(), "[a b]")
	endA()
	try("y", "b", b)
	want(t, entries(), "[b]")

	// A proxy whose last waiter has gone has no entry.
	want(t, run(t, s, scripts.Vacant, plain("k")[:2], "PUBLISH", "P", "b"), "[-1]")
	want(t, entries(), "[]")
}

// TestWakeOfReaders: a reader that was woken wakes the next proxy, which may read beside it.
func TestWakeOfReaders(t *testing.T) {
	s := testredis.Start(t)
	conn, heard := s.Dial(t), listener(t, s)
	try := func(owner, side, proxy string, place any) []int64 {
		reads, writes := 1, 0
		if side == "write" {
			reads, writes = 0, 1
		}
		return numbers(t, run(t, s, scripts.RWAcquire, rwKeys, owner, side, reads, writes, 60000, soon, "", "{k}", proxy, place, "PUBLISH"))
	}
	try("w", "write", "", 0)
	a := try("r", "read", "a", 0)
	try("q", "read", "b", 0)
	heard(conn)
	want(t, run(t, s, scripts.RWRelease, rwKeys, "w", "both", 0, 0, soon, "", "PUBLISH", "{k}"), "1")
	heard(conn)
	s.Do(t, "ZADD", rwWakes, 1, "b") // it listens, unlike here
	want(t, fmt.Sprint(try("r", "read", "a", a[3])[0]), "1")
	want(t, fmt.Sprint(strings.Contains(fmt.Sprint(heard(conn)), rwChannel+":b")), "true")
}
