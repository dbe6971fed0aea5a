package history

import (
	"fmt"
	"strconv"
	"time"
)

// keyLife is how long clients use a lock's name before they all go on to the next: it bounds what porcupine has to search.
const keyLife = 1500 * time.Millisecond

// workload is what clients do.
type workload struct {
	plain, rw, fair, mixed int     // number of names of each sort in use at one time; mixed ones hold locks of any kind in turn
	multi                  bool    // MULTILOCK over the plain names
	force                  bool    // UNLOCK FORCE now and then
	deaths                 bool    // connections are reset while they wait and while they hold
	lapses                 bool    // leases are left to run out
	unfenced               bool    // the locks are not where the data is
	watchedOwners          bool    // locks of explicit owners may be left to their watchdog
	minLease, maxLease     int64   // ms, of PX
	pxShare                float64 // of sections with PX
	maxBlock               int64   // ms
	pause                  time.Duration
}

// section is one client's use of one lock.
type section struct {
	*client
	w       workload
	keys    []string
	verb    string
	side    side
	owner   string // "": the connection's
	fixed   *link  // of the connection that is the owner
	once    bool
	fence   bool
	lease   int64
	count   int  // what the client believes
	tainted bool // the client no longer knows what it holds
}

func (s *section) explicit() bool { return s.owner != "" }

// key is a name of that sort, of the present generation.
func (c *client) key(sort string, n int) string {
	return fmt.Sprintf("%s%d.%d", sort, c.dice.IntN(n), c.now()/int64(keyLife))
}

// run does one section after the other.
func (c *client) run(w workload) {
	for !c.over() && !c.blamed() {
		c.section(w)
	}
}

// section picks a lock, a verb and an owner, and lives through one section.
func (c *client) section(w workload) {
	s := &section{client: c, w: w}
	s.pick()
	c.seq++
	if c.dice.IntN(2) == 0 || s.verb == "MULTILOCK" {
		s.owner = fmt.Sprintf("o%d-%d", c.n, c.seq)
		s.once = c.dice.IntN(3) > 0
	}
	s.fence = s.side != read && c.dice.IntN(3) == 0
	if c.dice.Float64() < w.pxShare {
		s.lease = w.minLease + c.dice.Int64N(w.maxLease-w.minLease+1)
	}
	s.fixed = c.link(c.dice.IntN(len(c.addrs)))
	if s.fixed == nil {
		c.nap(5 * time.Millisecond)
		return
	}
	if w.force && c.dice.IntN(60) == 0 {
		c.do(s.fixed, &op{Verb: "UNLOCK", Keys: s.keys[:1], Force: true})
		return
	}
	s.live()
	if s.tainted && s.explicit() {
		s.giveUp()
	}
}

// pick chooses the lock and the verb.
func (s *section) pick() {
	c, w := s.client, s.w
	n := c.dice.IntN(w.plain + w.rw + w.fair + w.mixed)
	switch {
	case n < w.plain:
		s.keys, s.verb = []string{c.key("p", w.plain)}, "LOCK"
		if w.multi && c.dice.IntN(4) == 0 {
			if other := c.key("p", w.plain); other != s.keys[0] {
				s.keys, s.verb = append(s.keys, other), "MULTILOCK"
			}
		}
	case n < w.plain+w.rw:
		s.keys, s.verb = []string{c.key("rw", w.rw)}, []string{"RLOCK", "RLOCK", "WLOCK"}[c.dice.IntN(3)]
	case n < w.plain+w.rw+w.fair:
		s.keys, s.verb = []string{c.key("f", w.fair)}, []string{"FAIRLOCK", "FAIRLOCK", "LOCK"}[c.dice.IntN(3)]
	default:
		s.keys, s.verb = []string{c.key("m", w.mixed)}, []string{"LOCK", "RLOCK", "WLOCK"}[c.dice.IntN(3)]
	}
	s.side = map[string]side{"RLOCK": read, "WLOCK": write}[s.verb]
}

// link is the connection for the next call: an explicit owner hops between proxies.
func (s *section) link() *link {
	if !s.explicit() {
		if s.fixed.dead {
			return nil
		}
		return s.fixed
	}
	return s.client.link(s.dice.IntN(len(s.addrs)))
}

