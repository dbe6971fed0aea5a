package commands

import (
	"context"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/glob"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// lockinfo answers LOCKINFO key with a map: kind, ttl-ms, holders, waiting, fence.
func lockinfo(_ *Verb, c *Client, args [][]byte, out []byte) []byte {
	if err := c.Access.May(false, args[1]); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	in, err := c.Session.Locks().Manager().Info(context.Background(), c.Identity().DB, string(args[1]))
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	return appendValue(out, c.proto(), infoFields(c, in, c.Access.SeesClients()))
}

// infoFields are what is known of a lock. With who they name the connections that hold it.
func infoFields(c *Client, in lock.Info, who bool) fields {
	holders := list{}
	for _, h := range in.Holders {
		var elsewhere fields
		if who && !h.Local {
			elsewhere = whereabouts(c, h.Owner)
		}
		holders = append(holders, holderFields(h, who, elsewhere))
	}
	all := fields{{"kind", in.Kind}, {"ttl-ms", in.TTL}, {"holders", holders}}
	if in.Unread > 0 {
		all = append(all, field{"more-holders", in.Unread})
	}
	if in.At != "" {
		all = append(all, field{"at", in.At})
	}
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
	return append(all, field{"waiting", fields{{"queue", in.Queue}, {"here", in.Here}}}, fence)
}

// whereabouts say of a holder elsewhere at which proxy it is, or of which Redisson, as far as that is known.
func whereabouts(c *Client, owner string) fields {
	at, none := c.Proxy.ProxyOf(owner)
	if at != "" {
		return fields{{"proxy", at}}
	}
	if id, thread, is := lockstore.ConnectionIn(owner); none && is {
		return fields{{"redisson", id}, {"thread", thread}}
	}
	return nil
}

// locklist answers LOCKLIST with an array of maps.
func locklist(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	g, err := parse(v.Options, args[1:])
	switch {
	case err != nil:
	case len(g.word("MATCH")) > glob.MaxLength:
		err = errPattern
	case g.has("COUNT") && !g.has("SCAN"):
		err = syntaxNear([]byte("COUNT"))
	}
	if err != nil {
		return appendSyntax(out, err)
	}
	if g.has("SCAN") {
		return lockscan(c, g, out)
	}
	entries, err := visible(c, c.Session.Locks().Manager().List(g.word("OWNER"), g.word("MATCH")),
		func(e *lock.Entry) string { return e.Key })
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	// Of a usual lock there are 320 bytes. Room for all is made at once, since a reply that grows is copied many times.
	out, who := resp.AppendArray(slices.Grow(out, 320*len(entries)), len(entries)), c.Access.SeesClients()
	for _, e := range entries {
		out = appendValue(out, c.proto(), entryFields(e, who))
	}
	return out
}

// lockscan answers LOCKLIST SCAN with an array: the cursor for the next call, and the locks that were found.
func lockscan(c *Client, g given, out []byte) []byte {
	db := c.Identity().DB
	next, found, err := c.Session.Locks().Manager().Find(c.Context(), db, func() (string, []string, error) {
		next, keys, err := c.Forwarder.Scan(backend.Scan{Cursor: g.word("SCAN"), Match: g.word("MATCH"),
			Count: g.number("COUNT")})
		if err != nil {
			return "", nil, err
		}
		keys, err = visible(c, keys, func(key string) string { return key })
		return next, keys, err
	})
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	locks, who := list{}, c.Access.SeesClients()
	for _, one := range found {
		locks = append(locks, append(fields{{"key", one.Key}, {"db", db}}, infoFields(c, one.Info, who)...))
	}
	return appendValue(out, c.proto(), list{next, locks})
}

// visible keeps what is about keys that the client may read. A client that may read none, for want of a command, gets
// Redis' error. Redis is asked about a thousand keys at a time.
func visible[T any](c *Client, all []T, keyOf func(T) string) ([]T, error) {
	out := all[:0]
	for part := range slices.Chunk(all, 1000) {
		var keys [][]byte
		for _, one := range part {
			keys = append(keys, []byte(keyOf(one)))
		}
		refusals, err := c.Access.Refusals(false, keys...)
		if err != nil {
			return nil, err
		}
		for i, one := range part {
			switch {
			case refusals == nil || refusals[i] == nil:
				out = append(out, one)
			case strings.Contains(refusals[i].Error(), " run the "): // and not that key alone
				return nil, refusals[i]
			}
		}
	}
	return out, nil
}

// holderFields are one holder: what Redis knows, with the side of a read/write lock, and for a holder on this proxy who
// it is, for those who may know. elsewhere is where another one is.
func holderFields(h lock.Holder, who bool, elsewhere fields) fields {
	all := fields{{"owner", h.Owner}}
	if h.Kind != lock.Plain {
		all = append(all, field{"kind", h.Kind.String()})
	}
	all = append(append(all, field{"holds", h.Holds}), elsewhere...)
	if !h.Local {
		return all
	}
	if who {
		all = append(all, connection(h)...)
	}
	return append(all, field{"held-ms", h.Held}, field{"watched", h.Watched}, field{"renewed-ms-ago", h.Renewed})
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
func lockOf(e *lock.Entry) fields {
	kind := e.Kind.String()
	if e.Fair {
		kind = "fair"
	}
	return fields{{"key", e.Key}, {"db", e.DB}, {"kind", kind}, {"owner", e.Owner}}
}

// connection is that of a holder.
func connection(h lock.Holder) fields {
	return fields{{"client-id", h.ClientID}, {"addr", h.Addr}, {"name", h.Name}}
}

// entryFields are one lock that is held or waited for; who: with whose connection it is.
func entryFields(e *lock.Entry, who bool) fields {
	all := lockOf(e)
	if who {
		all = append(all, connection(e.Holder)...)
	}
	if e.Place > 0 {
		return append(all, field{"state", "waiting"}, field{"waiting-ms", e.Waited})
	}
	return append(all, field{"state", "held"}, field{"held-ms", e.Held}, field{"holds", e.Holds},
		field{"ttl-ms", e.Left}, field{"watched", e.Watched}, field{"renewed-ms-ago", e.Renewed})
}
