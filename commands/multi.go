package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func names(keys [][]byte) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = string(key)
	}
	return out
}

func multilock(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	keys, rest, _ := v.split(args) // run has checked the error
	r, err := lockRequest(c, v, lock.Plain, rest)
	if err != nil {
		return appendSyntax(out, err)
	}
	if r.Owner != "" && r.Blocks && (r.Block == 0 || r.Block >= r.Lease) {
		return appendSyntax(out, errOutlived)
	}
	if err := c.Access.May(true, keys...); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	var grants []lock.Grant
	locks := names(keys)
	if r.Blocks {
		c.Session.Wait(func(ctx context.Context) {
			grants, err = c.Session.Locks().MultiLock(c.Traced(ctx), locks, r)
			err = endOf(ctx, err)
		})
	} else {
		grants, err = c.Session.Locks().MultiLock(c.Traced(context.Background()), locks, r)
	}
	switch {
	case err != nil:
		return appendFailure(out, c.proto(), err)
	case !r.Fence:
		return resp.AppendSimple(out, "OK")
	}
	out = resp.AppendArray(out, len(grants))
	for _, g := range grants {
		out = resp.AppendInt(out, g.Token)
	}
	return out
}

func multiunlock(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	keys, rest, _ := v.split(args)
	g, err := parse(v.Options, rest)
	if err != nil {
		return appendSyntax(out, err)
	}
	if err := mayUnlock(c, g, keys...); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	locks := names(keys)
	freed, err := c.Session.Locks().MultiUnlock(c.Traced(context.Background()), locks,
		lock.UnlockRequest{DB: c.Identity().DB, Owner: g.word("OWNER")})
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	return resp.AppendInt(out, freed)
}
