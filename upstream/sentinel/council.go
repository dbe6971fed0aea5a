package sentinel

import (
	"errors"
	"time"

	"github.com/redis/rueidis"
)

// resetTimeout is for how long the Sentinels must have named a lower config-epoch than the present one before it is
// accepted: only Sentinels that were set up anew go back.
const resetTimeout = 10 * time.Second

// masterAddress is a master's address, by the configuration of that epoch. The Sentinels raise the epoch at every failover, and
// a majority of them agrees to that.
type masterAddress struct {
	addr  string
	epoch int64
}

// statement is what one Sentinel said.
type statement struct {
	masterAddress
	asked bool
	err   error // why it said nothing of use
}

// council is what the Sentinels have said, and the master that they agree on. It has no clock, no lock and no
// connection.
type council struct {
	statements []statement   // what each Sentinel said last
	now        masterAddress // addr "": not known yet
	lower      time.Time     // since when the Sentinels' epoch has been lower than now's; zero: it is not
}

// hear takes what a Sentinel says at that time, and tells whether another master is followed from then on.
func (c *council) hear(index int, v statement, at time.Time) (moved bool) {
	v.asked = true
	c.statements[index] = v
	to, ok := choose(c.statements, c.now)
	if !ok {
		return false
	}
	if to.epoch >= c.now.epoch {
		c.lower = time.Time{}
	} else {
		if c.lower.IsZero() {
			c.lower = at
		}
		if at.Sub(c.lower) < resetTimeout {
			return false
		}
	}
	moved = to.addr != c.now.addr
	c.now = to
	return moved
}

// unknown says why no master is known yet; nil: one is, or Sentinels are still being asked for the first time.
func (c *council) unknown() (why error) {
	if c.now.addr != "" {
		return nil
	}
	for _, v := range c.statements {
		if !v.asked {
			return nil
		}
		if why == nil || hasSpoken(v.err) {
			why = v.err
		}
	}
	return why
}

// hasSpoken says that an error is what a Sentinel has said: that tells more than that another one does not answer.
func hasSpoken(err error) bool {
	_, said := rueidis.IsRedisErr(err)
	return said || errors.Is(err, errNoSuchMaster)
}

// choose says which master the views agree on, given the one that is followed now (or none). ok is false when they do
// not tell enough.
//
//   - The newest config-epoch counts, and within it the most votes.
//   - For the first choice a majority must have answered, or all must have been asked.
//   - Another address of the same epoch needs the votes of a majority of all Sentinels, and an older epoch the answers of a majority.
func choose(views []statement, now masterAddress) (to masterAddress, ok bool) {
	asked, answered, newest := 0, 0, int64(-1)
	votes := map[masterAddress]int{}
	for _, v := range views {
		if !v.asked {
			continue
		}
		asked++
		if v.err == nil {
			answered++
			newest = max(newest, v.epoch)
			votes[v.masterAddress]++
		}
	}
	majority := len(views)/2 + 1
	best := masterAddress{now.addr, newest} // of as many votes the present one stays
	for _, v := range views {
		if v.epoch == newest && votes[v.masterAddress] > votes[best] {
			best = v.masterAddress
		}
	}
	if answered == 0 {
		return masterAddress{}, false
	}
	switch {
	case now.addr == "":
		ok = answered >= majority || asked == len(views)
		if !ok {
			best = masterAddress{}
		}
		return best, ok
	case newest < now.epoch && answered < majority:
		return now, true
	case newest == now.epoch && votes[best] < majority:
		return now, true
	}
	return best, true
}
