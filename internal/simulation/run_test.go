package simulation

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// result is what one run was worth, and what was wrong.
type result struct {
	wrong                           []history.Violation
	ops                             []*history.Op
	faults                          []history.Fault
	grants, unknown, short, scripts int
	keys, undecided, fair, fenced   int
	simulated                       time.Duration
	proxies, users                  int
	commands                        *strings.Builder // what Redis was sent, and answered; nil: it is not written down
}

// watched is what is written down beside the calls.
type watched struct {
	commands bool         // those that Redis is sent
	logs     slog.Handler // what proxies say; nil: nothing
}

// play runs one seed for d of simulated time, or its profile's share of that, in a bubble of its own.
func play(t *testing.T, c combination, seed uint64, d time.Duration, o watched) (r *result) {
	r = &result{}
	if o.commands {
		r.commands = &strings.Builder{}
	}
	var b *environment
	finals := map[string]any{} // of counters
	defer current.Store(nil)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b = newEnvironment(c, seed, o.logs, r.commands)
		r.wrong = b.live(d / max(c.p.share, 1))
		for _, n := range b.nodes {
			for _, name := range b.names(n.Ask("KEYS", "n:*")) {
				finals[name] = n.Ask("GET", name)
			}
			r.scripts += n.Served()
		}
		b.close()
		r.simulated = time.Since(began)
	})
	r.ops, r.faults, r.proxies, r.users = b.History(), b.Faults(), len(b.proxies), len(b.Clients)
	r.wrong = append(r.wrong, b.Wrong()...)
	b.check(r, finals)
	return r
}

// live has the users do their work.
func (b *environment) live(d time.Duration) (wrong []history.Violation) {
	over := make(chan struct{})
	b.Over = func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
	time.Sleep(100 * ms)
	for i := range b.p.users * len(b.proxies) {
		c := b.NewClient(i, b.dice(uint64(100+i)), len(b.proxies), b.reach, b.Over)
		c.Gap = b.gap
		if b.p.gap > 0 {
			c.Gap = b.p.gap
		}
		b.Clients = append(b.Clients, c)
	}
	n := b.loose()
	watched, looked := b.watchQueues(over), b.watchHolds(over)
	if b.p.drive != nil {
		b.p.drive(b)
	} else {
		for i, c := range b.Clients {
			b.Working.Go(func() {
				time.Sleep(time.Duration(b.dice(uint64(200 + i)).Int64N(int64(second))))
				c.Run(b.p.work)
			})
		}
	}
	for left := d; left > 0 && !b.Blamed(); left -= second {
		time.Sleep(second)
	}
	close(over)
	n.mend()
	b.finish()
	<-watched
	<-looked
	for _, c := range b.Clients {
		c.HangUp()
	}
	b.limited = history.Limited(b.History())
	b.leaks()
	return nil
}

// finish waits until every user has ended its section: each waiter is granted or times out.
func (b *environment) finish() {
	done := make(chan struct{})
	go func() { b.Working.Wait(); close(done) }()
	bound := 15*second + 3*b.p.options.Watchdog
	if b.p.strict {
		bound = 15 * second
	}
	if b.p.drive != nil && !b.p.strict {
		bound += 2 * time.Minute // they wait for each other
	}
	bound += max(b.gap, b.p.gap) // some have a rest before their last section
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	for _, o := range b.Open() {
		b.Blame(history.Violation{Oracle: "liveness", Key: o.Key(), Ops: []*history.Op{o},
			Text: fmt.Sprintf("has waited since %s, and everybody else has been done for %v", history.At(o.Call), bound)})
	}
	for _, x := range b.proxies {
		x.kill()
	}
	<-done
}

// watchQueues notes on each call of a named owner when it was first seen in the fair queue.
func (b *environment) watchQueues(over chan struct{}) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(25 * ms)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			for _, o := range b.Fair() {
				if slices.Contains(b.names(b.owner(o.Key()).Ask("LRANGE", "redisson_lock_queue:{"+o.Key()+"}", 0, -1)), o.Owner) {
					b.Queued(o)
				}
			}
		}
	}()
	return ended
}

// watchHolds looks every now and then for whom Redis has which locks.
func (b *environment) watchHolds(over chan struct{}) (ended chan struct{}) {
	enough, ended := 1, make(chan struct{})
	if b.store.quorum {
		enough = len(b.nodes)/2 + 1
	}
	var nodes []history.Asker
	for _, n := range b.nodes {
		nodes = append(nodes, func(words ...any) []string { return b.names(n.Ask(words...)) })
	}
	go func() {
		defer close(ended)
		ticker := time.NewTicker(500 * ms)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
				b.Look(nodes, enough)
			}
		}
	}()
	return ended
}

// names are the strings of a reply, sorted.
func (b *environment) names(reply any) (out []string) {
	list, _ := reply.([]any)
	for _, e := range list {
		if name, is := e.([]byte); is {
			out = append(out, string(name))
		}
	}
	sort.Strings(out)
	return out
}

// leaks looks at the nodes until nothing has leaked, or for too long.
func (b *environment) leaks() {
	bound := 10*second + 2*b.p.options.Watchdog + b.lengthened
	if b.store.quorum {
		bound += b.p.quorum.MaxLease
	}
	b.tidyQueues()
	defer b.places(bound)
	var left []string
	for waited := time.Duration(0); waited < bound; waited += 100 * ms {
		if left = b.leftovers(); len(left) == 0 || b.Blamed() {
			return
		}
		time.Sleep(100 * ms)
	}
	b.Blame(history.Violation{Oracle: "leaks", Text: fmt.Sprintf("%v after all users had gone Redis has: %s", bound, strings.Join(left, "; "))})
}

