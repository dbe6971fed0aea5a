package share

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Account is what one user has of its share.
type Account struct {
	User     string `json:"user"`    // "": those at Address who have not logged in
	Address  string `json:"address"` // "": those of User, wherever they are
	Clients  Use    `json:"clients"`
	Commands Use    `json:"commands"` // of the last whole second
	Locks    Use    `json:"locks"`    // held, or asked for
	Waits    Use    `json:"waits"`
}

// Use is what there is of one kind.
type Use struct {
	Now     int64 `json:"now"`     // -1: it is not counted, since there is no limit
	Max     int   `json:"max"`     // 0: no limit
	Refused int64 `json:"refused"` // how often the limit was reached, since the user was first seen
}

// Accounts are at most n users of whom there is something to tell, those first that hold most locks, then those that
// were refused most.
func (u *Users) Accounts(n int) (all []Account) {
	u.mu.Lock()
	limits, now := u.limits.Load(), time.Now().Unix()
	for _, one := range u.byName {
		if a := one.account(limits, now); a.weight() > 0 {
			all = append(all, a)
		}
	}
	u.mu.Unlock()
	slices.SortFunc(all, func(a, b Account) int {
		return cmp.Or(cmp.Compare(b.Locks.Now, a.Locks.Now), cmp.Compare(b.refused(), a.refused()),
			cmp.Compare(b.weight(), a.weight()), cmp.Compare(a.User+a.Address, b.User+b.Address))
	})
	return all[:min(n, len(all))]
}

// account is called with Users.mu held.
func (u *User) account(l *Limits, now int64) Account {
	sent := int64(-1)
	if u.Paced() {
		sent = u.sent.before(now)
	}
	use := func(of limit, now int64, most int) Use { return Use{now, most, u.refused[of].Load()} }
	return Account{User: u.name, Address: u.address, Clients: use(ofClients, int64(u.clients), l.Clients),
		Commands: use(ofCommands, sent, l.Commands), Locks: use(ofLocks, u.locks.Load(), l.Locks),
		Waits: use(ofWaits, u.waits.Load(), l.Waits)}
}

// refused is how often any limit was reached.
func (a Account) refused() int64 {
	return a.Clients.Refused + a.Commands.Refused + a.Locks.Refused + a.Waits.Refused
}

// weight is 0 of a user of whom there is nothing to tell.
func (a Account) weight() int64 { return a.Clients.Now + a.Locks.Now + a.Waits.Now + a.refused() }

// perSecond counts what comes, second by second.
type perSecond struct {
	mu         sync.Mutex // a leaf; guards all below
	second     int64      // unix
	here, last int64      // in that second, and in the one before
}

// add counts one more at a second.
func (p *perSecond) add(second int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(second)
	p.here++
}

// before is how many came in the second before this one.
func (p *perSecond) before(second int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(second)
	return p.last
}

// turn begins another second. mu is held.
func (p *perSecond) turn(second int64) {
	switch second - p.second {
	case 0:
		return
	case 1:
		p.last = p.here
	default:
		p.last = 0
	}
	p.here, p.second = 0, second
}
