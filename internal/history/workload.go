package history

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// keyLife is how long clients use a lock's name before they all go on to the next, unless the workload says otherwise: it bounds what
// porcupine has to search.
const keyLife = 1500 * time.Millisecond

// Workload is what clients do.
type Workload struct {
	Plain, RW, Fair, Mixed int           // number of names of each sort in use at one time; mixed ones hold locks of any kind in turn
	Limit                  int           // number of names of locks that several may hold
	Multi                  bool          // MULTILOCK over the plain names
	Force                  bool          // UNLOCK FORCE now and then
	Deaths                 bool          // connections are reset while they wait and while they hold
	Lapses                 bool          // leases are left to run out
	Nameless               bool          // no owner has a name
	Stays                  bool          // some connections stay in a lock for longer than the watchdog's lease
	Unfenced               bool          // the locks are not where the data is
	MinLease, MaxLease     int64         // ms, of PX
	PXShare                float64       // of sections with PX
	MaxBlock               int64         // ms
	Pause                  time.Duration // most that a pause inside takes
	KeyLife                time.Duration // for so long a name is used; 0: 1.5 s
}

// lease is one for PX.
func (w Workload) lease(dice *rand.Rand) int64 {
	return w.MinLease + dice.Int64N(w.MaxLease-w.MinLease+1)
}

// section is one client's use of one lock.
type section struct {
	*Client
	w       Workload
	keys    []string
	verb    string
	side    Side
	owner   string // "": the connection's
	fixed   *Link  // of the connection that is the owner
	fence   bool
	lease   int64
	limit   int64 // so many may hold the lock; 0: one
	again   bool  // its owner takes the lock again when it has given it back
	count   int   // what the client believes
	tainted bool  // the client no longer knows what it holds
}

func (s *section) named() bool { return s.owner != "" }

// generation numbers the names of the moment.
func (s *section) generation() int64 {
	life := s.w.KeyLife
	if life == 0 {
		life = keyLife
	}
	return s.Now() / int64(life)
}

// key is a name of that sort, of the present generation.
func (s *section) key(sort string, n int) string {
	return fmt.Sprintf("%s%d.%d", sort, s.Dice.IntN(n), s.generation())
}

// limits are how many may hold a lock with LIMIT, in turn: a name has one of these pairs. Where the two differ, each request says one of them,
// as while a new release of a program is rolled out.
var limits = [...][2]int64{{2, 2}, {3, 3}, {2, 3}, {1, 1}, {2, 2}, {1, 2}, {3, 3}}

// limited is a name of a lock that several may hold, of the present generation, and how many may.
func (s *section) limited(n int) (key string, limit int64) {
	i, generation := s.Dice.IntN(n), s.generation()
	return fmt.Sprintf("l%d.%d", i, generation), limits[(int64(i)*3+generation)%int64(len(limits))][s.Dice.IntN(2)]
}

// Run does one section after the other.
func (c *Client) Run(w Workload) {
	for !c.Over() && !c.Blamed() {
		c.rest()
		c.section(w)
	}
}

// section picks a lock, a verb and an owner, and lives through one section.
func (c *Client) section(w Workload) {
	s := &section{Client: c, w: w}
	s.pick()
	c.seq++
	if c.Dice.IntN(2) == 0 && !w.Nameless || s.verb == "MULTILOCK" {
		s.owner = fmt.Sprintf("o%d-%d", c.N, c.seq)
		if s.again = c.Dice.IntN(4) == 0; s.again {
			s.owner = fmt.Sprintf("again%d-%d", c.N, c.seq)
			for i := range s.keys { // its client's own, or another one may be faster
				s.keys[i] += fmt.Sprint("-", c.N)
			}
		}
	}
	s.fence = s.side != Read && s.limit == 0 && c.Dice.IntN(3) == 0
	if c.Dice.Float64() < w.PXShare || s.named() { // a named owner has a lease
		s.lease = w.lease(c.Dice)
	}
	s.fixed = c.any()
	if s.fixed == nil {
		c.nap(5 * time.Millisecond)
		return
	}
	if w.Force && c.Dice.IntN(60) == 0 {
		c.Do(s.fixed, &Op{Verb: "UNLOCK", Keys: s.keys[:1], Force: true})
		return
	}
	s.live()
	if s.tainted && s.named() {
		s.giveUp()
	}
}

