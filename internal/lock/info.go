package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
)

// Holder is one owner of a lock. The fields after Holds are known only of those that hold it through this proxy (Local).
type Holder struct {
	Owner    string
	Kind     Kind // which side of a read/write lock
	Holds    int64
	Local    bool
	ClientID int64 // 0 when the connection that named the owner has gone
	Addr     string
	Name     string
	Held     time.Duration // since it was granted
	Watched  bool          // the watchdog renews it
	Renewed  time.Time     // the last renewal, zero before the first

	client *Client // who it is; nil: nobody here
}

// introduce says who the holder is. It asks the client's connection, so no mutex is held.
func (h *Holder) introduce() {
	if h.client != nil {
		h.ClientID, h.Addr, h.Name = h.client.info.ID, h.client.info.Addr, h.client.info.Name()
	}
}

// Info is what can be said of one lock.
type Info struct {
	Kind    string // "none", "plain", "read", "write", or "other" for a key that is no lock
	TTL     int64  // ms; -2 no key, -1 no TTL
	Holders []Holder
	Queue   int64      // waiters in Redisson's fair queue
	Here    int        // waiters on this proxy
	Token   int64      // last fencing token
	Fenced  bool       // there is one
	Nodes   []NodeInfo // of a quorum, each with what it has; nil without
}

// Info reads a lock from Redis and adds what this proxy knows. Errors are Redis' own or that it cannot be reached.
func (m *Manager) Info(ctx context.Context, db int, key string) (Info, error) {
	if err := m.nameable(key); err != nil {
		return Info{}, err
	}
	in, err := m.store.info(ctx, infoCall(db, key))
	if err == nil {
		m.addLocal(&in, db, key)
	}
	return in, err
}

func infoCall(db int, key string) node.Call {
	return node.Call{DB: db, Script: scripts.Info, Keys: []string{key, lockstore.TokenKey(key), lockstore.QueueKey(key)}, Args: []string{lockstore.ReadPrefix(key)}}
}

// parseInfo takes the script's reply apart.
func parseInfo(reply rueidis.RedisMessage, err error) (Info, error) {
	if err != nil {
		return Info{}, err
	}
	parts, err := reply.ToArray()
	if err != nil {
		return Info{}, err
	}
	text := make([]string, len(parts))
	for i := range parts {
		if text[i], err = parts[i].ToString(); err != nil {
			n, _ := parts[i].AsInt64()
			text[i] = strconv.FormatInt(n, 10)
		}
	}
	in := Info{}
	in.TTL, _ = strconv.ParseInt(text[1], 10, 64)
	in.Token, err = strconv.ParseInt(text[2], 10, 64)
	in.Fenced = err == nil
	in.Queue, _ = strconv.ParseInt(text[3], 10, 64)
	in.read(text[0], text[4:])
	return in, nil
}

// read takes the hash apart.
func (in *Info) read(kind string, fields []string) {
	in.Kind = "other"
	switch kind {
	case "none":
		in.Kind = "none"
	case "hash":
		in.readHash(fields)
	}
}

func (in *Info) readHash(fields []string) {
	in.Kind = Plain.String()
	rw := false
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "mode" {
			in.Kind, rw = fields[i+1], true
		}
	}
	for i := 0; i+1 < len(fields); i += 2 {
		n, err := strconv.ParseInt(fields[i+1], 10, 64)
		switch {
		case fields[i] == "mode":
			continue
		case err != nil:
			in.Kind, in.Holders = "other", nil
			return
		}
		h := Holder{Owner: fields[i], Holds: n}
		if rw {
			h.Owner, h.Kind = lockstore.OwnerOf(fields[i])
		}
		in.Holders = append(in.Holders, h)
	}
}

func (m *Manager) addLocal(in *Info, db int, key string) {
	defer func() {
		for i := range in.Holders {
			in.Holders[i].introduce()
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range in.Holders {
		if h := m.holds[lockstore.ID{DB: db, Key: key, Owner: in.Holders[i].Owner, Kind: in.Holders[i].Kind}]; h != nil && h.count > 0 {
			h.describe(&in.Holders[i])
			if m.store.votes() {
				in.Holders[i].Holds = h.count // on a node it counts one
			}
		}
	}
	plain := lockstore.LineKey{DB: db, Key: key}
	for _, k := range []lockstore.LineKey{plain, plain.Fairly(), {DB: db, Key: key, RW: true}} {
		if l := m.lines[k]; l != nil {
			in.Here += l.waiters.Len()
		}
	}
}

// describe adds what this proxy knows of a live hold. Manager.mu is held.
func (h *hold) describe(out *Holder) {
	out.Local, out.Held, out.Watched, out.Renewed, out.client = true, time.Since(h.grantedAt), h.watched, h.renewedAt, h.client
}
