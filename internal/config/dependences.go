package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// dependence is a setting that does not work, or does nothing, unless holds.
type dependence struct {
	setting string
	holds   func(Config) bool
	fault   string
}

// dependences are what settings need of others. A setting that would do nothing is refused, because an operator who
// gives it means to be safer than without it.
var dependences = []dependence{
	{"tls-listen", given("tls-cert"), "needs tls-cert and tls-key"},
	{"tls-cert", given("tls-listen"), "does nothing without tls-listen"},
	{"tls-key", given("tls-listen"), "does nothing without tls-listen"},
	{"tls-client-ca", given("tls-listen"), "does nothing without tls-listen"},
	{"tls-client-ca", Config.AsksClients, "does nothing with tls-client-auth no"},
	{"tls-client-auth", given("tls-listen"), "does nothing without tls-listen"},
	{"tls-client-auth", Config.knowsAuthorities, "needs tls-client-ca"},
	{"tls-auth-user-passwords", Config.AsksClients, "needs tls-client-ca"},
	{"proxy-protocol-from", given("proxy-protocol"), "does nothing with proxy-protocol off"},
	{"upstream", Config.sentinelUserLogsIn, "sentinel-user needs a sentinel-password or a sentinel-password-file"},
	{"upstream-tls-ca", Config.speaksTLS, noTLS},
	{"upstream-tls-cert", Config.speaksTLS, noTLS},
	{"upstream-tls-cert", given("upstream-tls-key"), "needs upstream-tls-key"},
	{"upstream-tls-key", Config.speaksTLS, noTLS},
	{"upstream-tls-key", given("upstream-tls-cert"), "needs upstream-tls-cert"},
	{"upstream-tls-server-name", Config.speaksTLS, noTLS},
	{"upstream-password-file", given("upstream"), "does nothing without an upstream"},
	{"upstream-password-file", func(c Config) bool { return !hasPassword(c.Upstream.URL) }, "the upstream's URL has a password, too"},
	{"sentinel-password-file", Config.hasSentinels, "does nothing without Sentinels"},
	{"sentinel-password-file", Config.urlHasNoSentinelPassword, "a URL has a sentinel-password, too"},
	{"locks", given("upstream"), "needs an upstream for the data"},
	{"locks", func(c Config) bool { return len(c.Quorum.Nodes) == 0 }, "the nodes of quorum keep the locks"},
	{"locks", func(c Config) bool { return c.Locks.URL.Target().DB == 0 }, "a lock's database is its client's: the URL must name none"},
	{"locks-password-file", given("locks"), "does nothing without locks"},
	{"locks-password-file", func(c Config) bool { return !hasPassword(c.Locks.URL) }, "the URL of locks has a password, too"},
	{"quorum-password-file", given("quorum"), "does nothing without quorum"},
	{"quorum-password-file", Config.nodesHaveNoPassword, "a node's URL has a password, too"},
	{"event-log", func(c Config) bool { return c.Log.Events != "stdout" || c.Listen.Attached == "no" }, "with attached yes, stdout has the addresses"},
	{"admin-listen", Config.pageIsClosed, "what is not localhost needs admin-token-file or admin-tls-client-ca"},
	{"admin-token-file", given("admin-listen"), noPage},
	{"admin-view-token-file", given("admin-listen"), noPage},
	{"admin-tls-cert", given("admin-listen"), noPage},
	{"admin-tls-cert", given("admin-tls-key"), "needs admin-tls-key"},
	{"admin-tls-key", given("admin-listen"), noPage},
	{"admin-tls-key", given("admin-tls-cert"), "needs admin-tls-cert"},
	{"admin-tls-client-ca", given("admin-listen"), noPage},
	{"admin-tls-client-ca", given("admin-tls-cert"), "needs admin-tls-cert and admin-tls-key"},
}

const (
	noTLS  = "does nothing without a rediss:// upstream, locks or quorum node"
	noPage = "does nothing without admin-listen"
)

// dependenceFaults are those of settings that lack what they need.
func (c Config) dependenceFaults() (faults []error) {
	for _, d := range dependences {
		if c.has(d.setting) && !d.holds(c) {
			faults = append(faults, fmt.Errorf("%s: %s", d.setting, d.fault))
		}
	}
	return faults
}

// given says that a setting is in force.
func given(setting string) func(Config) bool {
	return func(c Config) bool { return c.has(setting) }
}

// has says that a setting is not empty, an empty list or off.
func (c Config) has(setting string) bool {
	text := strings.Trim(c.Given.of(setting), ", ")
	return text != "" && text != "off"
}

// knowsAuthorities says that the certificates can be judged for which clients are asked.
func (c Config) knowsAuthorities() bool { return c.TLS.ClientCA != "" || !c.AsksClients() }

// speaksTLS says whether a Redis is reached by TLS.
func (c Config) speaksTLS() bool {
	return slices.ContainsFunc(c.urls(), upstream.URL.TLS)
}

// urls are those of all Redises.
func (c Config) urls() []upstream.URL {
	return append([]upstream.URL{c.Upstream.URL, c.Locks.URL}, c.Quorum.Nodes...)
}

func hasPassword(u upstream.URL) bool {
	if cluster, is := u.Cluster(); is {
		return cluster.Node.Password != ""
	}
	return u.Target().Password != ""
}

// sentinels are those that the URLs name.
func (c Config) sentinels() (all []*upstream.Sentinels) {
	for _, u := range c.urls() {
		if s := u.Target().Sentinels; s != nil {
			all = append(all, s)
		}
	}
	return all
}

func (c Config) hasSentinels() bool { return c.sentinels() != nil }

func (c Config) urlHasNoSentinelPassword() bool {
	return !slices.ContainsFunc(c.sentinels(), func(s *upstream.Sentinels) bool { return s.Password != "" })
}

// sentinelUserLogsIn says that there is a password for each user of Sentinels that a URL names.
func (c Config) sentinelUserLogsIn() bool {
	return !slices.ContainsFunc(c.sentinels(), func(s *upstream.Sentinels) bool {
		return s.User != "" && s.Password+c.Upstream.SentinelPasswordFile == ""
	})
}

func (c Config) nodesHaveNoPassword() bool { return !slices.ContainsFunc(c.Quorum.Nodes, hasPassword) }

// pageIsClosed says that strangers do not reach the page for operators: whoever sees it may free locks.
func (c Config) pageIsClosed() bool {
	host, _, _ := net.SplitHostPort(c.Admin.Page) // listenFaults says what is wrong with it
	return Loopback(host) || c.Admin.TokenFile+c.Admin.ViewTokenFile+c.Admin.ClientCA != ""
}
