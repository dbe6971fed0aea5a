package session_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// doubtful is a client whose write under a lock has lost its reply, and what it does then.
type doubtful struct {
	name string
	lock string // how the lock was taken
	pipe string // sent in one pipeline with the write; "" = nothing
	then func(c, other *client, key string) []string
}

func follow(lines ...string) func(c, other *client, key string) []string {
	return func(c, _ *client, key string) (replies []string) {
		for _, line := range lines {
			replies = append(replies, c.ask(strings.ReplaceAll(line, "KEY", key)))
		}
		return replies
	}
}

func hangUp(c, _ *client, _ string) []string { _ = c.tcp.Close(); return nil }
func resetIt(c, _ *client, _ string) []string {
	c.reset()
	return nil
}

var doubts = []doubtful{
	{name: "hangs up", lock: "LOCK KEY", then: hangUp},
	{name: "resets", lock: "LOCK KEY", then: resetIt},
	{name: "says QUIT", lock: "LOCK KEY", then: follow("QUIT")},
	{name: "says RESET", lock: "LOCK KEY", then: follow("RESET")},
	{name: "has UNLOCK in the pipeline", lock: "LOCK KEY", pipe: "UNLOCK KEY", then: follow()},
	{name: "has UNLOCK in the pipeline and hangs up", lock: "LOCK KEY", pipe: "UNLOCK KEY", then: hangUp},
	{name: "says UNLOCK", lock: "LOCK KEY", then: follow("UNLOCK KEY")},
	{name: "says UNLOCK ALL", lock: "LOCK KEY", then: follow("UNLOCK KEY ALL")},
	{name: "says UNLOCK twice", lock: "LOCK KEY", then: follow("UNLOCK KEY", "UNLOCK KEY")},
	{name: "has UNLOCK in the pipeline and says it again", lock: "LOCK KEY", pipe: "UNLOCK KEY", then: follow("UNLOCK KEY")},
	{name: "says UNLOCK and RESET", lock: "LOCK KEY", then: follow("UNLOCK KEY", "RESET")},
	{name: "unlocks a lease of its own", lock: "LOCK KEY PX 15000", then: follow("UNLOCK KEY")},
	{name: "holds it twice and unlocks", lock: "LOCK KEY SELF", pipe: "LOCK KEY SELF", then: follow("UNLOCK KEY", "UNLOCK KEY")},
	{name: "enters it again and unlocks", lock: "LOCK KEY SELF", then: follow("LOCK KEY SELF", "UNLOCK KEY", "UNLOCK KEY")},
	{name: "unlocks, enters it again and unlocks", lock: "LOCK KEY SELF", then: follow("UNLOCK KEY", "LOCK KEY SELF", "UNLOCK KEY", "UNLOCK KEY")},
}

// outcome is what became of one doubtful client's lock.
type outcome struct {
	replies   []string
	ttl       time.Duration // that the lock had left when the client had heard of the loss
	asked     time.Time     // before that was asked
	freed     time.Time     // when it was not there any more
	renewed   int           // how often it had more left than before; twice at most, for a renewal that was under way and for LOCK said again
	waiterGot string
}

// What a client holds while a write of its has an unknown outcome is not released by anything it does or by its end: it
// runs out.
func TestDoubtfulWritesKeepTheLock(t *testing.T) {
	t.Parallel()
	for _, arrived := range []bool{false, true} {
		for _, dedicated := range []bool{false, true} {
			t.Run(fmt.Sprintf("request arrived %v, dedicated %v", arrived, dedicated), func(t *testing.T) {
				t.Parallel()
				doubtfulWrites(t, arrived, dedicated)
			})
		}
	}
}

