package history

import "time"

// How a section ends.

// takeAgain has an owner that has just given its lock back take it again with a lease, and leave it to run out, or give it back. A proxy
// that had it before may not have noticed yet that another one has given it back.
func (s *section) takeAgain() {
	s.lease = s.w.lease(s.Dice)
	if o := s.call(s.acquire(-1)); o == nil || o.Outcome != OK {
		return
	}
	if s.count = 1; s.Dice.IntN(3) == 0 {
		s.release()
	}
}

// release gives everything back, now and then in one go, and now and then once more than there was.
func (s *section) release() {
	if s.verb == "MULTILOCK" {
		for range s.count {
			if o := s.call(&Op{Verb: "MULTIUNLOCK"}); o == nil || o.Outcome != OK {
				s.tainted = true
			}
		}
		return
	}
	for s.count > 0 && !s.tainted {
		o := &Op{Verb: "UNLOCK", Side: s.side, All: s.Dice.IntN(6) == 0}
		if s.call(o) == nil || o.Outcome == Failed && o.Code == "ERR" {
			if !s.named() && (s.fixed.dead || o.All && s.w.Deaths && s.Dice.IntN(4) == 0) { // it is left to run out, and its connection goes on
				return
			}
			s.nap(5 * time.Millisecond)
			continue
		}
		if s.count--; o.All || o.Outcome == Failed {
			s.count = 0
		}
	}
	if !s.tainted && s.Dice.IntN(10) == 0 {
		s.call(&Op{Verb: "UNLOCK", Side: s.side})
	}
}

// lapse lets the lease run out, and then asks what became of it. A lease that was longer in the end is given back.
func (s *section) lapse() {
	s.nap(time.Duration(s.lease)*time.Millisecond + time.Duration(s.Dice.IntN(30))*time.Millisecond)
	if s.Dice.IntN(2) == 0 {
		s.one(&Op{Verb: "RENEW", Side: s.side, Lease: s.lease})
	}
	s.release()
}

// dieWaiting asks for the lock and hangs up while it waits for the reply.
func (s *section) dieWaiting() {
	l := s.link()
	if l == nil {
		return
	}
	o := s.acquire(1 + s.Dice.Int64N(2*s.w.MaxBlock))
	s.doFor(l, o, time.Duration(1+s.Dice.IntN(30))*time.Millisecond)
	switch {
	case o.Outcome == Unknown:
		s.Leave(l, true)
		s.tainted = true
	case o.Outcome == OK:
		s.count = 1
		s.release()
	}
}

// giveUp frees what a named owner may hold whose client does not know; until then its watchdog may go on.
func (s *section) giveUp() {
	sides := []Side{s.side}
	if s.side != Plain {
		sides = []Side{Write, Read}
	}
	for _, key := range s.keys {
		for _, side := range sides {
			for tries := 0; !s.freed(key, side); tries++ {
				if tries == 100 { // it is left to run out
					s.HangUp()
					return
				}
				s.nap(20 * time.Millisecond)
			}
		}
	}
}

// freed asks once for the end of whatever the owner holds on a side, and says whether that was answered.
func (s *section) freed(key string, side Side) bool {
	l := s.any()
	if l == nil {
		return false
	}
	o := &Op{Verb: "UNLOCK", Keys: []string{key}, Side: side, All: true, Owner: s.owner, Named: true}
	s.Do(l, o)
	return o.Outcome == OK || o.Outcome == Failed && o.Code != "ERR"
}

// HangUp ends all connections.
func (c *Client) HangUp() {
	for _, l := range c.links {
		if l != nil {
			c.Leave(l, c.Dice.IntN(2) == 0)
		}
	}
}

// nap passes time.
func (c *Client) nap(d time.Duration) { <-time.After(d) }
