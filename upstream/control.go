package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/checked"
)

const (
	controlPing    = time.Second     // after so long without progress a connection gets a PING
	subscriberPing = 3 * time.Second // the same for subscriptions: waiters also ask Redis now and then
	controlTimeout = 5 * time.Second // a connection without a PONG for so long is given up
	controlBuffer  = 64 << 10        // read and write, each; rueidis takes 512 KiB by itself
	controlRing    = 10              // 2^10 calls under way; further callers wait even when their ctx ends
	subscriberRing = 4               // 2^4: one goroutine subscribes, and a ring of 1024 takes 4096 allocations
	waiterRing     = 2               // 2^2: one batch at a time
	waiterBuffer   = 4 << 10         // a batch is two commands, of which one may be a script's source
	waiterKept     = 10 * time.Second
)

// WaitersMost is how many batches with WAIT may be under way in a database, each on a connection of its own; further
// ones wait, without an end.
const WaitersMost = 64

// ControlOptions are a Control's settings; zero fields stand for the defaults.
type ControlOptions struct {
	DialTimeout time.Duration // DefaultDialTimeout; for connection and TLS together
	Logger      *slog.Logger  // nil: slog.Default()
}

// Control is the proxy's own access to Redis, as the service account: pipes for the scripts of LOCK and UNLOCK (Ints),
// rueidis clients for all other scripts, renewals, topology and pub/sub. No client's command ever goes this way.
// Nothing is ever sent twice, because only the caller knows what a lost reply means.
type Control struct {
	target  Target
	opts    ControlOptions
	scripts scripts

	mu      sync.Mutex // guards all below
	closed  bool
	clients map[controlUse]*controlClient // those of databases that Redis has, and of 0
}

// controlUse is what a client is for: commands in a database, batches with WAIT there or, in database 0, subscriptions.
type controlUse struct {
	db         int
	subscribes bool
	waits      bool
}

// controlClient is made once, by the first who asks; the others wait for it.
type controlClient struct {
	made   chan struct{} // closed when it is made; a synctest bubble cannot wait for a mutex
	client rueidis.Client
	err    error
}

// NewControl returns a Control that connects when it is first asked to.
func NewControl(t Target, o ControlOptions) *Control {
	if o.DialTimeout <= 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Control{
		target: t, opts: o, clients: map[controlUse]*controlClient{},
		scripts: scripts{
			node:  NewNode(t, NodeOptions{DialTimeout: o.DialTimeout, Logger: o.Logger}),
			calls: sync.Pool{New: func() any { return new(scriptCall) }},
		},
	}
}

// Client returns the client for commands and scripts in database db. When Redis
// is down, that of database 0 works all the same, and connects as soon as a call
// finds Redis up; until then calls fail with an error for which NotSent is true.
// A client of another database is kept only once it has had a connection, so that
// who asks about any number of databases leaves nothing behind here. Until then
// Client returns the error: Redis' own, or one for which NotSent is true, as it is
// when the Control is closed.
//
// A call whose ctx ends returns at once but is still carried out. Blocking
// commands do not belong here.
func (c *Control) Client(db int) (rueidis.Client, error) { return c.client(controlUse{db: db}) }

// Waiter returns the client for Dedicate and WAIT in database db, whose calls have no ctx that ends: WAIT answers for the
// writes of its own connection. There are WaitersMost, and one more that asks
// whether Redis is there; they are small, and every ten seconds those that are not in use are closed.
func (c *Control) Waiter(db int) (rueidis.Client, error) {
	return c.client(controlUse{db: db, waits: true})
}

// Subscriber returns the client for Dedicate and SetPubSubHooks, on connections
// of its own, because a slow hook holds up everything behind it. The client
// never subscribes again by itself: when the hooks' channel closes, the caller
// dedicates anew, subscribes, and looks at what it may have missed.
func (c *Control) Subscriber() (rueidis.Client, error) {
	return c.client(controlUse{subscribes: true})
}

