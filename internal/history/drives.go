package history

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A group of duelists meets at one name after the other, each used once: who misses the message of an unlock is woken by
// nobody else.
const duelists = 3

// Crew are the clients of one history.
type Crew struct {
	*Recorder
	Clients []*Client
	Over    func() bool // no new sections
	Working sync.WaitGroup
}

// Duels has all clients fight.
func Duels(r *Crew) {
	for g := 0; g+duelists <= len(r.Clients); g += duelists {
		meet := &meeting{size: duelists, over: r.Over}
		meet.all = sync.NewCond(&meet.mu)
		for _, c := range r.Clients[g : g+duelists] {
			r.Working.Go(func() { c.duel(r, g/duelists, meet) })
		}
	}
}

// Herd has all clients want one lock, each over a proxy of its own choice. They hold it for a moment, or for longer; some give up, some hang up
// while they wait, and some rest. Every two seconds it is another lock, by another verb.
func Herd(r *Crew) {
	for _, c := range r.Clients {
		r.Working.Go(func() {
			for !r.Over() {
				c.rest()
				c.wantsOne(c.link(c.N % len(c.links)))
			}
		})
	}
}

// wantsOne has a client want the lock some times, over a connection that it leaves then; nil: the proxy is down.
func (c *Client) wantsOne(l *Link) {
	for range 1 + c.Dice.IntN(20) {
		if l == nil || l.dead || c.Over() {
			return
		}
		epoch := int(c.Now() / (2 * second))
		s := &section{Client: c, keys: []string{fmt.Sprintf("h%d", epoch)}, verb: "LOCK", count: 1, fixed: l}
		switch kind := epoch % 6; {
		case kind == 5:
			s.limit = 2
		case kind == 1:
			s.verb = "FAIRLOCK"
		case kind == 4 && c.Dice.IntN(2) == 0:
			s.verb, s.side = "RLOCK", Read
		case kind%2 == 0 && kind > 0:
			s.verb, s.side = "WLOCK", Write
		}
		o := s.acquire(0)
		switch c.Dice.IntN(60) {
		case 0: // it hangs up, having the lock or not
			c.doFor(l, o, time.Duration(1+c.Dice.IntN(30))*time.Millisecond)
			c.Leave(l, false)
			return
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
			o.Block = 1 + c.Dice.Int64N(100)
		}
		if s.call(o).Outcome != OK {
			continue
		}
		c.nap(time.Duration(1 + c.Dice.Int64N(int64(time.Millisecond<<c.Dice.IntN(6)))))
		s.release()
		if c.Dice.IntN(3) == 0 {
			c.nap(time.Duration(1 + c.Dice.Int64N(int64(100*time.Millisecond))))
		}
	}
}

// meeting is a barrier.
type meeting struct {
	mu    sync.Mutex
	all   *sync.Cond
	size  int
	here  int
	round int
	over  func() bool
	ended bool
}

// next waits until all are here; it says whether to go on.
func (m *meeting) next() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.here++; m.here == m.size {
		m.here, m.ended = 0, m.over()
		m.round++
		m.all.Broadcast()
		return !m.ended
	}
	for now := m.round; m.round == now; {
		m.all.Wait()
	}
	return !m.ended
}

// meet is next for c. In a simulation they do not go on at one and the same instant, which cannot be repeated.
func (c *Client) meet(m *meeting) bool {
	on := m.next()
	if c.Gap > 0 {
		c.nap(time.Duration(1 + c.Dice.Int64N(int64(time.Millisecond))))
	}
	return on
}

// rested is meet, after a rest: then they come together.
func (c *Client) rested(m *meeting) bool {
	c.rest()
	return c.meet(m)
}

func (c *Client) duel(r *Crew, group int, meet *meeting) {
	for i := 0; c.rested(meet); i++ {
		s := &section{Client: c, keys: []string{fmt.Sprintf("d%d.%d", group, i)}, verb: "LOCK", count: 1}
		if i%8 == 4 {
			if !c.parting(s, i, meet) {
				return
			}
			continue
		}
		switch n := i % 8; {
		case n == 1, n == 3: // one of them, or two, may have it
			s.limit = int64(1 + i/8%2)
		case n == 5:
			s.verb = "FAIRLOCK"
		case n == 6 && c.N%2 == 0, n == 7:
			s.verb, s.side = "WLOCK", Write
		case n == 6:
			s.verb, s.side = "RLOCK", Read
		}
		if s.fixed = c.any(); s.fixed == nil {
			continue
		}
		lapses := i%3 == 1 && c.Dice.IntN(2) == 0
		if i%4 == 3 || lapses && c.Dice.IntN(2) == 0 {
			s.owner, s.lease = fmt.Sprintf("o%d-%d", c.N, i), 60_000
		}
		if lapses {
			s.lease = 50 + c.Dice.Int64N(50)
		}
		if o := s.call(s.acquire(0)); o == nil || o.Outcome != OK {
			continue
		}
		if lapses { // some say a late UNLOCK, of others nobody hears again
			c.nap(time.Duration(s.lease+30) * time.Millisecond)
			if c.Dice.IntN(2) == 0 {
				continue
			}
		}
		if c.Dice.IntN(3) == 0 {
			c.nap(time.Duration(c.Dice.IntN(30)) * time.Millisecond)
		}
		s.release()
	}
}