// call sends one call of this owner; nil: there is no connection.
func (s *section) call(o *op) *op {
	l := s.link()
	if o.Verb == "MULTILOCK" && l != nil {
		// Entered again through another proxy the leases of several locks are not what is promised: not yet.
		if l = s.fixed; l.dead {
			return nil
		}
	}
	if l == nil {
		return nil
	}
	if o.Keys == nil {
		o.Keys = s.keys
	}
	o.Owner, o.Explicit = s.owner, s.explicit()
	s.do(l, o)
	if o.Outcome == unknown {
		s.tainted = true
	}
	return o
}

// acquire is a call of the section's verb.
func (s *section) acquire(block int64) *op {
	return &op{Verb: s.verb, Side: s.side, Block: block, Lease: s.lease, Once: s.once, Fence: s.fence && s.side != read,
		Self: !s.explicit() && s.dice.IntN(2) == 0, Keys: s.keys, Owner: s.owner, Explicit: s.explicit()}
}

// block is how long to wait.
func (s *section) block() int64 {
	switch s.dice.IntN(8) {
	case 0, 1:
		return -1
	case 2:
		return 1 + s.dice.Int64N(30)
	case 3:
		return 0
	}
	return 1 + s.dice.Int64N(s.w.maxBlock)
}

// live takes the lock, works, and leaves it in one of several ways.
func (s *section) live() {
	if s.w.deaths && s.dice.IntN(25) == 0 {
		s.dieWaiting()
		return
	}
	o := s.call(s.acquire(s.block()))
	if o == nil || o.Outcome != ok {
		return
	}
	s.count = 1
	s.work()
	if s.tainted {
		return
	}
	switch n := s.dice.IntN(40); {
	case n == 0 && s.w.deaths && !s.explicit():
		s.client.end(s.fixed, s.dice.IntN(2) == 0)
	case n == 1 && s.w.lapses && s.lease > 0:
		s.lapse()
	case n == 2 && s.lease > 0 && s.explicit(), n == 3 && s.w.watchedOwners && s.explicit() && s.lease == 0:
		// It is left to run out; if it is watched, once the connection that took it is gone.
		if s.lease == 0 {
			s.hangUp()
		}
	default:
		s.release()
	}
}

// work is what happens inside: pauses, re-entry, renewals, fenced writes, calls sent again.
func (s *section) work() {
	for range s.dice.IntN(3) {
		switch s.dice.IntN(6) {
		case 0, 1:
			s.nap(time.Duration(s.dice.Int64N(int64(s.w.pause))))
		case 2:
			s.enterAgain()
		case 3:
			if len(s.keys) > 1 {
				continue // it would be for one of them
			}
			o := &op{Verb: "RENEW", Side: s.side}
			if s.lease > 0 && s.dice.IntN(3) > 0 { // RENEW without a lease would leave it to the watchdog
				o.Lease = s.w.minLease + s.dice.Int64N(s.w.maxLease-s.w.minLease+1)
			}
			s.one(o)
			if o.Outcome == ok || o.Outcome == unknown {
				s.lease = o.Lease // without one it is renewed from now on
			}
		default:
			if s.w.unfenced {
				s.nap(time.Duration(s.dice.Int64N(int64(s.w.pause))))
				continue
			}
			s.increment()
		}
		if s.tainted {
			return
		}
	}
}

// one is call for verbs that know one lock.
func (s *section) one(o *op) *op {
	o.Keys = s.keys[:1]
	return s.call(o)
}

// enterAgain takes the lock once more, or sends the same call again.
func (s *section) enterAgain() {
	o := s.acquire(-1)
	if s.dice.IntN(3) == 0 && s.w.pxShare > 0 {
		o.Lease = s.w.minLease + s.dice.Int64N(s.w.maxLease-s.w.minLease+1)
	}
	if s.verb == "WLOCK" && s.dice.IntN(3) == 0 { // reads beside its own writing, and goes on reading
		o.Verb, o.Side, o.Fence = "RLOCK", read, false
	} else if s.verb == "RLOCK" && s.dice.IntN(6) == 0 {
		o.Verb, o.Side = "WLOCK", write
	}
	if s.call(o); o.Outcome != ok || s.tainted {
		return
	}
	if o.Side != s.side {
		s.call(&op{Verb: "UNLOCK", Side: s.side, All: true})
		s.side, s.count, s.verb = o.Side, 0, o.Verb
	}
	if !o.Once || s.count == 0 {
		s.count++
	}
}

