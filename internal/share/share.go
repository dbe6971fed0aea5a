// Package share bounds what the clients of one user may take together: connections, commands, locks and waits.
package share

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits are those of each user; 0 is no limit.
type Limits struct {
	Clients  int // connections that have logged in as the user
	Commands int // a second; a second's worth may come at once
	Locks    int // held by the user's connections, or asked for
	Waits    int // lock verbs that wait
}

// Error says that a user is over a limit.
type Error struct{ What string }

func (e *Error) Error() string { return fmt.Sprintf("max number of %s per user reached", e.What) }

var (
	errClients  = &Error{"clients"}
	errCommands = &Error{"commands a second"}
	errLocks    = &Error{"locks"}
	errWaits    = &Error{"waiting locks"}
)

const (
	idleKept = 1024        // users without a client that are remembered at least
	tellPer  = time.Minute // how often the log says that a user is over a limit
)

// Users are all users that have clients, or had. The zero value is not usable: New makes it.
type Users struct {
	log    *slog.Logger
	limits atomic.Pointer[Limits]

	mu     sync.Mutex // guards all below, and User.clients
	byName map[string]*User
}

// New makes the accounts of nobody yet.
func New(l Limits, log *slog.Logger) *Users {
	u := &Users{log: log, byName: map[string]*User{}}
	u.limits.Store(&l)
	return u
}

// Set has other limits hold from now on. Who is over one already keeps what he has.
func (u *Users) Set(l Limits) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limits.Store(&l)
	for _, one := range u.byName {
		one.setRate(l.Commands)
	}
}

// User is one user's account. Any goroutine may use it.
type User struct {
	of      *Users
	name    string // "": the clients have not logged in
	address string // theirs
	clients int    // Users.mu guards it

	pace  atomic.Pointer[rate.Limiter] // nil: no limit
	locks atomic.Int64                 // held or asked for
	waits atomic.Int64
	told  atomic.Int64 // unix nanoseconds of the last word in the log

	sent    perSecond // commands, counted while there is a limit
	refused struct{ clients, commands, locks, waits atomic.Int64 }
}

// Join counts a client for a user, whose name is not empty.
func (u *Users) Join(name string) (*User, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.find(name, "")
	if reached(u.limits.Load().Clients, int64(one.clients)) {
		return nil, one.over(errClients, &one.refused.clients)
	}
	one.clients++
	return one, nil
}

// JoinNobody counts a client that has not logged in. Those of one address together are one user without a name, whose
// clients are not limited. So strangers take nothing from the clients of other addresses that are about to log in.
func (u *Users) JoinNobody(address string) *User {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.find("", address)
	one.clients++
	return one
}

// find is the account of a user, or of those at an address who have not logged in. mu is held.
func (u *Users) find(name, address string) *User {
	key := name + "\x00" + address
	one := u.byName[key]
	if one == nil {
		if len(u.byName) >= 2*idleKept {
			u.forgetIdle()
		}
		one = &User{of: u, name: name, address: address}
		one.setRate(u.limits.Load().Commands)
		u.byName[key] = one
	}
	return one
}

// Leave undoes a Join. The account stays for a while, so that a user has not a second's worth of commands again with
// each connection.
func (u *Users) Leave(one *User) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one.clients--
}

// forgetIdle drops accounts that are as good as new. mu is held.
func (u *Users) forgetIdle() {
	maps.DeleteFunc(u.byName, func(_ string, one *User) bool {
		return one.clients == 0 && one.locks.Load() == 0 && one.rested()
	})
}

// rested says that the user has a whole second's worth of commands.
func (u *User) rested() bool {
	pace := u.pace.Load()
	return pace == nil || pace.Tokens() >= float64(pace.Burst())
}

// Name is what Join was called with; "": the client has not logged in.
func (u *User) Name() string { return u.name }

// setRate is called with Users.mu held.
func (u *User) setRate(perSecond int) {
	switch pace := u.pace.Load(); {
	case perSecond <= 0:
		u.pace.Store(nil)
	case pace == nil:
		u.pace.Store(rate.NewLimiter(rate.Limit(perSecond), perSecond))
	default:
		pace.SetLimit(rate.Limit(perSecond))
		pace.SetBurst(perSecond)
	}
}

// Paced says that the user may send only so many commands in a second.
func (u *User) Paced() bool { return u.pace.Load() != nil }

// Command takes one command's place in the present second; the error says that there is none.
func (u *User) Command() error {
	pace := u.pace.Load()
	if pace == nil {
		return nil
	}
	if !pace.Allow() {
		return u.over(errCommands, &u.refused.commands)
	}
	u.sent.count(time.Now(), 1)
	return nil
}

// Owe takes a place for a command that is not refused, in a later second if the present one has none. It returns how
// long it is until then: the command waits for so long, behind all others of its kind.
func (u *User) Owe() time.Duration {
	if pace := u.pace.Load(); pace != nil {
		u.sent.count(time.Now(), 1)
		return pace.Reserve().Delay()
	}
	return 0
}

// Ask counts a lock that is asked for; unless there is an error, answered is to be called when there is an answer.
func (u *User) Ask() error {
	return u.draw(&u.locks, u.of.limits.Load().Locks, errLocks, &u.refused.locks)
}

// answered undoes an Ask.
func (u *User) answered() { u.locks.Add(-1) }

// hold counts locks that the user's connections hold now, or with n below 0 hold no more. Those of nobody count for
// nothing.
func (u *User) hold(n int) {
	if u != nil {
		u.locks.Add(int64(n))
	}
}

// Wait counts a lock verb that waits; unless there is an error, waited is to be called at its end.
func (u *User) Wait() error {
	return u.draw(&u.waits, u.of.limits.Load().Waits, errWaits, &u.refused.waits)
}

// waited undoes a Wait.
func (u *User) waited() { u.waits.Add(-1) }

// draw counts one more of what the user may have so many of.
func (u *User) draw(count *atomic.Int64, most int, full *Error, refused *atomic.Int64) error {
	if reached(most, count.Add(1)-1) {
		count.Add(-1)
		return u.over(full, refused)
	}
	return nil
}

// reached says whether there are as many as may be; 0 is no limit.
func reached(most int, n int64) bool { return most > 0 && n >= int64(most) }

// over is err, which is counted, and of which the log says something from time to time.
func (u *User) over(err *Error, refused *atomic.Int64) error {
	refused.Add(1)
	now, last := time.Now().UnixNano(), u.told.Load()
	if now-last >= int64(tellPer) && u.told.CompareAndSwap(last, now) {
		name := u.name
		if name == "" {
			name = "(not logged in) " + u.address
		}
		u.of.log.Warn("a user is over its share", "user", name, "said", err.Error())
	}
	return err
}
