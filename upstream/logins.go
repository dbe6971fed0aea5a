package upstream

import (
	"context"
	"strconv"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	maxSpares    = 64   // connections that are kept logged in, one for each user and password
	maxPasswords = 4096 // users whose last password is known
)

// logins is what Node.connectMore has for clients whose password was right when they logged in and is not any more,
// such as a token that has expired: Redis lets them go on, and with a connection each they would need no other. It is
// guarded by auths.mu.
type logins struct {
	spares  *simplelru.LRU[Identity, *termConn] // on which that user's AUTH was accepted; nothing was sent since
	present *simplelru.LRU[string, string]      // the password with which Redis last let a user in
}

func newLogins() (l logins) {
	l.spares, _ = simplelru.NewLRU[Identity, *termConn](maxSpares, nil) // they fail for sizes below 1 only
	l.present, _ = simplelru.NewLRU[string, string](maxPasswords, nil)
	return l
}

// addLogin notes that Redis has let id in on c, which is kept. It returns the one that was kept before, or nil: Redis may
// have closed it meanwhile.
func (l *logins) addLogin(id Identity, c *termConn) (before *termConn) {
	l.present.Add(id.userName(), id.Password)
	as := id.login()
	if before, _ = l.spares.Peek(as); before == nil && l.spares.Len() == maxSpares {
		_, oldest, _ := l.spares.RemoveOldest()
		oldest.Close()
	}
	l.spares.Add(as, c)
	return before
}

func (l *logins) closeLogins() {
	for _, c := range l.spares.Values() {
		c.Close()
	}
	l.spares.Purge()
}

// takeLogin returns the password with which Redis last let id's user in, and the connection that is logged in as id, or
// nil.
func (a *auths) takeLogin(id Identity) (password string, c *termConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	password, _ = a.logins.present.Get(id.userName())
	as := id.login()
	if c, _ = a.logins.spares.Peek(as); c != nil {
		a.logins.spares.Remove(as)
	}
	return password, c
}

// connectMore is connect for a connection in addition to those that id's clients have. If Redis does not take their
// password any more, and they are still logged in, it is a connection that is, too, or one that is made with the user's
// newer password. spare says so: another could not be had by id's password.
func (n *Node) connectMore(ctx context.Context, id Identity, last ...step) (c *termConn, spare bool, err error) {
	c, err = connect(ctx, n.target, id, n.opts.DialTimeout, last...)
	if !refusesPassword(err) || !n.loggedIn(id) {
		return c, false, err
	}
	password, c := n.auths.takeLogin(id)
	if c != nil && c.become(ctx, id, time.Now().Add(n.opts.DialTimeout), last) == nil {
		c.countOwn(false)
		return c, true, nil
	}
	c.Close()
	if password == id.Password {
		return nil, false, err
	}
	newer := id
	newer.Password = password
	if c, failed := connect(ctx, n.target, newer, n.opts.DialTimeout, last...); failed == nil {
		return c, true, nil
	}
	return nil, false, err
}

// login is what Redis is asked about when a client of id comes.
func (id Identity) login() Identity { return Identity{User: id.User, Password: id.Password} }

// loggedIn says that a connection is there that clients with id's user and password share: when Redis has closed it
// they have to log in again. An identity with a Secret is the proxy's own, not a client's.
func (n *Node) loggedIn(id Identity) (is bool) {
	n.eachLink(func(other Identity, l *link) {
		other.DB, other.Proto, other.For = id.DB, id.Proto, id.For
		is = is || other == id && !l.dead.Load()
	})
	return is && id.Secret == nil
}

// become makes a connection that is logged in as id's user id's. It always asks Redis something, which shows that the
// connection is there.
func (c *termConn) become(ctx context.Context, id Identity, deadline time.Time, last []step) error {
	hello := step{words: []string{"HELLO", strconv.Itoa(max(2, id.Proto))}}
	return perform(ctx, c, deadline, []step{hello}, id.settings(), last)
}
