package lock

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/share"
)

// ClientInfo describes a connection to others.
type ClientInfo struct {
	ID   int64         // number of the connection, unique in this process
	Addr string        // the peer's address
	Name func() string // its CLIENT SETNAME name
	User func() string // who it has authenticated as
	Push func(Loss)    // called with each loss at once; must not block
	Gone func() bool   // says whether it has hung up, even if that has not been noticed yet; must not block
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
	share   share.Client

	losses      ownLosses // what it lost, until it is taken again
	namedLosses *account  // what named owners lost that had it through this connection; apart from the client, which is not to be kept for as long
	finished    *account  // what it has given back in a named owner's name

	holds chain.Chain[*hold] // guarded by holds.mu
	over  bool               // guarded by holds.mu: it has closed
	waits *waiter            // guarded by lines.mu: what it stands in line for; nil: nothing
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
	return &Client{m: m, info: ci, owner: m.uuid + ":" + strconv.FormatInt(ci.ID, 10), namedLosses: &account{}, finished: &account{}}
}

// Owner is the connection as an owner, `<uuid>:<n>`.
func (c *Client) Owner() string { return c.owner }

// SetLibrary notes whether the connection has named a client library (CLIENT SETINFO lib-name): it may then be one of a pool.
func (c *Client) SetLibrary(named bool) { c.library.Store(named) }

// SetUser counts the client's locks for that user. It is called like a verb.
func (c *Client) SetUser(u *share.User) { c.m.holds.countFor(c, u) }

func (hs *holds) countFor(c *Client, u *share.User) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	c.share.Move(u, c.holds.Len())
}

// Info is Manager.Info.
func (c *Client) Info(ctx context.Context, db int, key string) (Info, error) {
	return c.m.Info(ctx, db, key)
}

// List is Manager.List.
func (c *Client) List(owner, pattern string) []Entry { return c.m.List(owner, pattern) }

// Held is the number of holds that this connection keeps.
func (c *Client) Held() int { return c.m.holds.keptBy(c) }

func (hs *holds) keptBy(c *Client) int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return c.holds.Len()
}

// Waits is the lock that the client waits for, and for how long it has; "": none.
func (c *Client) Waits() (key string, waited time.Duration) { return c.m.lines.waitOf(c) }

func (ls *lines) waitOf(c *Client) (key string, waited time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w := c.waits; w != nil {
		return w.id.Key, time.Since(w.since)
	}
	return "", 0
}

// Doubt says that an earlier command of this client may still take effect. So what the client holds now is never
// released before its lease is over.
func (c *Client) Doubt() { c.m.holds.doubt(c) }

func (hs *holds) doubt(c *Client) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h := range c.holds.All() {
		h.doubt = true
	}
}

// Reset releases the connection's own locks as if the client had gone; those of named owners stay registered to it. It waits until nobody
// else works on them, so that this client's next verbs come after the releases. Those at which an earlier verb is for longer, since its reply was
// lost, are given back when that is over, unless the client has taken them again.
func (c *Client) Reset() {
	m := c.m
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var busy, later []*hold
	for _, was := range c.take(false) {
		h, err := m.holds.enter(limited, was.id, false)
		if err != nil {
			if doubt := m.holds.leaveToExpire(was); !doubt {
				later = append(later, was)
			}
			continue
		}
		m.holds.noteReset(h)
		busy = append(busy, h)
	}
	m.giveBacks.releaseLater(busy, 0, m.giveBacks.giveBack)
	m.giveBacks.releaseLater(later, 0, m.giveBacks.enterAndSurrender)
}

// Close ends the connection's part in its locks. It does not wait for the releases: Run does.
func (c *Client) Close(how CloseHow) {
	own := c.take(true)
	defer c.bequeath()
	if how == Gone {
		c.m.giveBacks.releaseLater(own, c.m.opts.Grace, c.m.giveBacks.enterAndGiveBack)
		return
	}
	for _, h := range own {
		c.m.holds.leaveToExpire(h)
	}
}

// noteReset notes that RESET gives a hold back.
func (hs *holds) noteReset(h *hold) {
	hs.mu.Lock()
	h.leaving = true
	hs.mu.Unlock()
}

// leaveToExpire ends a hold here, and lets it run out in Redis. doubt is the hold's.
func (hs *holds) leaveToExpire(h *hold) (doubt bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.count > 0 {
		hs.vacate(h, h.deadline)
		hs.end(h)
	}
	return h.doubt
}

// bequeath has what is remembered of the client in named owners' names count for its user.
func (c *Client) bequeath() {
	user := c.info.User()
	c.m.namedLosses.closes(&c.m.namedLosses.mu, c.namedLosses, user)
	c.m.done.closes(&c.m.done.mu, c.finished, user)
}

// take picks the connection's own holds, which are to end. On the last call those of named owners lose the connection that kept them
// renewed: they are renewed for Options.OwnerGrace longer and then expire, unless their owner is heard of again.
func (c *Client) take(last bool) (own []*hold) {
	own, left := c.m.holds.ending(c, last)
	if left > 0 {
		c.m.log.Info("a connection has closed that kept locks of named owners: they end with their leases unless their owners are named again",
			"locks", left, "client", c.info.Addr, "renewed_for", c.m.opts.OwnerGrace)
	}
	return own
}

// ending is the part of Client.take under mu, in which nothing is logged; left is how many of the named holds were renewed.
func (hs *holds) ending(c *Client, last bool) (own []*hold, left int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	c.over = c.over || last
	for h := range c.holds.All() {
		switch {
		case !h.named:
			own = append(own, h)
		case last:
			if h.watched {
				left++
			}
			hs.leaveOwner(h)
		}
	}
	return own, left
}

// leaveOwner notes that the connection of a named owner's hold has gone. mu is held.
func (hs *holds) leaveOwner(h *hold) {
	hs.adopt(h, nil)
	h.renewUntil = time.Now().Add(hs.opts.OwnerGrace)
	if hs.opts.OwnerGrace <= 0 {
		hs.runOut(h)
	}
}

// abandoned says whether a named owner's connection has gone for longer than Options.OwnerGrace. holds.mu is held.
func (h *hold) abandoned(now time.Time) bool {
	return h.named && h.client == nil && !now.Before(h.renewUntil)
}

// id is the hold that a verb of this client means: that of the owner whom it names, or of the connection.
func (c *Client) id(k Kind, db int, key, owner string) (id lockstore.ID, named bool) {
	if owner == "" {
		return lockstore.ID{DB: db, Key: key, Owner: c.owner, Kind: k}, false
	}
	return lockstore.ID{DB: db, Key: key, Owner: owner, Kind: k}, true
}

// patience is how long a verb waits for an unknown outcome to become known before the client gets an error and the
// engine goes on alone.
const patience = 5 * time.Second

func outcomeUnknown(verb string, cause error) error {
	return &Error{Code: "ERR", Text: fmt.Sprintf("the reply to this %s was lost and Redis cannot be asked what became of it: %v", verb, cause)}
}

// newRegistration is the registration of one LOCK or RENEW, which no other one has.
func (c *Client) newRegistration() lockstore.Registration {
	return lockstore.Registration(c.owner + ":" + strconv.FormatUint(c.m.requests.Add(1), 36))
}

// sleep waits for d, or less when ctx ends or the engine stops; it says whether d passed.
func (l *life) sleep(ctx context.Context, d time.Duration) bool {
	return retry.Sleep(ctx, d, l.ended)
}