// When dedicated, the write is sent behind a command that has a connection of its own.
func doubtfulWrites(t *testing.T, arrived, dedicated bool) {
	server := testredis.Start(t)
	data := testredis.NewProxy(t, server.Addr())
	addr := twoWires(t, data.Addr(), server.Addr(), lock.ManagerOptions{Watchdog: 5 * time.Second})
	redis := around(t, server)
	clients, others, waiters := make([]*client, len(doubts)), make([]*client, len(doubts)), make([]*client, len(doubts))
	key := func(i int) string { return "l" + strconv.Itoa(i) }
	for i := range doubts {
		clients[i], others[i], waiters[i] = connect(t, addr), connect(t, addr), connect(t, addr)
	}
	if got := clients[0].ask("SET x now"); got != "OK" { // the connection for writes is there
		t.Fatal(got)
	}
	if dedicated { // a connection for each is there
		for _, c := range clients {
			if err := c.say("BLPOP nothing 0"); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(longEnough); strings.Count(redis.ask("CLIENT LIST"), "cmd=blpop") < len(clients); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not all of them wait")
			}
		}
		for range clients {
			redis.ask("RPUSH nothing x")
		}
		for _, c := range clients {
			c.hear()
		}
	}
	for i, d := range doubts { // the leases are short: as late as can be
		line := strings.ReplaceAll(d.lock, "KEY", key(i))
		if got := clients[i].ask(line) + others[i].ask("CLIENT GETNAME") + waiters[i].ask("CLIENT GETNAME"); got != "OKnilnil" {
			t.Fatal(got)
		}
		if err := waiters[i].say("LOCK " + key(i) + " BLOCK 0"); err != nil {
			t.Fatal(err)
		}
	}
	// Writes do not arrive, or their replies do not.
	var writes atomic.Int64
	data.Filter(func(toServer bool, b []byte) bool {
		if toServer {
			writes.Add(int64(bytes.Count(b, []byte("SET"))))
		}
		return toServer == arrived
	})
	for i, d := range doubts {
		lines := []string{fmt.Sprintf("SET x%d new", i)}
		if dedicated {
			lines = []string{"WATCH nothing", lines[0]}
		}
		if d.pipe != "" {
			lines = append(lines, strings.ReplaceAll(d.pipe, "KEY", key(i)))
		}
		if err := clients[i].say(lines...); err != nil {
			t.Fatal(err)
		}
	}
	want := 0
	if arrived {
		want = len(doubts)
	}
	wrote := func() (n int) {
		for i := range doubts {
			if redis.ask(fmt.Sprintf("GET x%d", i)) == "new" {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(longEnough); writes.Load() < int64(len(doubts)) || wrote() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d writes were sent, %d are done", writes.Load(), wrote())
		}
	}
	data.CutAll()
	data.Filter(nil)

	results := make([]outcome, len(doubts))
	var all sync.WaitGroup
	for i, d := range doubts {
		if dedicated {
			clients[i].hear()
		}
		all.Go(func() { results[i] = d.live(clients[i], others[i], waiters[i], key(i), redis) })
	}
	all.Wait()
	for i, d := range doubts {
		r := results[i]
		// Redis goes by whole milliseconds.
		if early := r.freed.Before(r.asked.Add(r.ttl - 5*time.Millisecond)); early || r.renewed > 2 || r.waiterGot != "OK" || r.ttl <= 0 || !strings.Contains(r.replies[0], "unknown") {
			t.Errorf("%s: replies %.120q; had %v left, was free after %v (early %v, renewed %d times), the waiter got %q",
				d.name, r.replies, r.ttl, r.freed.Sub(r.asked).Round(time.Millisecond), early, r.renewed, r.waiterGot)
		}
	}
	if n := wrote(); n != want {
		t.Errorf("%d writes of unknown outcome have come to pass, want %d", n, want)
	}
}

// Before its first verb a client's right to run commands is asked for on the data wire. When that question's answer is
// lost the verb has not begun, and must not be said to be in doubt.
func TestLostQuestionIsNoDoubtfulVerb(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	data := testredis.NewProxy(t, server.Addr())
	addr := twoWires(t, data.Addr(), server.Addr(), lock.ManagerOptions{})
	server.Do(t, "ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all") // of the service account nothing is asked
	c := connect(t, addr)
	for _, line := range []string{"AUTH ann pw", "LOCK other"} {
		if got := c.ask(line); got != "OK" {
			t.Fatal(line, got)
		}
	}
	lost := make(chan struct{}, 1)
	data.Filter(func(toServer bool, b []byte) bool {
		if !toServer || !bytes.Contains(b, []byte("$8\r\nanothers\r\n")) {
			return true
		}
		select {
		case lost <- struct{}{}:
		default:
		}
		return false
	})
	if err := c.say("LOCK anothers"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	case <-time.After(longEnough):
		t.Fatal("nothing was asked")
	}
	data.Filter(nil)
	data.CutAll()
	got := c.hear()
	held := around(t, server).ask("EXISTS anothers")
	if strings.Contains(got, "unknown") || (got == "OK") != (held == ":1") {
		t.Errorf("LOCK: %q, EXISTS %s", got, held)
	}
}

// live reads the lost reply, does what the client does, and watches the lock's first holder leave Redis.
func (d doubtful) live(c, other, waiter *client, key string, redis past) (o outcome) {
	o.replies = append(o.replies, c.hear())
	owner := firstField(redis, key)
	o.asked = time.Now()
	o.ttl = redis.leaseOf(key, owner)
	due := time.Now().Add(o.ttl)
	if d.pipe != "" {
		o.replies = append(o.replies, c.hear())
	}
	o.replies = append(o.replies, d.then(c, other, key)...)
	var got sync.WaitGroup
	got.Go(func() { o.waiterGot = waiter.hear() })
	for end := time.Now().Add(longEnough); time.Now().Before(end); {
		asked := time.Now()
		left := redis.leaseOf(key, owner)
		if left <= 0 {
			break
		}
		if asked.Add(left).After(due.Add(5 * time.Millisecond)) { // whole milliseconds, too
			o.renewed++
			due = time.Now().Add(left)
		}
		time.Sleep(max(left/32, 5*time.Millisecond)) // the nearer the end, the more often
	}
	o.freed = time.Now()
	got.Wait()
	return o
}

func firstField(redis past, key string) string {
	c := redis.pool.Get()
	defer c.Close()
	all, err := c.Do("HKEYS", key)
	if fields, ok := all.([]any); ok && err == nil && len(fields) > 0 {
		return string(fields[0].([]byte))
	}
	return ""
}

// leaseOf is what a lock has left for as long as owner holds it, 0 then.
func (p past) leaseOf(key, owner string) time.Duration {
	c := p.pool.Get()
	defer c.Close()
	ms, _ := redis.Int(c.Do("EVAL", "return redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('PTTL', KEYS[1])", 1, key, owner))
	return time.Duration(ms) * time.Millisecond
}
