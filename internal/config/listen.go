package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

func (c Config) listenFaults() (faults []error) {
	if len(c.Listen.Addresses)+len(c.TLS.Listen) == 0 {
		faults = append(faults, errors.New("listen: no address"))
	}
	var taken []place
	for _, l := range []struct {
		name  string
		addrs []string
		valid func(string) error
	}{
		{"listen", c.Listen.Addresses, validListen},
		{"tls-listen", c.TLS.Listen, validInet},
		{"metrics-listen", asList(c.Admin.Metrics), validHostPort},
		{"admin-listen", asList(c.Admin.Page), validHostPort},
	} {
		for _, addr := range l.addrs {
			if err := l.valid(addr); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", l.name, err))
				continue
			}
			p := placeOf(l.name, addr)
			if at := slices.IndexFunc(taken, p.overlaps); at >= 0 {
				faults = append(faults, fmt.Errorf("%s: %q is named twice: %s has %q", l.name, addr, taken[at].setting, taken[at].addr))
			}
			taken = append(taken, p)
		}
	}
	return faults
}

// asList is an address as a list, which is empty if there is none.
func asList(addr string) []string {
	if addr == "" {
		return nil
	}
	return []string{addr}
}

// place is where a valid address of a setting leads.
type place struct {
	setting string
	addr    string // as the setting has it

	inet bool   // it is host:port; else addr says all
	host string // in the one form that all ways to write it have; "": all addresses of this machine
	port uint64 // 0: each listener gets a port of its own
}

func placeOf(setting, addr string) place {
	p := place{setting: setting, addr: addr}
	if strings.HasPrefix(addr, "unix://") || strings.HasPrefix(addr, "systemd:") {
		return p
	}
	host, text, _ := net.SplitHostPort(addr)
	p.inet, p.host = true, strings.ToLower(host)
	p.port, _ = strconv.ParseUint(text, 10, 16)
	if p.host == "localhost" {
		p.host = "127.0.0.1" // of a name's addresses Go listens at the first one of IPv4, so that [::1] is left to others
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		p.host = ip.Unmap().String()
		if ip.Unmap().IsUnspecified() {
			p.host = "" // Go listens for IPv4 and IPv6 with any of them
		}
	}
	return p
}

// overlaps says that two listeners cannot be at p and q, or that where both can, with reuse-port, one gets the
// other's clients.
func (p place) overlaps(q place) bool {
	if !p.inet || !q.inet {
		return p.addr == q.addr
	}
	return p.port == q.port && p.port != 0 && (p.host == q.host || p.host == "" || q.host == "")
}

// speaksTLS says whether the upstream, or a quorum's node, is reached by TLS.
func (c Config) speaksTLS() bool {
	return c.Upstream.URL.TLS() || slices.ContainsFunc(c.Quorum.Nodes, upstream.URL.TLS)
}

// tlsFaults finds settings that lack another, or would do nothing: who gives those means to be safer than he would be.
func (c Config) tlsFaults() []error {
	return faultsOf(
		rule{len(c.TLS.Listen) > 0 && len(c.TLS.Certs) == 0, "tls-listen: needs tls-cert and tls-key"},
		rule{len(c.TLS.Listen) == 0 && len(c.TLS.Certs)+len(c.TLS.Keys) > 0, "tls-cert, tls-key: do nothing without tls-listen"},
		rule{len(c.TLS.Listen) == 0 && c.TLS.ClientCA+c.TLS.ClientAuth != "", "tls-client-ca, tls-client-auth: do nothing without tls-listen"},
		rule{len(c.TLS.Certs) != len(c.TLS.Keys), "tls-key: there must be as many as tls-cert"},
		rule{c.TLS.ClientCA == "" && c.AsksClients(), "tls-client-auth: needs tls-client-ca"},
		rule{c.TLS.ClientCA != "" && !c.AsksClients(), "tls-client-ca: does nothing with tls-client-auth no"},
		rule{c.TLS.User != "off" && !c.AsksClients(), "tls-auth-user: needs tls-client-ca"},
		rule{c.TLS.User != "off" && c.TLS.UserPasswords == "", "tls-auth-user: needs tls-auth-user-passwords"},
		rule{c.TLS.User == "off" && c.TLS.UserPasswords != "", "tls-auth-user-passwords: does nothing without tls-auth-user"},
		rule{c.Listen.ProxyProtocol == "off" && len(c.Listen.ProxyFrom) > 0, "proxy-protocol-from: does nothing with proxy-protocol off"},
		rule{(c.Upstream.TLSCert == "") != (c.Upstream.TLSKey == ""), "upstream-tls-cert, upstream-tls-key: one needs the other"},
		rule{c.Upstream.TLSCA+c.Upstream.TLSCert+c.Upstream.TLSKey+c.Upstream.TLSServerName != "" && !c.speaksTLS(),
			"upstream-tls-ca, -cert, -key, -server-name: do nothing without a rediss:// upstream or quorum node"},
	)
}

// AsksClients says whether clients of tls-listen are asked for certificates.
func (c Config) AsksClients() bool {
	return c.TLS.ClientAuth == "optional" || c.TLS.ClientAuth == "required" || c.TLS.ClientAuth == "" && c.TLS.ClientCA != ""
}

// Loopback says whether a host is this machine, whatever names lead to.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// pageFaults keep the page for operators from strangers: who may see it may free locks.
func (a Admin) pageFaults() []error {
	files := a.TokenFile + a.TLSCert + a.TLSKey + a.ClientCA
	if a.Page == "" {
		return faultsOf(rule{files != "", "admin-token-file, admin-tls-cert, admin-tls-key, admin-tls-client-ca: each does nothing without admin-listen"})
	}
	host, _, _ := net.SplitHostPort(a.Page) // listenFaults says what is wrong with it
	return faultsOf(
		rule{!Loopback(host) && a.TokenFile+a.ClientCA == "", fmt.Sprintf("admin-listen: %q is not localhost: it needs admin-token-file, or admin-tls-client-ca", a.Page)},
		rule{(a.TLSCert == "") != (a.TLSKey == ""), "admin-tls-cert, admin-tls-key: one needs the other"},
		rule{a.ClientCA != "" && a.TLSCert == "", "admin-tls-client-ca: needs admin-tls-cert and admin-tls-key"},
	)
}
