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

// Accounts are at most n users of whom there is something to tell, those first that hold most locks, then those with
// most clients.
func (u *Users) Accounts(n int) (all []Account) {
	u.mu.Lock()
	limits, now := u.limits.Load(), time.Now()
	for _, one := range u.byName {
		if a := one.account(limits, now); !a.blank() {
			all = append(all, a)
		}
	}
	u.mu.Unlock()
	slices.SortFunc(all, func(a, b Account) int {
		return cmp.Or(cmp.Compare(b.Locks.Now, a.Locks.Now), cmp.Compare(b.Clients.Now, a.Clients.Now),
			cmp.Compare(a.User+a.Address, b.User+b.Address))
	})
	return all[:min(n, len(all))]
}

// account is called with Users.mu held.
func (u *User) account(l *Limits, now time.Time) Account {
	sent, clients := int64(-1), l.Clients
	if u.name == "" {
		clients = 0 // no limit: see JoinNobody
	}
	if u.Paced() {
		sent = u.sent.count(now, 0)
	}
	return Account{User: u.name, Address: u.address,
		Clients:  Use{int64(u.clients), clients, u.refused.clients.Load()},
		Commands: Use{sent, l.Commands, u.refused.commands.Load()},
		Locks:    Use{u.locks.Load(), l.Locks, u.refused.locks.Load()},
		Waits:    Use{u.waits.Load(), l.Waits, u.refused.waits.Load()}}
}

// blank says that there is nothing to tell.
func (a Account) blank() bool {
	refused := a.Clients.Refused + a.Commands.Refused + a.Locks.Refused + a.Waits.Refused
	return a.Clients.Now+a.Locks.Now+a.Waits.Now+refused == 0
}

// perSecond counts what comes, second by second.
type perSecond struct {
	mu         sync.Mutex // a leaf; guards all below
	second     int64      // unix
	here, last int64      // in that second, and in the one before
}

// count adds n that come now, and returns how many came in the last whole second.
func (p *perSecond) count(now time.Time, n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch second := now.Unix(); second - p.second {
	case 0:
	case 1:
		p.second, p.here, p.last = second, 0, p.here
	default:
		p.second, p.here, p.last = second, 0, 0
	}
	p.here += n
	return p.last
}
