package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// orphan is a verb whose script was done, whose reply was lost, and whose client then heard that nothing is known, unless it waits.
type orphan struct {
	name   string
	before []string // verbs answered before, each one line
	verb   string
	count  int  // what Redis is to hold soon after it is back, if the script was done
	undone int  // or was not
	waits  bool // the client hears nothing until Redis is back, and has the lock then
}

var orphans = []orphan{
	{name: "first LOCK", verb: "LOCK KEY"},
	{name: "LOCK with a lease", verb: "LOCK KEY PX 60000"},
	{name: "LOCK with a token", verb: "LOCK KEY FENCE"},
	{name: "LOCK that may wait", verb: "LOCK KEY BLOCK 0", count: 1, undone: 1, waits: true},
	{name: "re-entry", before: []string{"LOCK KEY SELF"}, verb: "LOCK KEY SELF", count: 1, undone: 1},
	{name: "UNLOCK", before: []string{"LOCK KEY"}, verb: "UNLOCK KEY"},
	{name: "UNLOCK of the second hold", before: []string{"LOCK KEY SELF", "LOCK KEY SELF"}, verb: "UNLOCK KEY", count: 1, undone: 1},
	{name: "UNLOCK ALL", before: []string{"LOCK KEY SELF", "LOCK KEY SELF"}, verb: "UNLOCK KEY ALL"},
	{name: "owner's first LOCK", verb: "LOCK KEY OWNER o EX 600", count: 1}, // what it has made is left to its lease
	{name: "owner's LOCK again", before: []string{"LOCK KEY OWNER o EX 600"}, verb: "LOCK KEY OWNER o EX 600", count: 1, undone: 1},
	{name: "owner's RENEW", before: []string{"LOCK KEY OWNER o EX 600"}, verb: "RENEW KEY OWNER o EX 600", count: 1, undone: 1},
	{name: "owner's UNLOCK", before: []string{"LOCK KEY OWNER o EX 600"}, verb: "UNLOCK KEY OWNER o", undone: 1}, // is not sent again
}

// A reply is lost and Redis stays away for longer than a verb is kept waiting: the client hears that nothing is known,
// and when Redis is back the engine makes true what was promised: of a connection no hold nobody heard of, and no count too high; of a named
// owner what the verb did stays, and what it did not do is not done later.
func TestLostReplyAndLongOutage(t *testing.T) {
	t.Parallel()
	for _, arrived := range []bool{true, false} {
		t.Run(fmt.Sprintf("script done %v", arrived), func(t *testing.T) {
			t.Parallel()
			for try := range 4 {
				if lostForLong(t, arrived, try < 3 && !harness.Long()) {
					return
				}
			}
		})
	}
}

