package upstream

import (
	"net"
	"strings"
)

// URL is the address of an upstream, with all that is needed to connect to it. ParseURL makes it. The zero URL stands
// for the embedded store.
type URL struct {
	node  Target   // one Redis, the master that Sentinels name, or what all nodes of a cluster have in common
	seeds []string // host:port of nodes of the cluster; nil: it is none
}

// Embedded says that there is no upstream.
func (u URL) Embedded() bool { return u.node.Network == "" }

// Single says that it is the address of one Redis, which neither Sentinels nor a cluster may replace.
func (u URL) Single() bool { return u.Target().Network != "" && u.node.Sentinels == nil }

// Target is a Redis, or the master that Sentinels name; zero for a cluster and for the embedded store.
func (u URL) Target() Target {
	if u.seeds != nil {
		return Target{}
	}
	return u.node
}

// Cluster is the cluster that u leads to; false: it leads to none.
func (u URL) Cluster() (ClusterTarget, bool) {
	if u.seeds == nil {
		return ClusterTarget{}, false
	}
	return ClusterTarget{u.seeds, u.node}, true
}

// TLS says whether the upstream is reached by TLS.
func (u URL) TLS() bool { return u.node.TLS != nil }

// String is the address as it may be shown: without user and password.
func (u URL) String() string {
	u.node.User = ""
	ct, clustered := u.Cluster()
	switch {
	case u.Embedded():
		return "embedded"
	case clustered:
		return ct.String()
	}
	return u.node.String()
}

// GoString is String, for %#v.
func (u URL) GoString() string { return u.String() }

// ClusterTarget is where a Redis Cluster is to be found, and the service account to use there.
type ClusterTarget struct {
	Seeds []string // host:port of nodes to ask; not all of them need to be up
	Node  Target   // what all nodes have in common: account and TLS; Addr is empty
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

// String is the address as ParseURL reads it, without the password.
func (ct ClusterTarget) String() string {
	return ct.Node.printed("redis-cluster", strings.Join(ct.Seeds, ","), "", "", "")
}
