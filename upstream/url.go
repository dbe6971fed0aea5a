package upstream

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// URL says where an upstream is, and what to know of it to connect: it is read once, by ParseURL. The zero URL is no upstream:
// the embedded store.
type URL struct {
	Target  Target         // a Redis, or the master that Sentinels name; zero for a cluster
	Cluster *ClusterTarget // nil: no cluster
}

// ParseURL reads the address of a Redis, of Sentinels or of a cluster; "" is the zero URL. No error quotes a password.
func ParseURL(raw string) (u URL, err error) {
	switch {
	case raw == "":
	case strings.HasPrefix(raw, "redis-cluster:"), strings.HasPrefix(raw, "rediss-cluster:"):
		var ct ClusterTarget
		if ct, err = ParseClusterTarget(raw); err == nil {
			u.Cluster = &ct
		}
	default:
		u.Target, err = ParseTarget(raw)
	}
	return u, err
}

// Embedded says that there is no upstream.
func (u URL) Embedded() bool { return u.Cluster == nil && u.Target.Network == "" }

// Single says that it is the address of one Redis, which neither Sentinels nor a cluster may replace.
func (u URL) Single() bool { return !u.Embedded() && u.Cluster == nil && u.Target.Sentinels == nil }

// TLS says whether the upstream is reached by TLS.
func (u URL) TLS() bool {
	if u.Cluster != nil {
		return u.Cluster.Node.TLS != nil
	}
	return u.Target.TLS != nil
}

// String is the address, fit for everyone's eyes: without user and password.
func (u URL) String() string {
	switch {
	case u.Embedded():
		return "embedded"
	case u.Cluster != nil:
		ct := *u.Cluster
		ct.Node.User = ""
		return ct.String()
	}
	t := u.Target
	t.User = ""
	return t.String()
}

// GoString is String, for %#v.
func (u URL) GoString() string { return u.String() }

// ClusterTarget is where a Redis Cluster is to be found, and the service account to use there.
type ClusterTarget struct {
	Seeds []string // host:port of nodes to ask; not all of them need to live
	Node  Target   // what all nodes have in common: account and TLS; Addr is empty
}

var errClusterTarget = errors.New("not of the form redis-cluster://[user[:password]@]host[:port][,host[:port]…] or rediss-cluster://… (percent-encode special characters in the password)")

// ParseClusterTarget reads redis-cluster:// and rediss-cluster:// addresses. Credentials are percent-decoded; a port is
// 6379 unless given; a database cannot be chosen, a cluster has one. rediss-cluster accepts
// ?insecure-skip-verify=true. No error quotes a password.
func ParseClusterTarget(rawURL string) (ClusterTarget, error) {
	scheme, rest, found := strings.Cut(rawURL, "-cluster://")
	if !found || scheme != "redis" && scheme != "rediss" {
		return ClusterTarget{}, errClusterTarget
	}
	hosts, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, tail = rest[:i], rest[i:]
	}
	account := ""
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		account, hosts = hosts[:i+1], hosts[i+1:]
	}
	var ct ClusterTarget
	for host := range strings.SplitSeq(hosts, ",") {
		// url.Parse knows one host: each is read as if it were the only one.
		t, err := ParseTarget(scheme + "://" + account + host + tail)
		if err != nil {
			if errors.Is(err, errTarget) {
				err = errClusterTarget
			}
			return ClusterTarget{}, err
		}
		if t.DB != 0 {
			return ClusterTarget{}, errors.New("a cluster has no databases but 0")
		}
		ct.Seeds = append(ct.Seeds, t.Addr)
		t.Addr = ""
		ct.Node = t
	}
	if ct.Node.TLS != nil {
		ct.Node.TLS.ServerName = "" // each node's own
	}
	return ct, nil
}

// At is one node's Target. With TLS, name is what its certificate is for; "" is the address' host. A server name in Node
// is that of all nodes.
func (ct ClusterTarget) At(addr, name string) Target {
	t := ct.Node
	t.Addr = addr
	if t.TLS != nil {
		switch {
		case ct.Node.TLS.ServerName != "":
			name = ct.Node.TLS.ServerName
		case name == "":
			name, _, _ = net.SplitHostPort(addr)
		}
		t.TLS = t.TLS.Clone()
		t.TLS.ServerName = name
	}
	return t
}

// String is the address as ParseClusterTarget reads it, without the password.
func (ct ClusterTarget) String() string {
	u := url.URL{Scheme: "redis-cluster", Host: "x"}
	if ct.Node.TLS != nil {
		u.Scheme = "rediss-cluster"
	}
	if ct.Node.User != "" {
		u.User = url.User(ct.Node.User)
	}
	return strings.TrimSuffix(u.String(), "x") + strings.Join(ct.Seeds, ",")
}