// pick chooses the lock and the verb.
func (s *section) pick() {
	c, w := s.Client, s.w
	n := c.Dice.IntN(w.Plain + w.RW + w.Fair + w.Mixed + w.Limit)
	switch {
	case n < w.Plain:
		s.keys, s.verb = []string{s.key("p", w.Plain)}, "LOCK"
		if w.Multi && c.Dice.IntN(4) == 0 {
			if other := s.key("p", w.Plain); other != s.keys[0] {
				s.keys, s.verb = append(s.keys, other), "MULTILOCK"
			}
		}
	case n < w.Plain+w.RW:
		s.keys, s.verb = []string{s.key("rw", w.RW)}, []string{"RLOCK", "RLOCK", "WLOCK"}[c.Dice.IntN(3)]
	case n < w.Plain+w.RW+w.Fair:
		s.keys, s.verb = []string{s.key("f", w.Fair)}, []string{"FAIRLOCK", "FAIRLOCK", "LOCK"}[c.Dice.IntN(3)]
	case n < w.Plain+w.RW+w.Fair+w.Limit:
		key, limit := s.limited(w.Limit)
		s.keys, s.verb, s.limit = []string{key}, "LOCK", limit
	default:
		s.keys, s.verb = []string{s.key("m", w.Mixed)}, []string{"LOCK", "RLOCK", "WLOCK"}[c.Dice.IntN(3)]
	}
	s.side = map[string]Side{"RLOCK": Read, "WLOCK": Write}[s.verb]
}

// link is the connection for the next call: a named owner hops between proxies.
func (s *section) link() *Link {
	if !s.named() {
		if s.fixed.dead {
			return nil
		}
		return s.fixed
	}
	return s.any()
}

// call sends one call of this owner; nil: there is no connection.
func (s *section) call(o *Op) *Op {
	l := s.link()
	if l == nil {
		return nil
	}
	if o.Keys == nil {
		o.Keys = s.keys
	}
	o.Owner, o.Named = s.owner, s.named()
	s.Do(l, o)
	if o.Outcome == Unknown {
		s.tainted = true
	}
	return o
}

// acquire is a call of the section's verb. A named owner's MULTILOCK waits for less than its lease.
func (s *section) acquire(block int64) *Op {
	if s.verb == "MULTILOCK" && s.named() && (block == 0 || block >= s.lease) {
		block = s.lease - 1
	}
	return &Op{Verb: s.verb, Side: s.side, Block: block, Lease: s.lease, Limit: s.limit, Fence: s.fence && s.side != Read,
		Self: !s.named() && s.Dice.IntN(2) == 0, Keys: s.keys, Owner: s.owner, Named: s.named()}
}

// block is how long to wait.
func (s *section) block() int64 {
	switch s.Dice.IntN(8) {
	case 0, 1:
		return -1
	case 2:
		return 1 + s.Dice.Int64N(30)
	case 3:
		return 0
	}
	return 1 + s.Dice.Int64N(s.w.MaxBlock)
}

// live takes the lock, works, and leaves it in one of several ways.
func (s *section) live() {
	if s.w.Deaths && s.Dice.IntN(25) == 0 {
		s.dieWaiting()
		return
	}
	if s.w.Deaths && s.named() && s.verb != "MULTILOCK" && s.Dice.IntN(12) == 0 {
		s.askAndLeave()
	}
	if s.verb == "MULTILOCK" && s.Dice.IntN(3) == 0 {
		s.takeOneForLonger()
		return
	}
	o := s.call(s.acquire(s.block()))
	if o == nil || o.Outcome != OK {
		return
	}
	s.count, s.tainted = 1, false
	if s.w.Stays && !s.named() && s.lease == 0 && s.Dice.IntN(15) == 0 {
		s.stay()
	} else {
		s.work()
	}
	if s.tainted {
		return
	}
	switch n := s.Dice.IntN(40); {
	case n == 0 && s.w.Deaths && !s.named():
		s.Leave(s.fixed, s.Dice.IntN(2) == 0)
	case n == 1 && s.w.Lapses && s.lease > 0:
		s.lapse()
	case n == 2 && s.named():
		// It is left to run out.
	default:
		s.release()
		if s.again && !s.tainted {
			s.takeAgain()
		}
	}
}

// work is what happens inside: pauses, re-entry, renewals, fenced writes, calls sent again.
func (s *section) work() {
	for range s.Dice.IntN(3) {
		switch s.Dice.IntN(6) {
		case 0, 1:
			s.nap(time.Duration(s.Dice.Int64N(int64(s.w.Pause))))
		case 2:
			if s.w.Deaths && s.named() && s.verb != "MULTILOCK" && s.Dice.IntN(4) == 0 {
				s.enterAndLeave()
				continue
			}
			s.enterAgain()
		case 3:
			if len(s.keys) > 1 {
				continue // it would be for one of them
			}
			o := &Op{Verb: "RENEW", Side: s.side}
			if s.named() || s.lease > 0 && s.Dice.IntN(3) > 0 { // RENEW without a lease leaves it to the watchdog
				o.Lease = s.w.lease(s.Dice)
			}
			s.one(o)
			if o.Outcome == OK || o.Outcome == Unknown {
				s.lease = o.Lease // without one it is renewed from now on
			}
		default:
			if s.w.Unfenced || s.limit > 0 {
				s.nap(time.Duration(s.Dice.Int64N(int64(s.w.Pause))))
				continue
			}
			s.increment()
		}
		if s.tainted {
			return
		}
	}
}

