package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Target is one Redis address and the service account to use there.
type Target struct {
	Network string // "tcp" or "unix"
	Addr    string // host:port, or the socket's path
	User    string
	// Password with User "" belongs to Redis' default user.
	Password string
	Secret   Secret // unless nil, it has the password instead
	DB       int
	TLS      *tls.Config // nil: plain
	Files    Renewer     // nil: TLS is used as it is

	Dialer Dialer // makes the connections; nil: over the network

	Sentinels *Sentinels // nil: Addr is the address; else it is what they say
	Resolver  Resolver   // nil: Addr always leads to the same Redis; else FollowAddress or sentinel.Follow has set it

	// NodeID is the id of the cluster's node that Addr is the address of: connections that lead elsewhere are refused
	// with an *AnotherNodeError. "": any server is right.
	NodeID string

	// MinUptime is how long a server must have been up to be connected to; else the error is a *YoungError. It must
	// also be a master. 0: neither is asked.
	MinUptime time.Duration
	// Vetter, if MinUptime is set, is told the run id of each server that is about to be used, "" when none could be
	// reached. Its error keeps the server from being used. nil: none is refused.
	Vetter func(runID string) error
}

// Dialer connects to addresses, TLS aside, which goes on top. Its calls come from several goroutines at once.
type Dialer interface {
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// Resolver knows which of several servers a Target means at present. Its methods are called from several goroutines at
// once.
type Resolver interface {
	// Dial connects to the present server. term ends when the connection must no longer be used because another server
	// has taken its place; its cause says so.
	Dial(ctx context.Context, timeout time.Duration) (conn net.Conn, term context.Context, err error)
	// Present is the present server's address, "" when it is not known yet, and how often it has changed.
	Present() (addr string, switches int64)
	// Moved returns a channel that is closed when another server takes the place of the present one, or a first one is
	// known.
	Moved() <-chan struct{}
	// OnSwitch makes it call hook whenever another server is about to take that place, before anybody can reach that
	// server. hook must not block.
	OnSwitch(hook func())
	// Check makes it ask again soon which server it is, because the one of that term, which is Dial's, refused a write.
	Check(term context.Context)
}

// Renewer has certificates and authorities that change while the proxy runs.
type Renewer interface {
	// Client returns base, unchanged itself, with what a new connection is to use.
	Client(base *tls.Config) *tls.Config
}

// Sentinels say which Redis a Target means: the present master of that name.
type Sentinels struct {
	Addrs  []string // host:port of each
	Master string   // the name they know it by
	// User and Password are for the Sentinels themselves. Password with User "" belongs to their default user.
	User, Password string
	Secret         Secret // unless nil, it has the password instead
}

// Account is who the proxy is at the Sentinels.
func (s *Sentinels) Account() Identity {
	return Identity{User: s.User, Password: s.Password, Secret: s.Secret}
}

// String is the address as ParseURL reads it, without the password.
func (t Target) String() string {
	db := ""
	if t.DB != 0 {
		db = strconv.Itoa(t.DB)
	}
	switch {
	case t.Network == "unix":
		u := url.URL{Path: t.Addr}
		return t.printed("unix", "", u.EscapedPath(), "?db=", db)
	case t.Sentinels != nil:
		hosts, master := strings.Join(t.Sentinels.Addrs, ","), "/"+url.PathEscape(t.Sentinels.Master)
		return t.printed("redis+sentinel", hosts, master, "/", db)
	}
	return t.printed("redis", t.Addr, "", "/", db)
}

// printed puts an address together. begin is written before db, if that is not "".
func (t Target) printed(scheme, hosts, path, begin, db string) string {
	if t.TLS != nil {
		scheme = strings.Replace(scheme, "redis", "rediss", 1)
	}
	account := ""
	if t.User != "" {
		account = url.User(t.User).String() + "@"
	}
	if db != "" {
		db = begin + db
	}
	return scheme + "://" + account + hosts + path + db
}

// at is the Target of the server at addr, whose certificate is for addr's host.
func (t Target) at(addr string) Target { return ClusterTarget{Node: t}.At(addr, "") }

// Service is the identity of the service account, in database 0.
func (t Target) Service() Identity {
	return Identity{User: t.User, Password: t.Password, Secret: t.Secret, Proto: 2}
}

// isService says whether a connection is made as the service account.
func (id Identity) isService(t Target) bool {
	return id.User == t.User && id.Password == t.Password && id.Secret == t.Secret && id.DB == 0
}