// Splits has all clients ask at once for one name, again and again, each time in another owner's name. When all have given up the name is
// free, and is to be had long before the leases of what they asked for are over.
func Splits(r *Crew) {
	meet := &meeting{size: len(r.Clients), over: r.Over}
	meet.all = sync.NewCond(&meet.mu)
	for _, c := range r.Clients {
		r.Working.Go(func() { c.split(meet) })
	}
}

func (c *Client) split(meet *meeting) {
	ask := func(name, block int64) *Op {
		c.seq++
		s := &section{Client: c, keys: []string{fmt.Sprintf("s%d", name)}, verb: "LOCK", count: 1, owner: fmt.Sprintf("o%d-%d", c.N, c.seq)}
		s.lease = []int64{8000, 6000}[name%2]
		if name%4 == 3 {
			s.verb, s.side = "WLOCK", Write
		}
		o := s.call(s.acquire(block))
		if o != nil && o.Outcome == OK {
			s.release()
		}
		if s.tainted {
			s.giveUp()
		}
		return o
	}
	for name := int64(0); c.rested(meet); name++ {
		for range 4 {
			ask(name, -1)
		}
		if !c.meet(meet) {
			return
		}
		if c.N > 0 || name == 0 { // with the first name the proxies get to know the nodes: one that is slow then is in trouble, and keeps its votes
			continue
		}
		if o := ask(name, 4000); o != nil && o.Outcome == Null {
			c.Blame(Violation{Oracle: "liveness", Key: o.Key(), Ops: []*Op{o}, Text: "nobody holds it, and it is given to nobody"})
		}
	}
}

// parting has one of the three leave while it waits for the lock in its owner's name, just before the holder gives it back: the
// third one gets it. It says whether to go on.
func (c *Client) parting(s *section, i int, meet *meeting) bool {
	role := (c.N + i/8) % duelists
	if s.fixed = c.any(); s.fixed == nil {
		first := c.meet(meet)
		return c.meet(meet) && first
	}
	held := role == 0 && s.call(s.acquire(0)).Outcome == OK
	on := c.meet(meet)
	if role == 1 {
		s.owner, s.lease = fmt.Sprintf("o%d-%d", c.N, i), 60_000
		o := s.acquire(60000)
		s.doFor(s.fixed, o, 20*time.Millisecond)
		c.HangUp()
		if o.Outcome == OK { // nobody held it
			s.fixed = c.link(s.fixed.Proxy)
			held = s.fixed != nil
		}
	}
	on = c.meet(meet) && on
	if held && !s.fixed.dead {
		s.release()
	}
	if role == 2 && s.call(s.acquire(0)).Outcome == OK {
		s.release()
	}
	return on
}

// LateWriters has clients raise two counters under one lock each, fenced and not, and sleep past their leases in between.
func LateWriters(r *Crew) {
	for i, c := range r.Clients {
		r.Working.Go(func() {
			for !r.Over() && !r.Blamed() {
				c.rest()
				c.late(i%2 == 0)
			}
		})
	}
}

// late raises a counter once.
func (c *Client) late(fenced bool) {
	s := &section{Client: c, keys: []string{"u"}, verb: "LOCK", count: 1}
	verb, counter := "BARE", "n:unfenced"
	if fenced {
		s.keys, verb, counter = []string{"w"}, "FENCED", "n:fenced"
	}
	c.seq++
	if c.Dice.IntN(2) == 0 {
		s.owner, s.lease = fmt.Sprintf("o%d-%d", c.N, c.seq), 3000
	}
	if c.Dice.IntN(4) > 0 {
		s.lease = 50
	}
	if s.fixed = c.any(); s.fixed == nil {
		return
	}
	o := s.call(s.acquire(1000))
	if o == nil || o.Outcome != OK {
		if s.tainted && s.named() {
			s.giveUp()
		}
		return
	}
	get := s.one(&Op{Verb: verb, Words: []string{"GET", counter}})
	if get != nil && (get.Outcome == OK || get.Outcome == Null) {
		if c.Dice.IntN(4) == 0 {
			c.nap(80 * time.Millisecond)
		}
		value, _ := strconv.ParseInt(get.Text, 10, 64)
		s.one(&Op{Verb: verb, Words: []string{"SET", counter, strconv.FormatInt(value+1, 10)}})
	}
	s.release()
}
