package simulation

import (
	"fmt"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// The told oracle: who holds a lock hears of its loss before somebody else gets it through another proxy, and for as long as it stays
// connected its UNLOCK says so.

const (
	toldHeld, toldWanted = 20, 4 // locks that one holder has, and those of them that others wait for
	toldOthers           = 200   // locks that somebody else loses meanwhile
)

// toldLosses cuts the first proxy off, over and over, with locks that users of the second one wait for.
func toldLosses(b *environment) {
	b.Working.Go(func() {
		for i := 0; !b.Over() && !b.Blamed(); i++ {
			b.cutOff(i)
			time.Sleep(30 * second)
		}
	})
}

// cutOff has one holder lose all of its locks.
func (b *environment) cutOff(i int) {
	n := b.Conn()
	holder, dice := b.connect(0, n), b.dice(uint64(1000+i))
	defer holder.Close(true)
	ask := func(o *history.Op) *history.Op {
		o.Conn, o.Owner = n, history.ConnOwner(n)
		b.Begin(o)
		reply, err := holder.Do(o, history.NoReply)
		b.Clients[0].Conclude(o, reply, err)
		return o
	}
	var keys []string
	for j := range toldHeld {
		key := fmt.Sprintf("t%d.%d", i, j)
		if ask(&history.Op{Verb: "LOCK", Keys: []string{key}, Block: -1, Limit: b.toldLimit(j)}).Outcome != history.OK {
			return // it is not connected to Redis again
		}
		keys = append(keys, key)
		time.Sleep(time.Duration(dice.Int64N(int64(50 * ms))))
	}
	var rivals sync.WaitGroup
	for j, key := range keys[:toldWanted] {
		rivals.Go(func() {
			time.Sleep(time.Duration(j) * 137 * time.Microsecond)
			b.rival(key, b.toldLimit(j), holder)
		})
	}
	time.Sleep(time.Duration(dice.Int64N(int64(b.p.options.Watchdog) / 2)))
	e := b.proxies[0].engine()
	b.Fault(history.Swallowed, "swallow what is on the links of "+e.name)
	for i := range b.nodes {
		e.wire(b, i).Swallow(world.Both)
	}
	rivals.Wait()
	b.Fault("", "heal the links of "+e.name)
	for i := range b.nodes {
		e.wire(b, i).Heal()
		e.wire(b, i).Drop()
	}
	time.Sleep(second)
	b.loseOthers()
	for _, key := range keys[:toldWanted] {
		if o := ask(&history.Op{Verb: "UNLOCK", Keys: []string{key}}); o.Code != "LOCKLOST" {
			b.Blame(history.Violation{Oracle: "told", Key: key, Ops: []*history.Op{o}, Text: "it was lost, and this is not told any more"})
		}
	}
}

// toldLimit is the LIMIT of one of the locks: every other one has it, but for those on a quorum.
func (b *environment) toldLimit(j int) int64 {
	if b.store.quorum {
		return 0
	}
	return int64(j % 2)
}

// rival waits for a lock that another one holds.
func (b *environment) rival(key string, limit int64, holder *conn) {
	c := b.Clients[1]
	l := c.Dial(1)
	if l == nil {
		return
	}
	defer c.Leave(l, false)
	o := c.Do(l, &history.Op{Verb: "LOCK", Keys: []string{key}, Block: 60000, Limit: limit})
	if o.Outcome != history.OK {
		return
	}
	holder.mu.Lock()
	at, told := holder.told[key]
	holder.mu.Unlock()
	if !told || at > o.Return {
		b.Blame(history.Violation{Oracle: "told", Key: key, Ops: []*history.Op{o}, Text: "the one who held it has not been told of the loss by then"})
	}
	c.Do(l, &history.Op{Verb: "UNLOCK", Keys: []string{key}})
}

// loseOthers has another user of the first proxy lose locks of its own.
func (b *environment) loseOthers() {
	c := b.connect(0, b.Conn())
	for i := range toldOthers {
		_, _ = c.verb(&history.Op{Verb: "LOCK", Keys: []string{fmt.Sprint("other", i)}, Block: -1, Lease: 5})
	}
	time.Sleep(second)
	c.Close(true)
}
