package proxies

import (
	"net"
	"strings"
)

// reached is the address at which others find who listens at one. If that does not name the machine, it is completed
// with the one of which Redis has seen a connection. own: what listens on loopback is for this machine only, and says so.
func reached(listens, seen string, own bool) string {
	host, port, err := net.SplitHostPort(listens)
	ip := net.ParseIP(host)
	every := host == "" || ip != nil && ip.IsUnspecified()
	if err != nil || !every && (own || !Loopback(listens)) {
		return listens
	}
	machine, _, err := net.SplitHostPort(seen)
	if err != nil || strings.HasPrefix(seen, "/") {
		return listens
	}
	return net.JoinHostPort(machine, port)
}

// Loopback says whether an address is on loopback: only its own machine reaches it.
func Loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
