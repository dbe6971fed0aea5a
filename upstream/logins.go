package upstream

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	maxSpares    = 64   // connections that are kept logged in, one for each user and password
	maxPasswords = 4096 // users whose last password is known
)

// logins is what Node.connectMore has for clients whose password was right when they logged in and is not any more, such as a token that has
// expired: Redis lets them go on, and with a connection each they would need no other. It is guarded by auths.mu.
type logins struct {
	spares  *simplelru.LRU[Identity, *ownConn] // on which that user's AUTH was accepted; nothing was sent since
	present *simplelru.LRU[string, string]     // the password with which Redis last let a user in
}

func newLogins() (l logins) {
	l.spares, _ = simplelru.NewLRU[Identity, *ownConn](maxSpares, nil) // they fail for sizes below 1 only
	l.present, _ = simplelru.NewLRU[string, string](maxPasswords, nil)
	return l
}

// add notes that Redis has let id in on c, which is kept. It returns the one that was kept before, or nil: Redis may have closed it meanwhile.
func (l *logins) add(id Identity, c *ownConn) (before *ownConn) {
	l.present.Add(id.userName(), id.Password)
	as := id.login()
	if before, _ = l.spares.Peek(as); before == nil && l.spares.Len() == maxSpares {
		_, oldest, _ := l.spares.RemoveOldest()
		oldest.Close()
	}
	l.spares.Add(as, c)
	return before
}

func (l *logins) close() {
	for _, c := range l.spares.Values() {
		c.Close()
	}
	l.spares.Purge()
}

// takeLogin returns the password with which Redis last let id's user in, and the connection that is logged in as id, or nil.
func (a *auths) takeLogin(id Identity) (password string, c *ownConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	password, _ = a.logins.present.Get(id.userName())
	as := id.login()
	if c, _ = a.logins.spares.Peek(as); c != nil {
		a.logins.spares.Remove(as)
	}
	return password, c
}

// connectMore is Connect for a connection in addition to those that id's clients have. If Redis does not take their password any more, and they
// are still logged in, it is a connection that is, too, or one that is made with the user's newer password. spare says so: another could
// not be had by id's password.
func (n *Node) connectMore(ctx context.Context, id Identity) (conn net.Conn, term context.Context, spare bool, err error) {
	conn, term, err = Connect(ctx, n.target, id, n.opts.DialTimeout)
	if !refusesPassword(err) || !n.loggedIn(id) {
		return conn, term, false, err
	}
	password, c := n.auths.takeLogin(id)
	if c != nil && c.become(ctx, id, time.Now().Add(n.opts.DialTimeout)) == nil {
		conn, term = c.handOver()
		return conn, term, true, nil
	}
	c.Close()
	if password == id.Password {
		return nil, nil, false, err
	}
	newer := id
	newer.Password = password
	if conn, term, failed := Connect(ctx, n.target, newer, n.opts.DialTimeout); failed == nil {
		return conn, term, true, nil
	}
	return nil, nil, false, err
}

// login is what Redis is asked about when a client of id comes.
func (id Identity) login() Identity { return Identity{User: id.User, Password: id.Password} }

// loggedInAs says that Redis was asked about that login for id. An identity with a Secret is the proxy's own, not a client's.
func (id Identity) loggedInAs(login Identity) bool { return id.Secret == nil && id.login() == login }

// loggedIn says that a connection is there that clients with id's user and password share: when Redis has closed it they have
// to log in again.
func (n *Node) loggedIn(id Identity) (is bool) {
	login := id.login()
	n.eachLink(func(other Identity, l *link) {
		is = is || other.loggedInAs(login) && !l.dead.Load()
	})
	return is && id.Secret == nil
}

// become makes a connection that is logged in as id's user id's. It always asks Redis something, which shows that the connection is there.
func (c *ownConn) become(ctx context.Context, id Identity, deadline time.Time) error {
	c.SetDeadline(deadline)
	defer c.SetDeadline(time.Time{})
	b, n := Identity{DB: id.DB, Reads: id.Reads}.handshake(resp.AppendCommand(nil, "HELLO", strconv.Itoa(max(2, id.Proto))))
	return ask(ctx, c, b, n+1)
}

// handOver makes it a connection that is not the proxy's own any more.
func (c *ownConn) handOver() (net.Conn, context.Context) {
	c.left()
	c.gone.Do(func() { telemetry.UpstreamOwn.Add(-1) })
	return c.Conn, c.term
}
