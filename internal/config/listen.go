package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

func (c Config) listenFaults() (faults []error) {
	if len(c.Listen.Addresses)+len(c.TLS.Listen) == 0 {
		faults = append(faults, errors.New("listen: no address"))
	}
	var taken []listenAddress
	for _, l := range []struct {
		name  string
		addrs []string
		valid func(string) error
	}{
		{"listen", c.Listen.Addresses, validListen},
		{"tls-listen", c.TLS.Listen, validInet},
		{"metrics-listen", asList(c.Admin.Metrics), validHostPort},
		{"admin-listen", asList(c.Admin.Page), validHostPort},
		{"admin-socket", c.Admin.SocketAddress(), validListen},
	} {
		for _, addr := range l.addrs {
			if err := l.valid(addr); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", l.name, err))
				continue
			}
			p := listenAddressOf(l.name, addr)
			if at := slices.IndexFunc(taken, p.overlaps); at >= 0 {
				faults = append(faults, fmt.Errorf("%s: %q is named twice: %s has %q", l.name, addr, taken[at].setting, taken[at].addr))
			}
			taken = append(taken, p)
		}
	}
	return faults
}

// SocketAddress is admin-socket as listen has such addresses; none: there is none.
func (a Admin) SocketAddress() []string {
	if a.Socket == "" {
		return nil
	}
	return []string{"unix://" + a.Socket}
}

// asList is an address as a list, which is empty if there is none.
func asList(addr string) []string {
	if addr == "" {
		return nil
	}
	return []string{addr}
}

// listenAddress is where a valid address of a setting leads.
type listenAddress struct {
	setting string
	addr    string // as the setting has it

	inet bool   // it is host:port; else addr says all
	host string // in the one form that all ways to write it have; "": all addresses of this machine
	port uint64 // 0: each listener gets a port of its own
}

func listenAddressOf(setting, addr string) listenAddress {
	p := listenAddress{setting: setting, addr: addr}
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
func (p listenAddress) overlaps(q listenAddress) bool {
	if !p.inet || !q.inet {
		return p.addr == q.addr
	}
	return p.port == q.port && p.port != 0 && (p.host == q.host || p.host == "" || q.host == "")
}

// AsksClients says whether clients of tls-listen are asked for certificates.
func (c Config) AsksClients() bool {
	if c.TLS.ClientAuth == "" {
		return c.TLS.ClientCA != ""
	}
	return c.TLS.ClientAuth != "no"
}

// Loopback says whether a host is this machine, whatever names lead to.
func Loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
