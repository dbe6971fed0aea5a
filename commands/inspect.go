package commands

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/glob"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// lockinfo answers LOCKINFO key with a map: kind, ttl-ms, holders, waiting, fence.
func lockinfo(_ *Verb, c *Client, args [][]byte, out []byte) []byte {
	if err := c.Access.May(false, args[1]); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	in, err := c.Session.Locks().Info(context.Background(), c.Identity().DB, string(args[1]))
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	who, holders := c.Access.SeesClients(), list{}
	for _, h := range in.Holders {
		proxy := ""
		if who && !h.Local {
			proxy = c.Proxy.ProxyOf(h.Owner, c.Forwarder)
		}
		holders = append(holders, holderFields(h, who, proxy))
	}
	all := fields{{"kind", in.Kind}, {"ttl-ms", in.TTL}, {"holders", holders}}
	if in.Nodes != nil {
		nodes := list{}
		for _, n := range in.Nodes {
			nodes = append(nodes, nodeFields(n))
		}
		all = append(all, field{"nodes", nodes})
	}
	fence := field{"fence", nil}
	if in.Fenced {
		fence.value = in.Token
	}
	return appendValue(out, c.proto(), append(all, field{"waiting", fields{{"queue", in.Queue}, {"here", in.Here}}},
		fence))
}

// locklist answers LOCKLIST with an array of maps.
func locklist(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	g, err := parse(v.Options, args[1:])
	if err == nil && len(g.words["MATCH"]) > glob.MaxLength {
		err = errPattern
	}
	if err != nil {
		return appendSyntax(out, err)
	}
	entries, err := visible(c, c.Session.Locks().List(g.words["OWNER"], g.words["MATCH"]))
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	out, who := resp.AppendArray(out, len(entries)), c.Access.SeesClients()
	for _, e := range entries {
		out = appendValue(out, c.proto(), entryFields(e, who))
	}
	return out
}

// visible keeps the locks whose keys the client may read.
func visible(c *Client, all []lock.Entry) ([]lock.Entry, error) {
	out := all[:0]
	for _, e := range all {
		var refusal *upstream.ReplyError
		err := c.Access.May(false, []byte(e.Key))
		switch {
		case err == nil:
			out = append(out, e)
		case !errors.As(err, &refusal):
			return nil, err
		}
	}
	return out, nil
}

// holderFields are one holder: what Redis knows, with the side of a read/write lock, and for a holder on this proxy who
// it is, for those who may know. proxy is the other one that it is on; "": not known.
func holderFields(h lock.Holder, who bool, proxy string) fields {
	all := fields{{"owner", h.Owner}}
	if h.Kind != lock.Plain {
		all = append(all, field{"kind", h.Kind.String()})
	}
	all = append(all, field{"holds", h.Holds})
	if proxy != "" {
		all = append(all, field{"proxy", proxy})
	}
	if !h.Local {
		return all
	}
	if who {
		all = append(all, connection(h)...)
	}
	return append(all, field{"held-ms", h.Held}, field{"watched", h.Watched}, field{"renewed-ms-ago", renewedAgo(h)})
}

// nodeFields are one node of a quorum: how it is, and what it has of the lock if it answered.
func nodeFields(n lock.NodeInfo) fields {
	all := fields{{"name", n.Name}, {"state", n.State}}
	if n.State != "up" {
		return append(all, field{"trouble", n.Trouble})
	}
	owners := list{}
	for _, h := range n.Has.Owners {
		owners = append(owners, h.Owner)
	}
	return append(all, field{"kind", n.Has.Kind}, field{"ttl-ms", n.Has.TTL}, field{"owners", owners})
}

// lockOf says which lock an entry is about, and whose it is.
func lockOf(e lock.Entry) fields {
	kind := e.Kind.String()
	if e.Fair {
		kind = "fair"
	}
	const most = 16 // that there are in all lists
	return append(make(fields, 0, most), field{"key", e.Key}, field{"db", e.DB}, field{"kind", kind},
		field{"owner", e.Owner})
}

// connection is that of a holder.
func connection(h lock.Holder) fields {
	return fields{{"client-id", h.ClientID}, {"addr", h.Addr}, {"name", h.Name}}
}

// renewedAgo is how long ago the watchdog last renewed the lock, -1 ms before the first time.
func renewedAgo(h lock.Holder) time.Duration {
	if h.Renewed.IsZero() {
		return -time.Millisecond
	}
	return time.Since(h.Renewed)
}

// entryFields are one lock that is held or waited for; who: with whose connection it is.
func entryFields(e lock.Entry, who bool) fields {
	all := lockOf(e)
	if who {
		all = append(all, connection(e.Holder)...)
	}
	if e.Waiting {
		return append(all, field{"state", "waiting"}, field{"waiting-ms", e.Held})
	}
	return append(all, field{"state", "held"}, field{"held-ms", e.Held}, field{"holds", e.Holds},
		field{"ttl-ms", e.Left},
		field{"watched", e.Watched}, field{"renewed-ms-ago", renewedAgo(e.Holder)})
}
