package cluster

import (
	"fmt"
	"net"
	"strings"
)

// addressMap maps what nodes call themselves to where they are dialled, which differs behind a NAT, for example.
type addressMap map[string]string

// ParseAddressMap reads "from=to,…", as in cluster-address-map. Both are hosts, or both host:port; from is what the
// nodes say, to what is dialled. An entry for host:port takes precedence over one for the host. "" is no map.
func ParseAddressMap(s string) (map[string]string, error) {
	m := map[string]string{}
	for entry := range strings.SplitSeq(s, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		from, to, found := strings.Cut(entry, "=")
		if !found || from == "" || to == "" {
			return nil, fmt.Errorf("address map: %q is not of the form from=to", entry)
		}
		if hasPort(from) != hasPort(to) {
			return nil, fmt.Errorf("address map: %q must have a port on both sides, or on neither", entry)
		}
		if _, twice := m[from]; twice {
			return nil, fmt.Errorf("address map: %q is there twice", from)
		}
		m[from] = to
	}
	return m, nil
}

func hasPort(addr string) bool {
	_, _, err := net.SplitHostPort(addr)
	return err == nil
}

// to is the address to dial for what a node is called.
func (m addressMap) to(addr string) string {
	if to, mapped := m[addr]; mapped {
		return to
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if to, mapped := m[host]; mapped {
		return net.JoinHostPort(to, port)
	}
	return addr
}
