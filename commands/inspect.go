package commands

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// lockinfo answers LOCKINFO key with a map: kind, ttl-ms, holders, waiting, fence.
func lockinfo(_ *Verb, c Client, args [][]byte, out []byte) []byte {
	if err := c.May(args[1], false); err != nil {
		return appendFailure(out, c.Proto(), err)
	}
	in, err := c.Locks().Info(context.Background(), c.DB(), string(args[1]))
	if err != nil {
		return appendFailure(out, c.Proto(), err)
	}
	fields := 5
	if in.Nodes != nil {
		fields++
	}
	m := mapping{out: resp.AppendMap(out, c.Proto(), fields), proto: c.Proto(), who: c.SeesClients()}
	m.text("kind", in.Kind)
	m.number("ttl-ms", in.TTL)
	m.key("holders")
	m.out = resp.AppendArray(m.out, len(in.Holders))
	for _, h := range in.Holders {
		proxy := ""
		if m.who && !h.Local {
			proxy = c.ProxyOf(h.Owner)
		}
		m.holder(h, proxy)
	}
	if in.Nodes != nil {
		m.key("nodes")
		m.out = resp.AppendArray(m.out, len(in.Nodes))
		for _, n := range in.Nodes {
			m.node(n)
		}
	}
	m.key("waiting")
	m.out = resp.AppendMap(m.out, m.proto, 2)
	m.number("queue", in.Queue)
	m.number("here", int64(in.Here))
	m.key("fence")
	if in.Fenced {
		return resp.AppendInt(m.out, in.Token)
	}
	return resp.AppendNull(m.out, m.proto)
}

// locklist answers LOCKLIST with an array of maps.
func locklist(v *Verb, c Client, args [][]byte, out []byte) []byte {
	g, err := parse(v.Options, args[1:])
	if err != nil {
		return appendSyntax(out, err)
	}
	entries, err := visible(c, c.Locks().List(g.words["OWNER"], g.words["MATCH"]))
	if err != nil {
		return appendFailure(out, c.Proto(), err)
	}
	m := mapping{out: resp.AppendArray(out, len(entries)), proto: c.Proto(), who: c.SeesClients()}
	for _, e := range entries {
		m.entry(e)
	}
	return m.out
}

// visible keeps the locks whose keys the client may read.
func visible(c Client, all []lock.Entry) ([]lock.Entry, error) {
	out := all[:0]
	for _, e := range all {
		var refusal *upstream.ReplyError
		err := c.May([]byte(e.Key), false)
		switch {
		case err == nil:
			out = append(out, e)
		case !errors.As(err, &refusal):
			return nil, err
		}
	}
	return out, nil
}

// mapping appends the fields of maps.
type mapping struct {
	out   []byte
	proto int
	who   bool // the fields say whose connections they are
}

// whoFields is the number of fields that connection appends.
func (m *mapping) whoFields() int {
	if m.who {
		return 3
	}
	return 0
}

func (m *mapping) key(name string) { m.out = resp.AppendBulkString(m.out, name) }

func (m *mapping) text(name, value string) {
	m.key(name)
	m.out = resp.AppendBulkString(m.out, value)
}

func (m *mapping) number(name string, value int64) {
	m.key(name)
	m.out = resp.AppendInt(m.out, value)
}

// holder appends one holder: what Redis knows, with the side of a read/write lock, and for a holder on this proxy who it is. proxy is the
// other one that it is on; "": not known.
func (m *mapping) holder(h lock.Holder, proxy string) {
	fields, rw := 2, h.Kind != lock.Plain
	if h.Local {
		fields = 5 + m.whoFields()
	}
	if rw {
		fields++
	}
	if proxy != "" {
		fields++
	}
	m.out = resp.AppendMap(m.out, m.proto, fields)
	m.text("owner", h.Owner)
	if rw {
		m.text("kind", h.Kind.String())
	}
	m.number("holds", h.Holds)
	if proxy != "" {
		m.text("proxy", proxy)
	}
	if !h.Local {
		return
	}
	m.connection(h)
	m.number("held-ms", h.Held.Milliseconds())
	m.renewal(h)
}

// node appends one node of a quorum: how it is, and what it has of the lock if it answered.
func (m *mapping) node(n lock.NodeInfo) {
	if n.State != "up" {
		m.out = resp.AppendMap(m.out, m.proto, 3)
		m.text("name", n.Name)
		m.text("state", n.State)
		m.text("trouble", n.Trouble)
		return
	}
	m.out = resp.AppendMap(m.out, m.proto, 5)
	m.text("name", n.Name)
	m.text("state", n.State)
	m.text("kind", n.Has.Kind)
	m.number("ttl-ms", n.Has.TTL)
	m.key("owners")
	m.out = resp.AppendArray(m.out, len(n.Has.Owners))
	for _, h := range n.Has.Owners {
		m.out = resp.AppendBulkString(m.out, h.Owner)
	}
}

// connection appends whose it is, for those who may know.
func (m *mapping) connection(h lock.Holder) {
	if !m.who {
		return
	}
	m.number("client-id", h.ClientID)
	m.text("addr", h.Addr)
	m.text("name", h.Name)
}

// renewal appends whether the watchdog renews the lock and how long ago it last did, -1 before the first time.
func (m *mapping) renewal(h lock.Holder) {
	watched, ago := int64(0), int64(-1)
	if h.Watched {
		watched = 1
	}
	if !h.Renewed.IsZero() {
		ago = time.Since(h.Renewed).Milliseconds()
	}
	m.number("watched", watched)
	m.number("renewed-ms-ago", ago)
}

func (m *mapping) entry(e lock.Entry) {
	if e.Waiting {
		m.out = resp.AppendMap(m.out, m.proto, 6+m.whoFields())
	} else {
		m.out = resp.AppendMap(m.out, m.proto, 10+m.whoFields())
	}
	m.text("key", e.Key)
	m.number("db", int64(e.DB))
	kind := e.Kind.String()
	if e.Fair {
		kind = "fair"
	}
	m.text("kind", kind)
	m.text("owner", e.Owner)
	m.connection(e.Holder)
	if e.Waiting {
		m.text("state", "waiting")
		m.number("waiting-ms", e.Held.Milliseconds())
		return
	}
	m.text("state", "held")
	m.number("held-ms", e.Held.Milliseconds())
	m.number("holds", e.Holds)
	m.number("ttl-ms", e.Left.Milliseconds())
	m.renewal(e.Holder)
}
