package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const defaultPort = "6379"

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

	ClientName string // of a Control's connections; "": "lockproxy"

	Sentinels *Sentinels // nil: Addr is the address; else it is what they say
	Resolver  Resolver   // nil: Addr always leads to the same Redis; else FollowAddress or sentinel.Follow has set it

	// NodeID is the id of the cluster's node that Addr is the address of: connections that lead elsewhere are refused with an
	// *AnotherNodeError. "": any server is right.
	NodeID string

	// MinUptime is how long a server must have been up to be connected to; else the error is a *YoungError. It must also be
	// a master. 0: neither is asked.
	MinUptime time.Duration
	// Vetter, if MinUptime is set, is told the run id of each server that is about to be used, "" when none could be reached. Its error keeps
	// the server from being used. nil: none is refused.
	Vetter func(runID string) error
}

// Dialer connects to addresses, TLS aside, which goes on top. Its calls come from several goroutines at once.
type Dialer interface {
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// Resolver knows which of several servers a Target means at present. Its methods are called from several goroutines at once.
type Resolver interface {
	// Dial connects to the present server. term ends when the connection must no longer be used because another server has taken its place;
	// its cause says so.
	Dial(ctx context.Context, timeout time.Duration) (conn net.Conn, term context.Context, err error)
	// Present is the present server's address, "" when it is not known yet, and how often it has changed.
	Present() (addr string, switches int64)
	// Moved returns a channel that is closed when another server takes the place of the present one, or a first one is known.
	Moved() <-chan struct{}
	// OnSwitch makes it call hook whenever another server is about to take that place, before anybody can reach that server. hook must
	// not block.
	OnSwitch(hook func())
	// Check makes it ask again soon which server it is, because the one of that term, which is Dial's, refused a write.
	Check(term context.Context)
}

// Renewer has certificates and authorities that change while the proxy runs.
type Renewer interface {
	// Client returns base, unchanged itself, with what a new connection is to use.
	Client(base *tls.Config) *tls.Config
}

// ParseProxies reads the addresses of lockproxies to which the program's own commands connect: host:port, or what ParseTarget reads
// except Sentinels, with hosts that are separated by commas. "" stands for LOCKPROXY_ADDRESS from the environment, or else for
// 127.0.0.1:6380. There is one at least.
func ParseProxies(addresses string) ([]Target, error) {
	addresses = cmp.Or(addresses, os.Getenv("LOCKPROXY_ADDRESS"), "127.0.0.1:6380")
	if !strings.Contains(addresses, "://") {
		addresses = "redis://" + addresses
	}
	before, hosts, after := addresses, "", "" // as of a unix socket, whose path may have commas
	if !strings.HasPrefix(addresses, "unix:") {
		before, hosts, after = cutHosts(addresses)
	}
	var all []Target
	for host := range strings.SplitSeq(hosts, ",") {
		t, err := ParseTarget(before + host + after)
		if err != nil || t.Sentinels != nil {
			return nil, errors.New("not host:port, redis://…, rediss://… or unix:///path")
		}
		all = append(all, t)
	}
	return all, nil
}

// cutHosts takes a URL apart: scheme and account, the hosts, and what follows them. url.Parse knows one host only.
func cutHosts(rawURL string) (before, hosts, after string) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest, after = rest[:i], rest[i:]
	}
	account := rest[:strings.LastIndexByte(rest, '@')+1]
	return scheme + "://" + account, rest[len(account):], after
}

// errTarget stands for every error of net/url: its own texts quote parts of the
// URL, and with them parts of a password.
var errTarget = errors.New("not of the form redis://[user[:password]@]host[:port][/db], rediss://…, redis+sentinel://…/master-name, redis-cluster://… or unix:///path[?db=n] (percent-encode special characters in the password)")

// ParseTarget reads redis://, rediss:// and unix:// addresses, and those of a
// master that Sentinels know. Credentials are percent-decoded; the port is 6379
// (a Sentinel's 26379) unless given. rediss accepts ?insecure-skip-verify=true,
// unix accepts ?db=n. No error quotes a password.
func ParseTarget(rawURL string) (Target, error) {
	if scheme, rest, ok := sentinelScheme(rawURL); ok {
		return parseSentinels(scheme, rest)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return Target{}, errTarget
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return Target{}, errTarget
	}
	t := Target{User: u.User.Username()}
	t.Password, _ = u.User.Password()
	switch u.Scheme {
	case "redis", "rediss":
		err = t.parseTCP(u, query)
	case "unix":
		err = t.parseUnix(u, query)
	default:
		return Target{}, errTarget
	}
	if err == nil {
		err = unknownParameter(query)
	}
	if err != nil {
		return Target{}, err
	}
	return t, nil
}

// unknownParameter is an error if the query has parameters that no one has read.
func unknownParameter(query url.Values) error {
	for name := range query {
		return fmt.Errorf("unknown parameter %q", name)
	}
	return nil
}

func (t *Target) parseTCP(u *url.URL, query url.Values) error {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return errors.New("the host is missing")
	}
	if port == "" {
		port = defaultPort
	}
	if err := validPort(port); err != nil {
		return err
	}
	t.Network, t.Addr = "tcp", net.JoinHostPort(host, port)
	if path := u.Path; path != "" && path != "/" {
		if err := t.parseDB(path[1:]); err != nil {
			return err
		}
	}
	if u.Scheme != "rediss" {
		return nil
	}
	t.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	return t.parseSkipVerify(query)
}

func validPort(port string) error {
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return errors.New("the port must be from 1 to 65535")
	}
	return nil
}

func (t *Target) parseSkipVerify(query url.Values) error {
	if v := query.Get("insecure-skip-verify"); v != "" {
		skip, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("insecure-skip-verify must be true or false")
		}
		t.TLS.InsecureSkipVerify = skip
	}
	query.Del("insecure-skip-verify")
	return nil
}

func (t *Target) parseUnix(u *url.URL, query url.Values) error {
	if u.Host != "" || u.Path == "" || u.Path == "/" {
		return errors.New("a unix socket is written unix:///path, with three slashes")
	}
	t.Network, t.Addr = "unix", u.Path
	if v := query.Get("db"); v != "" {
		if err := t.parseDB(v); err != nil {
			return err
		}
	}
	query.Del("db")
	return nil
}

func (t *Target) parseDB(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("the database must be a number from 0 up")
	}
	t.DB = n
	return nil
}

// String is the address as ParseTarget reads it, without the password.
func (t Target) String() string {
	if t.Sentinels != nil {
		return t.sentinelString()
	}
	u := url.URL{Scheme: "redis", Host: t.Addr}
	if t.User != "" {
		u.User = url.User(t.User)
	}
	if t.TLS != nil {
		u.Scheme = "rediss"
	}
	if t.Network == "unix" {
		u.Scheme, u.Host, u.Path = "unix", "", t.Addr
		if t.DB != 0 {
			u.RawQuery = "db=" + strconv.Itoa(t.DB)
		}
		return u.String()
	}
	if t.DB != 0 {
		u.Path = "/" + strconv.Itoa(t.DB)
	}
	return u.String()
}

// Service is the identity of the service account, in database 0.
func (t Target) Service() Identity {
	return Identity{User: t.User, Password: t.Password, Secret: t.Secret, Proto: 2}
}

// isService says whether a connection is made as the service account.
func (id Identity) isService(t Target) bool {
	return id.User == t.User && id.Password == t.Password && id.Secret == t.Secret && id.DB == 0
}

func (t Target) encrypted() bool { return t.TLS != nil }

func (t Target) shown() string {
	t.User = ""
	return t.String()
}
