package proxies

import (
	"context"
	"net"
)

// Toward is the address that this machine has for those who are where an address is; "": that is not known. Nothing is
// sent.
func Toward(ctx context.Context, addr string) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return host
}

// Reached is the address at which others find who listens at one. If that does not name the machine, it is completed
// with the machine's own; "": that is not known. own: what listens on loopback is for this machine only, and says so.
func Reached(listens, machine string, own bool) string {
	host, port, err := net.SplitHostPort(listens)
	ip := net.ParseIP(host)
	every := host == "" || ip != nil && ip.IsUnspecified()
	if err != nil || machine == "" || !every && (own || !Loopback(listens)) {
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
