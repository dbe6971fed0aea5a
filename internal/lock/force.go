package lock

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// force frees a lock whoever holds it, of whatever kind it is when r names no side.
func (c *Client) force(ctx context.Context, r UnlockRequest) (bool, error) {
	if err := c.m.nameable(r.Key); err != nil {
		return false, err
	}
	kinds := []Kind{r.Side}
	if r.Side == Plain {
		kinds = []Kind{Plain, Read} // either side will do for Redis to tell which one it is
	}
	var code int64
	for _, k := range kinds {
		var err error
		if code, err = c.forceKind(ctx, k, r); err != nil {
			return false, err
		}
		if code == 1 {
			c.m.log.Warn("lock freed by force", "key", r.Key, "kind", k, "db", r.DB, "by", c.info.Addr, "name", c.info.Name())
			c.m.recheckKey(lockstore.ID{DB: r.DB, Key: r.Key, Kind: k}.Line(), reasonForced)
		}
		if code != scripts.OtherKind {
			break
		}
	}
	switch code {
	case scripts.OtherKind:
		return false, otherKind(r.Key)
	case scripts.NoLock:
		return false, &Error{"WRONGTYPE", "the hash at '" + printable(r.Key) + "' is no lock"}
	case scripts.Late:
		return false, &upstream.NotSentError{Cause: errLate}
	}
	return code == 1, nil
}

// forceKind frees a lock of one kind.
func (c *Client) forceKind(ctx context.Context, k Kind, r UnlockRequest) (code int64, err error) {
	m, id := c.m, lockstore.ID{DB: r.DB, Key: r.Key, Kind: k}
	script, keys, rest := scripts.Force, lockstore.PlainKeys(r.Key), []string(nil)
	if k != Plain {
		keys = []string{r.Key, id.Line().Channel()}
		side := r.Side.String()
		if r.Side == Plain {
			side = ""
		}
		script, rest = scripts.RWForce, []string{side, lockstore.ReadPrefix(r.Key)}
	}
	code, err = m.store.force(ctx, func(notAfter string) node.Call {
		return node.Call{DB: r.DB, Script: script, Keys: keys, Args: append([]string{m.store.publishing(), notAfter}, rest...)}
	})
	if isUnknown(err) {
		err = outcomeUnknown("UNLOCK", err)
	}
	return code, err
}