func (c *Control) client(use controlUse) (rueidis.Client, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errControlClosed
	}
	cc := c.clients[use]
	first := cc == nil
	if first {
		cc = &controlClient{made: make(chan struct{})}
		c.clients[use] = cc
	}
	c.mu.Unlock()
	if first {
		c.make(cc, use)
	}
	<-cc.made
	return cc.client, cc.err
}

// make makes cc's client, or gives the error for those who ask for it.
func (c *Control) make(cc *controlClient, use controlUse) {
	defer close(cc.made)
	client, err := rueidis.NewClient(c.options(use))
	switch {
	case client == nil: // an option rueidis does not take
		cc.err = err
	case err != nil && use.db != 0:
		client.Close()
		cc.err = c.dropClient(use, err)
	case err != nil:
		at := c.target.String()
		c.opts.Logger.Warn("no control connection to Redis yet", "upstream", at, "db", use.db, "error", err)
		fallthrough
	default:
		cc.client = client
	}
}

// dropClient forgets the client of a database to which there is no connection, and returns the error for those who asked for
// it.
func (c *Control) dropClient(use controlUse, why error) error {
	c.mu.Lock()
	delete(c.clients, use)
	c.mu.Unlock()
	if _, said := rueidis.IsRedisErr(why); said || NotSent(why) {
		return why
	}
	return &unsentError{cause: why} // no call has been made
}

func (c *Control) options(use controlUse) rueidis.ClientOption {
	ring, ping, buffer := controlRing, controlPing, controlBuffer
	switch {
	case use.subscribes:
		ring, ping = subscriberRing, subscriberPing
	case use.waits:
		ring, buffer = waiterRing, waiterBuffer
	}
	return rueidis.ClientOption{
		InitAddress:       []string{c.target.Addr}, // with Sentinels dial finds the address
		AuthCredentialsFn: c.target.Service().Credentials,
		SelectDB:          use.db,
		ClientName:        "lockproxy", // a part of HELLO, so it needs no permission
		ClientSetInfo:     rueidis.DisableClientSetInfo,
		DialCtxFn:         c.dial,
		Dialer:            net.Dialer{Timeout: c.opts.DialTimeout, KeepAlive: ping},
		ConnWriteTimeout:  controlTimeout,
		ForceSingleClient: true, // the only kind that outlives a Redis that is down at first
		DisableRetry:      true,
		DisableCache:      true,
		// A ctx that ends must not end the connection. Those that are given back, whose ctx never ends, would each time
		// unsubscribe and discard what they have not, and need rights for that.
		AlwaysPipelining:    !use.waits,
		PipelineMultiplex:   -1, // one connection keeps calls in order
		RingScaleEachConn:   ring,
		ReadBufferEachConn:  buffer,
		WriteBufferEachConn: buffer,
		BlockingPoolSize:    WaitersMost,
		BlockingPoolCleanup: waiterKept,
	}
}

// OnSwitch makes the Resolver call hook whenever another Redis is about to become the master, before any connection to
// it is made. hook must not block. Without a Resolver it is never called.
func (c *Control) OnSwitch(hook func()) {
	if c.target.Resolver != nil {
		c.target.Resolver.OnSwitch(hook)
	}
}

// Close closes all clients. Calls under way end with an error within about a
// second; for those that find the client closed NotSent is false, because
// rueidis says the same to calls it has sent.
func (c *Control) Close() {
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Values(c.clients))
	c.mu.Unlock()
	c.scripts.node.Close()
	for _, cc := range all {
		<-cc.made
		if cc.client != nil {
			cc.client.Close()
		}
	}
}

// dial is rueidis' way to Redis. rueidis shares one attempt between all callers
// but makes it with the ctx of the first, whose end must not fail the others.
func (c *Control) dial(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	conn, err := dialTarget(context.Background(), c.target, c.opts.DialTimeout)
	if err != nil {
		return nil, &unsentError{cause: err}
	}
	if err := proveNode(context.Background(), conn.asOwn(), c.target, c.opts.DialTimeout); err != nil {
		conn.Close()
		return nil, &unsentError{cause: err}
	}
	return &controlConn{Conn: checked.New(conn), of: conn}, nil
}

var errControlClosed = error(&unsentError{cause: errors.New("control connection closed")})