// tidyQueues asks for the locks whose fair queues are left. The places of a killed proxy's waiters, and of those that gave up in a long
// outage, count for 10 s, and stay in Redisson's format until the next one asks.
func (b *environment) tidyQueues() {
	if b.p.strict {
		return
	}
	time.Sleep(second) // who hung up leaves
	for _, n := range b.nodes {
		for _, queue := range b.names(n.Ask("KEYS", "redisson_lock_queue:*")) {
			c := b.connect(0, b.Conn())
			if c == nil {
				return
			}
			name := strings.Trim(strings.TrimPrefix(queue, "redisson_lock_queue:"), "{}")
			_, _ = c.verb(&history.Op{Verb: "LOCK", Keys: []string{name}, Block: 30000})
			c.Close(true)
		}
	}
}

// leftovers lists what should not be there for good.
func (b *environment) leftovers() (left []string) {
	for i, n := range b.nodes {
		for _, name := range b.names(n.Ask("KEYS", "*")) {
			if b.unseen(n, name) {
				continue
			}
			ttl, _ := n.Ask("PTTL", name).(int64)
			ofTheKilled := !b.p.strict && strings.HasPrefix(name, "lockproxy_wake:") && ttl > 0 // goes with its TTL
			if !strings.HasPrefix(name, "n:") && !strings.HasPrefix(name, "redisson_lock_token:") && !ofTheKilled {
				left = append(left, fmt.Sprintf("node %d: %s for %d ms", i, name, ttl))
			}
		}
	}
	return left
}

// unseen says whether a key is of a lock with LIMIT in which nobody has a place any more, of a run in which the end of a place may have been seen by
// nobody. It lasts for a day or two then, or until somebody asks.
func (b *environment) unseen(n *world.Node, name string) bool {
	name, _ = strings.CutSuffix(strings.TrimPrefix(name, "{"), "}:timeout")
	return !b.p.strict && b.limited[name] > 0 && len(b.names(n.Ask(history.PlacesTaken("{"+name+"}:timeout")...))) == 0
}

// places has new owners take all places of locks with LIMIT when nobody has one: those of which Redis has something, and those of the last names.
// None is lost, and there are no more of them. When they have left Redis has nothing.
func (b *environment) places(bound time.Duration) {
	last := b.Now() - int64(3*max(b.p.work.KeyLife, 10*second)+2*bound)
	names := history.Limited(slices.DeleteFunc(slices.Clone(b.History()), func(o *history.Op) bool { return o.Call < last }))
	for name, most := range b.limited {
		if n, _ := b.owner(name).Ask("EXISTS", name).(int64); n > 0 {
			names[name] = most
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if b.Blamed() {
			return
		}
		var conns []*conn
		for i := range names[name] + 1 {
			c := b.connect(i%len(b.proxies), b.Conn())
			reply, err := c.verb(&history.Op{Verb: "LOCK", Keys: []string{name}, Block: -1, Limit: int64(names[name])})
			if err != nil || (reply != nil) != (i < names[name]) {
				b.Blame(history.Violation{Oracle: "places", Key: name, Text: fmt.Sprintf("when all had gone, LOCK LIMIT %d was answered %v, %v to owner %d", names[name], reply, err, i+1)})
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Close(true)
		}
		time.Sleep(second)
		if n, _ := b.owner(name).Ask("EXISTS", name, "{"+name+"}:timeout").(int64); n > 0 {
			b.Blame(history.Violation{Oracle: "leaks", Key: name, Text: "it is in Redis when all that had a place have given it back"})
		}
	}
}

// check runs the oracles over what was recorded.
func (b *environment) check(r *result, finals map[string]any) {
	keys := history.ByKey(r.ops)
	r.keys = len(keys)
	for _, o := range r.ops {
		r.grants += int(number(o.Acquires() && o.Outcome == history.OK))
		r.unknown += int(number(o.Outcome == history.Unknown))
		r.short += int(number(o.Code == "NOQUORUM"))
	}
	forgets := b.p.name == "forgets" // what is gone from Redis is anybody's
	if !forgets {
		for counter, e := range history.Counters(r.ops) {
			if !e.Fenced {
				continue
			}
			final := int64(0)
			if text, is := finals[counter].([]byte); is {
				fmt.Sscan(string(text), &final)
			}
			r.fenced += int(e.Acked)
			r.wrong = append(r.wrong, e.Exact(counter, final)...)
		}
	}
	var names []string
	for key := range keys {
		names = append(names, key)
	}
	sort.Strings(names)
	for _, key := range names {
		if forgets {
			break
		}
		sure, watchdog := history.Drifted(keys[key], b.p.options.Watchdog.Nanoseconds(), b.store.quorum)
		r.wrong = append(r.wrong, history.Intervals(key, sure, watchdog)...)
		r.wrong = append(r.wrong, history.Tokens(key, keys[key])...)
		r.wrong = append(r.wrong, b.Ends(key, keys[key], b.p.options.Watchdog.Nanoseconds(), !b.p.strict, b.store.quorum)...)
		r.wrong = append(r.wrong, history.Forced(key, keys[key], b.store.quorum)...)
		if b.p.strict {
			r.wrong = append(r.wrong, history.Losses(key, keys[key])...)
			r.wrong = append(r.wrong, history.Starved(key, keys[key], watchdog)...)
			late, pairs := history.FIFO(key, keys[key])
			r.wrong = append(r.wrong, late...)
			r.fair += pairs
		}
		if b.store.quorum || b.p.effects {
			continue // of a quorum a refusal has more reasons than the model
		}
		v, decided := history.Legal(key, keys[key], b.p.options.Watchdog.Nanoseconds(), !b.p.strict)
		r.wrong = append(r.wrong, v...)
		r.undecided += int(number(!decided))
	}
}
