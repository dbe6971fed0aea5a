package upstream

import (
	"slices"
	"time"
)

const (
	idleFor  = 30 * time.Second // how long a connection that serves one client at a time waits for its next one
	mostIdle = 64               // how many of a node's connections that nobody uses are kept, over all identities
)

// kept are a node's connections. The node's mu guards them.
type kept struct {
	shared map[Identity]*Pipe // those that many clients share
	alone  map[keeps]struct{} // all others
	idle   []keeps            // of all, those that nobody uses, the oldest first
}

// keeps is a Pipe or a Dedicated.
type keeps interface {
	fits(id Identity, kind pipeKind) bool // it is connected, and id may have it for that
	its() *booking
	end() // closes it
}

// booking is what a connection has at its node.
type booking struct {
	share  *share      // of the node's Budget
	unused *time.Timer // drops it when nobody has used it for idleFor; nil: it stays
}

func (p *booking) its() *booking { return p }

// find takes an idle connection for id, the one that was used most recently; nil: there is none.
func (k *kept) find(id Identity, kind pipeKind) keeps {
	for _, c := range slices.Backward(k.idle) {
		if c.fits(id, kind) {
			k.taken(c)
			return c
		}
	}
	return nil
}

// rest keeps a connection for its next user, and drops the oldest when there are too many.
func (k *kept) rest(c keeps) {
	if len(k.idle) == mostIdle {
		k.dropUnused(k.idle[0])
	}
	k.idle = append(k.idle, c)
	if t := c.its().unused; t != nil {
		t.Reset(idleFor)
	}
}

// taken notes that a connection is idle no more.
func (k *kept) taken(c keeps) {
	if i := slices.Index(k.idle, c); i >= 0 {
		k.idle = slices.Delete(k.idle, i, i+1)
	}
}

// forgetConn forgets a connection. A newer shared pipe of the same identity stays.
func (k *kept) forgetConn(c keeps) {
	if p, is := c.(*Pipe); is && k.shared[p.id] == p {
		delete(k.shared, p.id)
	}
	delete(k.alone, c)
	k.taken(c)
}

// dropUnused closes a connection that nobody uses, and gives its room in the Budget back at once.
func (k *kept) dropUnused(c keeps) {
	k.forgetConn(c)
	c.end()
	c.its().share.give()
}

// dropOldest drops the one that has been idle for longest of those for which which is true, and says whether there was
// one.
func (k *kept) dropOldest(which func(keeps) bool) bool {
	at := slices.IndexFunc(k.idle, which)
	if at >= 0 {
		k.dropUnused(k.idle[at])
	}
	return at >= 0
}

// eachLink calls do for the connection that each pipe has at present.
func (k *kept) eachLink(do func(id Identity, l *link)) {
	see := func(p *Pipe) {
		if l := p.link.Load(); l != nil {
			do(p.id, l)
		}
	}
	for _, p := range k.shared {
		see(p)
	}
	for c := range k.alone {
		if p, is := c.(*Pipe); is {
			see(p)
		}
	}
}
