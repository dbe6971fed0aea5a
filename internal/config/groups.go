package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Upstream is the Redis behind us, and how it is reached.
type Upstream struct {
	URL     upstream.URL  // zero is the embedded store
	Timeout time.Duration // 0 is no limit

	PasswordFile         string // "": the password is in URL, if there is one
	SentinelPasswordFile string // the same, for Sentinels

	TLSCA         string // "" is the system's
	TLSCert       string
	TLSKey        string
	TLSServerName string // "" is the upstream's host
}

// Listen is where clients connect without TLS, and what all clients find there.
type Listen struct {
	Addresses     []string
	UnixMode      fs.FileMode // of unix sockets; 0 is what the umask leaves
	UnixGroup     string      // their group, by name or number; "" is the process's
	ReusePort     string      // yes or no
	Attached      string      // yes or no
	ProtectedMode string      // yes or no
	ProxyProtocol string      // off or required
	ProxyFrom     []netip.Prefix
	Present       string // standalone or cluster
	Announce      string // host:port; "" is where the client has connected
}

// TLS is where clients connect with TLS.
type TLS struct {
	Listen     []string
	Certs      []string // with its key at the same place in Keys
	Keys       []string
	ClientCA   string
	ClientAuth string // no, optional or required; "" is required with a ClientCA, else no

	UserPasswords string // a file with those of users whom certificates may name; "": they name nobody
}

// Cluster are settings for a Redis Cluster upstream.
type Cluster struct {
	AddressMap []string
	Refresh    time.Duration
	Retry      time.Duration
	PubSub     string // both, sharded or classic
}

// Quorum are the nodes that keep the locks.
type Quorum struct {
	Nodes        []upstream.URL // none: the upstream keeps the locks
	PasswordFile string         // "": the passwords are in Nodes
	MaxLease     time.Duration
	NodeTimeout  time.Duration
}

// Locks are where locks are kept, and the rules by which they are taken, renewed and lost.
type Locks struct {
	URL          upstream.URL // of a Redis that keeps locks alone; zero: see Apart
	PasswordFile string       // "": the password is in URL, if there is one

	WatchdogTimeout time.Duration
	MaxHold         time.Duration // 0 is no limit
	ImplicitReentry string        // auto, always or never
	WaitPoll        time.Duration
}

// Apart says that a Redis keeps the locks alone: else the upstream does, or a quorum.
func (l Locks) Apart() bool { return !l.URL.Embedded() }

// Limits is how much clients may take.
type Limits struct {
	MaxClients       int
	MaxUpstream      int // 0 is what the limit of open files leaves room for
	MaxBulk          int // bytes
	MaxQueryMemory   int // bytes; 0 is no limit
	MaxReplyMemory   int // bytes; 0 is no limit
	NormalOutput     OutputLimit
	PubSubOutput     OutputLimit
	IdleTimeout      time.Duration // 0 is no limit
	HandshakeTimeout time.Duration // 0 is no limit
	LocksPerUser     int           // 0 is no limit
}

// Commands is what is said of commands by their names, in lower case.
type Commands struct {
	Allow    []string // of optional: refused unless named
	Deny     []string
	Blocking []string

	Operators []string // users, who may run LOCKPROXY
}

// Log is what is logged, and how.
type Log struct {
	Level  slog.Level
	Format string // text or json

	Events string // a file, or stdout; "": there is none
}

// Admin is where operators, and what they run, ask by HTTP.
type Admin struct {
	Metrics   string // "" is off
	Socket    string // a path; "" is off
	Page      string // "" is off
	TokenFile string
	TLSCert   string // "": the page is served without TLS
	TLSKey    string
	ClientCA  string // "": no certificate is asked for

	ViewTokenFile string // of those who only look
}

// Drain is how the process ends.
type Drain struct {
	Delay   time.Duration // from not being ready to closed listeners
	Timeout time.Duration
}

// defaultDrainDelay is for a process whose /readyz can be asked: a load balancer has to ask and to act on it.
const defaultDrainDelay = 5 * time.Second

// DrainWith is Drain where this metrics-listen is in force: a delay that is not given depends on it.
func (c Config) DrainWith(metrics string) Drain {
	d := c.Drain
	if _, given := c.Given["drain-delay"]; given {
		return d
	}
	d.Delay = 0
	if metrics != "" {
		d.Delay = defaultDrainDelay
	}
	return d
}
