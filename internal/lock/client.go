package lock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// ClientInfo describes a connection to others.
type ClientInfo struct {
	ID    int64            // number of the connection, unique in this process
	Addr  string           // the peer's address
	Name  func() string    // its CLIENT SETNAME name
	User  func() string    // the user as which it has authenticated
	Push  func(Loss)       // called with each loss at once; must not block
	Gone  func() bool      // says whether it has hung up, even if that has not been noticed yet; must not block
	Close func(why string) // closes it; must not block
}

// CloseHow says how a connection ended, which decides what becomes of its locks.
type CloseHow int

const (
	// Gone: the client hung up, reset the connection or said QUIT. Its own locks are released.
	Gone CloseHow = iota
	// Left: we closed first, or cannot tell whether the client lives. It may still be working: its locks expire.
	Left
)

// Client is one connection as the lock engine knows it. Its verbs are called by one goroutine at a time.
type Client struct {
	m       *Manager
	info    ClientInfo
	owner   string
	library atomic.Bool
	share   share

	// guarded by holds.mu
	holds  chain.Chain[*record]
	losses untold

	waits *waiter // guarded by lines.mu: what it stands in line for; nil: nothing
}

// NewClient makes the Client of a connection; Close ends it.
func (m *Manager) NewClient(ci ClientInfo) *Client {
	if ci.Name == nil {
		ci.Name = func() string { return "" }
	}
	if ci.User == nil {
		ci.User = func() string { return "" }
	}
	if ci.Push == nil {
		ci.Push = func(Loss) {}
	}
	if ci.Gone == nil {
		ci.Gone = func() bool { return false }
	}
	if ci.Close == nil {
		ci.Close = func(string) {}
	}
	return &Client{m: m, share: share{of: m.shares}, info: ci, owner: m.uuid + ":" + strconv.FormatInt(ci.ID, 10)}
}

// Owner is the connection as an owner, `<uuid>:<n>`.
func (c *Client) Owner() string { return c.owner }

// SetLibrary notes whether the connection has named a client library (CLIENT SETINFO lib-name): it may then be one of a
// pool.
func (c *Client) SetLibrary(named bool) { c.library.Store(named) }

// SetUser counts the client's locks for that user. It is called like a verb.
func (c *Client) SetUser(u User) {
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	c.share.move(u, c.holds.Len())
}

// Manager is the engine of which this is a client.
func (c *Client) Manager() *Manager { return c.m }

// Held is the number of locks that this connection has.
func (c *Client) Held() int {
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	return c.holds.Len()
}

// Waits is the lock that the client waits for, and for how long it has; "": none.
func (c *Client) Waits() (key string, waited time.Duration) { return c.m.lines.waitOf(c) }

// LeaveToExpire says that an earlier command of this client may still take effect. So what the client holds now is
// never released before its lease is over.
func (c *Client) LeaveToExpire() {
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	for rec := range c.holds.All() {
		c.m.holds.happen(rec, unsettled{})
	}
}

// Reset releases the connection's locks as if the client had gone, and forgets what it has lost. It waits until nobody
// else works on them, so that this client's next verbs come after the releases. Those at which an earlier verb is for
// longer, since its reply was lost, are given back when that is over.
func (c *Client) Reset() {
	hs := c.m.holds
	var all, busy []*record
	hs.mu.Lock()
	c.losses = untold{}
	for rec := range c.holds.All() {
		hs.happen(rec, notUnlocked{}) // from now on the connection has none
		all = append(all, rec)
	}
	hs.mu.Unlock()
	over := time.Now().Add(patience)
	for _, was := range all {
		switch rec, err := hs.enterHeld(context.Background(), was.id, time.Until(over), nil); {
		case err != nil:
			hs.apply(was, notUnlocked{unknown: true, final: hs.now()})
		case rec != nil:
			busy = append(busy, rec)
		}
	}
	c.m.giveBacks.releaseLater(busy, c.m.giveBacks.giveBackBusy)
}

// Close ends the connection's part in its locks. It does not wait for the releases: Run does.
func (c *Client) Close(how CloseHow) {
	own := c.m.holds.detach(c, how)
	if how == Gone {
		c.m.giveBacks.releaseLater(own, func(rec *record) { c.m.giveBacks.giveBack(rec.id) })
	}
}

// detach makes a connection's holds nobody's. Those of a client that has not gone are left to run out.
func (hs *holds) detach(c *Client, how CloseHow) (own []*record) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for rec := range c.holds.All() {
		c.holds.Drop(&rec.ofClient)
		c.share.leave()
		rec.client = nil
		own = append(own, rec)
		if how == Left {
			hs.leaveToExpire(rec)
		}
	}
	return own
}

// id is the side of a lock that a verb of this client means: of the owner whom it names, or of the connection ("").
func (c *Client) id(k Kind, db int, key, owner string) lockstore.ID {
	return lockstore.ID{DB: db, Key: key, Owner: cmp.Or(owner, c.owner), Kind: k}
}

// patience is how long a verb waits for others that are at work on its lock, and for an unknown outcome to become
// known.
const patience = 5 * time.Second

// explained is the error of a verb, which says so if the reply was lost.
func explained(verb string, err error) error {
	if !lockstore.Unknown(err) {
		return err
	}
	return &Error{Code: "ERR",
		Text: fmt.Sprintf("the reply to this %s was lost and Redis cannot be asked what became of it: %v", verb, err)}
}

// sleep waits for d, or less when ctx ends or the engine stops; it says whether d passed.
func (l *life) sleep(ctx context.Context, d time.Duration) bool {
	return retry.Sleep(ctx, d, l.ended)
}