// lostForLong returns false, and shows nothing, when the machine stalled while requests were to be on their way: this process or,
// if again is set, lockproxy, which says of what it had not yet sent that Redis is away.
func lostForLong(t *testing.T, arrived, again bool) bool {
	orphans := slices.Clone(orphans)
	if !arrived {
		for i := range orphans {
			orphans[i].count = orphans[i].undone
		}
	}
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	const lease = 15 * time.Second
	p := harness.StartProxy(t, "redis://"+between.Addr(), "--lock-watchdog-timeout", lease.String())
	watcher := server.Dial(t)
	see := (&cutClient{redis: watcher}).count
	warm := harness.Dial(t, p.Addr())
	for _, verb := range []string{"LOCK warm", "RENEW warm", "UNLOCK warm"} { // Redis then knows the scripts
		if got := warm.Do(strings.Fields(verb)...); got[0] == '-' {
			t.Fatal(got)
		}
	}
	clients := make([]*harness.Wire, len(orphans))
	line := func(s string, i int) []string {
		return strings.Fields(strings.ReplaceAll(s, "KEY", "k"+strconv.Itoa(i)))
	}
	for i, o := range orphans {
		clients[i] = harness.Dial(t, p.Addr())
		clients[i].Do("CLIENT", "ID")
		for _, verb := range o.before {
			if got := clients[i].Do(line(verb, i)...); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
	}
	between.Latency(200 * time.Millisecond)
	stalled := harness.WatchStalls()
	for i, o := range orphans {
		clients[i].Send(line(o.verb, i)...)
	}
	if arrived {
		time.Sleep(300 * time.Millisecond) // done by now, the replies are on their way
	} else {
		time.Sleep(100 * time.Millisecond) // on their way still
	}
	between.Disable()
	if stall := stalled(); stall > harness.MayStall && !harness.Long() {
		t.Logf("this process was kept from its work for %v: once more", stall)
		return false
	}
	between.Clear()
	began := time.Now()
	for i, o := range orphans {
		if o.waits {
			continue
		}
		switch got := clients[i].Read(); {
		case strings.HasPrefix(got, "-ERR the reply to this "+line(o.verb, i)[0]):
		case again && strings.HasPrefix(got, "-ERR upstream unavailable: "):
			t.Logf("%s: lockproxy was kept from sending it: once more", o.name)
			return false
		case !arrived && strings.HasPrefix(got, "-ERR upstream unavailable: "):
			t.Logf("%s: it was not on its way yet", o.name)
		default:
			t.Errorf("%s: %q", o.name, got)
		}
	}
	told := time.Since(began)
	between.Enable()
	back := time.Now()
	stalled = harness.WatchStalls()
	for i, o := range orphans {
		if o.waits {
			switch got := clients[i].Read(); {
			case got == "+OK\r\n":
			case !arrived && strings.HasPrefix(got, "-ERR upstream unavailable: "): // it was not on its way yet
				orphans[i].count, o.count = 0, 0
			case again && strings.HasPrefix(got, "-ERR upstream unavailable: "):
				t.Logf("%s: lockproxy was kept from sending it: once more", o.name)
				return false
			default:
				t.Errorf("%s: %q", o.name, got)
			}
		}
		harness.Eventually(t, fmt.Sprintf("%s: count %d", o.name, o.count), func() bool {
			_, count, err := see("k" + strconv.Itoa(i))
			return err == nil && count == o.count
		})
	}
	settled := time.Since(back)
	time.Sleep(time.Until(began.Add(lease + 500*time.Millisecond))) // what is held still has been renewed by now
	if stall := stalled(); stall > time.Second && !harness.Long() {
		t.Logf("this process was kept from its work for %v, and renewals perhaps for longer: once more", stall)
		return false
	}
	t.Logf("the clients had an error after %v; all was as promised %v after Redis was back", told, settled)
	for i, o := range orphans {
		for range o.count {
			if got := clients[i].Do(line("UNLOCK KEY"+map[bool]string{true: " OWNER o"}[strings.HasPrefix(o.name, "owner")], i)...); got != ":1\r\n" {
				t.Errorf("%s: at last UNLOCK says %q", o.name, got)
			}
		}
	}
	return true
}

// A holder hears that its lock is lost, since no renewal could be confirmed, but a renewal without an answer had been
// done. When it locks again Redis still has its old hold, which must not count.
func TestLockAgainAfterUnconfirmedRenewal(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := harness.StartProxy(t, "redis://"+between.Addr(), "--lock-watchdog-timeout", "6s")
	w := harness.DialHearing(t, p.Addr())
	if got := w.Do("LOCK", "k"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	between.Disable()
	server.Do(t, "PEXPIRE", "k", 30000) // the renewal that nobody heard of
	if got := w.Read(); !strings.HasPrefix(got, ">4\r\n$9\r\nlock-lost\r\n") {
		t.Fatalf("instead of the push: %q", got)
	}
	between.Enable()
	harness.Eventually(t, "LOCK works again", func() bool { return w.Do("LOCK", "k") == "+OK\r\n" })
	if got := w.Do("UNLOCK", "k"); got != ":1\r\n" {
		t.Errorf("LOCK once, then UNLOCK: %q", got)
	}
	if got := server.Do(t, "EXISTS", "k"); got != int64(0) {
		t.Error("the lock is still in Redis")
	}
}
