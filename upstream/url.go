package upstream

import "strings"

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
