package upstream

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// URL is the address of an upstream, with all that is needed to connect to it. ParseURL makes it. The zero URL stands for the
// embedded store.
type URL struct {
	place place // nil: the embedded store
}

// place is what a URL leads to: a Target, which is one Redis or the master that Sentinels name, or a ClusterTarget.
type place interface {
	encrypted() bool
	shown() string // without user and password
}

// ParseURL reads the address of a Redis, of Sentinels or of a cluster; "" is the zero URL. No error quotes a password.
func ParseURL(raw string) (URL, error) {
	switch {
	case raw == "":
		return URL{}, nil
	case strings.HasPrefix(raw, "redis-cluster:"), strings.HasPrefix(raw, "rediss-cluster:"):
		ct, err := ParseClusterTarget(raw)
		if err != nil {
			return URL{}, err
		}
		return URL{ct}, nil
	}
	t, err := ParseTarget(raw)
	if err != nil {
		return URL{}, err
	}
	return URL{t}, nil
}

// Embedded says that there is no upstream.
func (u URL) Embedded() bool { return u.place == nil }

// Single says that it is the address of one Redis, which neither Sentinels nor a cluster may replace.
func (u URL) Single() bool {
	t, ok := u.place.(Target)
	return ok && t.Sentinels == nil
}

// Target is a Redis, or the master that Sentinels name; zero for a cluster and for the embedded store.
func (u URL) Target() Target {
	t, _ := u.place.(Target)
	return t
}

// Cluster is the cluster that u leads to; false: it leads to none.
func (u URL) Cluster() (ClusterTarget, bool) {
	ct, ok := u.place.(ClusterTarget)
	return ct, ok
}

// TLS says whether the upstream is reached by TLS.
func (u URL) TLS() bool { return !u.Embedded() && u.place.encrypted() }

// String is the address as it may be shown: without user and password.
func (u URL) String() string {
	if u.Embedded() {
		return "embedded"
	}
	return u.place.shown()
}

// GoString is String, for %#v.
func (u URL) GoString() string { return u.String() }

// ClusterTarget is where a Redis Cluster is to be found, and the service account to use there.
type ClusterTarget struct {
	Seeds []string // host:port of nodes to ask; not all of them need to be up
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
	before, hosts, after := cutHosts(scheme + "://" + rest)
	var ct ClusterTarget
	for host := range strings.SplitSeq(hosts, ",") {
		t, err := ParseTarget(before + host + after)
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

// At returns the Target of one node. With TLS its certificate must be for name, or for addr's host if name is "". A
// server name in ct.Node holds for all nodes instead.
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

func (ct ClusterTarget) encrypted() bool { return ct.Node.encrypted() }

func (ct ClusterTarget) shown() string {
	ct.Node.User = ""
	return ct.String()
}