// stay remains in the lock for longer than it lasts without the watchdog. Meanwhile it enters the lock again all the time for less than that,
// or does nothing, or leaves one of many sections after the other.
func (s *section) stay() {
	until := s.Now() + int64(s.w.KeyLife)*3/2
	switch s.Dice.IntN(3) {
	case 0:
		s.nap(s.w.KeyLife / 2)
		until = 0
	case 1:
		for range 20 {
			if !s.enterShortly() {
				return
			}
		}
		for until = 0; s.count > 1 && !s.Over(); s.count-- {
			s.nap(time.Duration(s.Dice.Int64N(int64(2 * s.w.Pause))))
			o := &Op{Verb: "UNLOCK", Side: s.side}
			if s.call(o); o.Outcome != OK {
				return
			}
		}
	}
	for s.Now() < until && !s.Over() {
		s.nap(time.Duration(s.Dice.Int64N(int64(s.w.Pause))))
		if !s.enterShortly() {
			return
		}
	}
	s.one(&Op{Verb: "RENEW", Side: s.side})
}

// enterShortly takes the lock once more, with the shortest lease; it says whether the client knows that it has.
func (s *section) enterShortly() bool {
	o := s.acquire(-1)
	o.Self, o.Lease = true, s.w.MinLease
	if s.call(o); o.Outcome == OK {
		s.count++
	}
	return o.Outcome == OK
}

// one is call for verbs that know one lock.
func (s *section) one(o *Op) *Op {
	o.Keys = s.keys[:1]
	return s.call(o)
}

// enterAgain takes the lock once more, or sends the same call again.
func (s *section) enterAgain() {
	o := s.acquire(-1)
	if s.Dice.IntN(3) == 0 && (s.w.PXShare > 0 || s.named()) {
		o.Lease = s.w.lease(s.Dice)
	}
	if s.verb == "WLOCK" && s.Dice.IntN(3) == 0 { // reads beside its own writing, and goes on reading
		o.Verb, o.Side, o.Fence = "RLOCK", Read, false
	} else if s.verb == "RLOCK" && s.Dice.IntN(6) == 0 {
		o.Verb, o.Side = "WLOCK", Write
	}
	if s.call(o); o.Outcome != OK || s.tainted {
		return
	}
	if o.Side != s.side {
		former := s.call(&Op{Verb: "UNLOCK", Side: s.side, All: true})
		s.side, s.count, s.verb = o.Side, 0, o.Verb
		if former == nil || former.Outcome == Failed && former.Code == "ERR" {
			s.tainted = true // the owner may still have both
			if !s.named() {
				s.HangUp()
			}
			return
		}
	}
	if !s.named() || s.count == 0 {
		s.count++
	}
}

// askAndLeave has a named owner ask for its lock over a connection that is gone about when the answer comes. It asks again over another one, and if it
// has the lock then it keeps it.
func (s *section) askAndLeave() {
	l := s.any()
	if l == nil {
		return
	}
	o := s.acquire(1 + s.Dice.Int64N(s.w.MaxBlock))
	if s.doFor(l, o, time.Duration(1+s.Dice.IntN(10))*time.Millisecond); o.Outcome != Null && o.Outcome != Failed {
		s.Leave(l, true)
		s.tainted = true // until it has been granted the lock
	}
}

// enterAndLeave has the owner ask for its lock once more, over a connection that is gone before the answer: it still has the lock.
func (s *section) enterAndLeave() {
	l := s.any()
	if l == nil {
		return
	}
	o := s.acquire(1 + s.Dice.Int64N(s.w.MaxBlock))
	if s.doFor(l, o, time.Duration(1+s.Dice.IntN(5))*time.Millisecond); o.Outcome == Unknown {
		s.Leave(l, true)
	}
}

// takeOneForLonger has the owner of a MULTILOCK, which may wait, take the first of its locks for longer over another connection. The owner has
// that one then, whatever becomes of the others, and stays in it for longer than these last.
func (s *section) takeOneForLonger() {
	l, o, pause := s.Dial(s.Dice.IntN(len(s.links))), s.acquire(s.block()), time.Duration(s.Dice.Int64N(int64(s.w.Pause)/2))
	if l == nil {
		return
	}
	one := *o
	one.Verb, one.Keys, one.Block, one.Lease = "LOCK", []string{min(s.keys[0], s.keys[1])}, -1, s.w.MaxLease
	var alone sync.WaitGroup
	alone.Go(func() {
		s.nap(pause)
		s.Do(l, &one)
		s.Leave(l, false)
	})
	s.call(o)
	if alone.Wait(); one.Outcome == OK {
		s.nap(time.Duration(s.lease) * time.Millisecond)
	}
	s.tainted = true // all is given back
}

// increment is a read-modify-write of the lock's counter, each half run only while the lock is held.
func (s *section) increment() {
	counter := "n:{" + s.keys[0] + "}" // a cluster has it beside the lock
	get := s.one(&Op{Verb: "FENCED", Side: s.side, Words: []string{"GET", counter}})
	if get == nil || get.Outcome != OK && get.Outcome != Null {
		return
	}
	if s.side == Read {
		return // others read, too
	}
	value, _ := strconv.ParseInt(get.Text, 10, 64)
	s.one(&Op{Verb: "FENCED", Side: s.side, Words: []string{"SET", counter, strconv.FormatInt(value+1, 10)}})
}
