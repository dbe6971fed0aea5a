package proxies

import (
	"net"
	"net/netip"
)

// reached is the address at which others find who listens at one. If that does not name the machine, it is completed
// with the one of which Redis has seen a connection. own: what listens on loopback is for this machine only, and says so.
func reached(listens, seen string, own bool) string {
	host, port, err := net.SplitHostPort(listens)
	if err != nil {
		return listens
	}
	where := whereIs(host)
	machine, err := netip.ParseAddrPort(seen) // of a unix socket it is none
	switch {
	case where == elsewhere, where == loopback && own, err != nil:
		return listens
	}
	return net.JoinHostPort(machine.Addr().String(), port)
}

// place is what a host of an address stands for.
type place int

const (
	elsewhere place = iota // one machine
	loopback               // whichever machine says so
	wildcard               // all of a machine's addresses
)

func whereIs(host string) place {
	ip, _ := netip.ParseAddr(host)
	switch {
	case host == "", ip.IsUnspecified():
		return wildcard
	case host == "localhost", ip.IsLoopback():
		return loopback
	}
	return elsewhere
}

// Loopback says whether an address is on loopback: only its own machine reaches it.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && whereIs(host) == loopback
}
