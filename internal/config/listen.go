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
	taken := map[string]bool{}
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
			at, alone := place(addr)
			if alone && taken[at] {
				faults = append(faults, fmt.Errorf("%s: %q is named twice", l.name, addr))
			}
			taken[at] = true
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

// place is a valid address in the one form that all ways to write it have. alone says that only one listener can be there: with port 0 each gets
// a port of its own.
func place(addr string) (at string, alone bool) {
	if strings.HasPrefix(addr, "unix://") || strings.HasPrefix(addr, "systemd:") {
		return addr, true
	}
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.ParseUint(text, 10, 16)
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
		if ip.Unmap().IsUnspecified() {
			host = "" // Go listens for IPv4 and IPv6 with any of them
		}
	}
	return net.JoinHostPort(strings.ToLower(host), strconv.FormatUint(port, 10)), port != 0
}

// speaksTLS says whether the upstream, or a quorum's node, is reached by TLS.
func (c Config) speaksTLS() bool {
	return c.Upstream.URL.TLS() || slices.ContainsFunc(c.Quorum.Nodes, upstream.URL.TLS)
}

// tlsFaults finds settings that lack another, or would do nothing: who gives those means to be safer than he would be.
func (c Config) tlsFaults() (faults []error) {
	for _, f := range []struct {
		bad   bool
		fault string
	}{
		{len(c.TLS.Listen) > 0 && len(c.TLS.Certs) == 0, "tls-listen: needs tls-cert and tls-key"},
		{len(c.TLS.Listen) == 0 && len(c.TLS.Certs)+len(c.TLS.Keys) > 0, "tls-cert, tls-key: do nothing without tls-listen"},
		{len(c.TLS.Listen) == 0 && c.TLS.ClientCA+c.TLS.ClientAuth != "", "tls-client-ca, tls-client-auth: do nothing without tls-listen"},
		{len(c.TLS.Certs) != len(c.TLS.Keys), "tls-key: there must be as many as tls-cert"},
		{c.TLS.ClientCA == "" && c.AsksClients(), "tls-client-auth: needs tls-client-ca"},
		{c.TLS.ClientCA != "" && !c.AsksClients(), "tls-client-ca: does nothing with tls-client-auth no"},
		{c.TLS.User != "off" && !c.AsksClients(), "tls-auth-user: needs tls-client-ca"},
		{c.TLS.User != "off" && c.TLS.UserPasswords == "", "tls-auth-user: needs tls-auth-user-passwords"},
		{c.TLS.User == "off" && c.TLS.UserPasswords != "", "tls-auth-user-passwords: does nothing without tls-auth-user"},
		{c.Listen.ProxyProtocol == "off" && len(c.Listen.ProxyFrom) > 0, "proxy-protocol-from: does nothing with proxy-protocol off"},
		{(c.Upstream.TLSCert == "") != (c.Upstream.TLSKey == ""), "upstream-tls-cert, upstream-tls-key: one needs the other"},
		{c.Upstream.TLSCA+c.Upstream.TLSCert+c.Upstream.TLSKey+c.Upstream.TLSServerName != "" && !c.speaksTLS(),
			"upstream-tls-ca, -cert, -key, -server-name: do nothing without a rediss:// upstream or quorum node"},
	} {
		if f.bad {
			faults = append(faults, errors.New(f.fault))
		}
	}
	return faults
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
func (a Admin) pageFaults() (faults []error) {
	files := a.TokenFile + a.TLSCert + a.TLSKey + a.ClientCA
	if a.Page == "" {
		if files != "" {
			faults = append(faults, errors.New("admin-token-file, admin-tls-cert, admin-tls-key, admin-tls-client-ca: each does nothing without admin-listen"))
		}
		return faults
	}
	host, _, _ := net.SplitHostPort(a.Page) // listenFaults says what is wrong with it
	for _, f := range []struct {
		bad   bool
		fault string
	}{
		{!Loopback(host) && a.TokenFile+a.ClientCA == "", fmt.Sprintf("admin-listen: %q is not localhost: it needs admin-token-file, or admin-tls-client-ca", a.Page)},
		{(a.TLSCert == "") != (a.TLSKey == ""), "admin-tls-cert, admin-tls-key: one needs the other"},
		{a.ClientCA != "" && a.TLSCert == "", "admin-tls-client-ca: needs admin-tls-cert and admin-tls-key"},
	} {
		if f.bad {
			faults = append(faults, errors.New(f.fault))
		}
	}
	return faults
}