// increment is a read-modify-write of the lock's counter, each half run only while the lock is held.
func (s *section) increment() {
	counter := "n:" + s.keys[0]
	get := s.one(&op{Verb: "FENCED", Side: s.side, Words: []string{"GET", counter}})
	if get == nil || get.Outcome != ok && get.Outcome != null {
		return
	}
	if s.side == read {
		return // others read, too
	}
	value, _ := strconv.ParseInt(get.Text, 10, 64)
	s.one(&op{Verb: "FENCED", Side: s.side, Words: []string{"SET", counter, strconv.FormatInt(value+1, 10)}})
}

// release gives everything back, now and then in one go, and now and then once more than there was.
func (s *section) release() {
	if s.verb == "MULTILOCK" {
		for range s.count {
			if o := s.call(&op{Verb: "MULTIUNLOCK"}); o == nil || o.Outcome != ok {
				s.tainted = true
			}
		}
		return
	}
	for s.count > 0 && !s.tainted {
		o := &op{Verb: "UNLOCK", Side: s.side, All: s.dice.IntN(6) == 0}
		if s.call(o) == nil || o.Outcome == failed && o.Code == "ERR" {
			if !s.explicit() && s.fixed.dead {
				return
			}
			s.nap(5 * time.Millisecond)
			continue
		}
		if s.count--; o.All || o.Outcome == failed {
			s.count = 0
		}
	}
	if !s.tainted && s.dice.IntN(10) == 0 {
		s.call(&op{Verb: "UNLOCK", Side: s.side})
	}
}

// lapse lets the lease run out, and then asks what became of it. A lease that was longer in the end is given back.
func (s *section) lapse() {
	s.nap(time.Duration(s.lease)*time.Millisecond + time.Duration(s.dice.IntN(30))*time.Millisecond)
	if s.dice.IntN(2) == 0 {
		s.one(&op{Verb: "RENEW", Side: s.side, Lease: s.lease})
	}
	s.release()
}

// dieWaiting asks for the lock and hangs up while it waits for the reply.
func (s *section) dieWaiting() {
	l := s.link()
	if l == nil {
		return
	}
	o := s.acquire(1 + s.dice.Int64N(2*s.w.maxBlock))
	s.doFor(l, o, time.Duration(1+s.dice.IntN(30))*time.Millisecond)
	switch {
	case o.Outcome == unknown:
		s.end(l, true)
		s.tainted = true
	case o.Outcome == ok:
		s.count = 1
		s.release()
	}
}

// giveUp frees what an explicit owner may hold whose client does not know; until then its watchdog may go on.
func (s *section) giveUp() {
	sides := []side{s.side}
	if s.side != plain {
		sides = []side{write, read}
	}
	for _, key := range s.keys {
		for _, side := range sides {
			for tries := 0; !s.freed(key, side); tries++ {
				if tries == 100 { // it is left to run out
					s.hangUp()
					return
				}
				s.nap(20 * time.Millisecond)
			}
		}
	}
}

// freed asks once for the end of whatever the owner holds on a side, and says whether that was answered.
func (s *section) freed(key string, side side) bool {
	l := s.client.link(s.dice.IntN(len(s.addrs)))
	if l == nil {
		return false
	}
	o := &op{Verb: "UNLOCK", Keys: []string{key}, Side: side, All: true, Owner: s.owner, Explicit: true}
	s.do(l, o)
	return o.Outcome == ok || o.Outcome == failed && o.Code != "ERR"
}

// hangUp ends all connections.
func (c *client) hangUp() {
	for _, l := range c.links {
		if l != nil {
			c.end(l, c.dice.IntN(2) == 0)
		}
	}
}

// nap passes time.
func (c *client) nap(d time.Duration) { time.Sleep(d) }
