package commands

import (
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// The options of all verbs, once each.
var (
	optBlock    = Option{Keyword: "BLOCK", Value: "milliseconds", kind: waiting}
	optEX       = Option{Keyword: "EX", Value: "seconds", kind: seconds, group: "lease"}
	optPX       = Option{Keyword: "PX", Value: "milliseconds", kind: milli, group: "lease"}
	optOwner    = Option{Keyword: "OWNER", Value: "id", kind: ownerName, group: "owner"}
	optLessee   = Option{Keyword: "OWNER", Value: "id", kind: ownerName, group: "owner", needs: errLeaseless}
	optSelf     = Option{Keyword: "SELF", group: "owner"}
	optLimit    = Option{Keyword: "LIMIT", Value: "n", kind: count}
	optFence    = Option{Keyword: "FENCE", not: "LIMIT"}
	optReplicas = Option{Keyword: "REPLICAS", Value: "n", kind: count, not: "LIMIT"}
	optAll      = Option{Keyword: "ALL", group: "much"}
	optForce    = Option{Keyword: "FORCE", group: "much", not: "OWNER"}
	optRead     = Option{Keyword: "READ", group: "side"}
	optWrite    = Option{Keyword: "WRITE", group: "side"}
	optAnyOwner = Option{Keyword: "OWNER", Value: "id", kind: text, group: "owner"}
	optMatch    = Option{Keyword: "MATCH", Value: "pattern", kind: text}
	optScan     = Option{Keyword: "SCAN", Value: "cursor", kind: text, group: "owner"}
	optCount    = Option{Keyword: "COUNT", Value: "count", kind: count}
)

// acquire is the verb that takes locks of one kind.
func acquire(kind lock.Kind) func(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	return func(v *Verb, c *Client, args [][]byte, out []byte) []byte {
		return v.acquire(c, kind, args, out)
	}
}

// lockRequest reads the options of a verb that takes locks; the key is still to be said.
func lockRequest(c *Client, v *Verb, kind lock.Kind, options [][]byte) (lock.Request, error) {
	g, err := parse(v.Options, options)
	if g.has("LIMIT") {
		kind = lock.Limit
	}
	return lock.Request{
		DB: c.Identity().DB, Kind: kind, Fair: v.Name == "fairlock", Blocks: g.has("BLOCK"), Block: g.number("BLOCK"),
		Lease: lease(g), Owner: g.word("OWNER"), Self: g.has("SELF"),
		Limit: g.number("LIMIT"), Fence: g.has("FENCE"), Replicas: g.number("REPLICAS"),
	}, err
}

func (v *Verb) acquire(c *Client, kind lock.Kind, args [][]byte, out []byte) []byte {
	r, err := lockRequest(c, v, kind, args[2:])
	if err != nil {
		return appendSyntax(out, err)
	}
	if err := c.Access.May(true, args[1:2]...); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	r.Key = string(args[1])
	grant, err := takeLock(c, r)
	switch {
	case err != nil:
		return appendFailure(out, c.proto(), err)
	case r.Fence:
		return resp.AppendInt(out, grant.Token)
	default:
		return resp.AppendSimple(out, "OK")
	}
}

// takeLock asks the engine for a lock.
func takeLock(c *Client, r lock.Request) (lock.Grant, error) {
	if r.Blocks {
		return waitForLock(c, r)
	}
	return c.Session.Locks().Lock(c.Traced(context.Background()), r)
}

// waitForLock is takeLock for a verb that waits. It is a function of its own so that r is on the stack without it.
func waitForLock(c *Client, r lock.Request) (grant lock.Grant, err error) {
	c.Session.Wait(func(ctx context.Context) {
		grant, err = c.Session.Locks().Lock(c.Traced(ctx), r)
		err = endOf(ctx, err)
	})
	return grant, err
}

// endOf is err or, if err only says that the wait has ended, the reason for that.
func endOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// lease is the lease a call gave in ms, 0 = none.
func lease(g given) int64 { return g.number("EX") + g.number("PX") }

// side is what a call said of READ and WRITE; lock.Plain = nothing.
func side(g given) lock.Kind {
	switch {
	case g.has("READ"):
		return lock.Read
	case g.has("WRITE"):
		return lock.Write
	}
	return lock.Plain
}

func unlock(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	g, err := parse(v.Options, args[2:])
	if err != nil {
		return appendSyntax(out, err)
	}
	if err := mayUnlock(c, g, args[1:2]...); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	if g.has("FORCE") {
		if err := c.Access.MayDelete(args[1]); err != nil {
			return appendFailure(out, c.proto(), err)
		}
	}
	key := string(args[1])
	free, err := c.Session.Locks().Unlock(c.Traced(context.Background()), lock.UnlockRequest{
		DB: c.Identity().DB, Key: key, Side: side(g), Owner: g.word("OWNER"), All: g.has("ALL"), Force: g.has("FORCE"),
	})
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	if free {
		return resp.AppendInt(out, 1)
	}
	return resp.AppendInt(out, 0)
}

// mayUnlock asks whether the client may give locks back. A connection gives back its own holds as it does when it
// closes, and needs no right for that: a refusal would leave them renewed.
func mayUnlock(c *Client, g given, keys ...[]byte) error {
	if g.word("OWNER") == "" && !g.has("FORCE") {
		return nil
	}
	return c.Access.May(true, keys...)
}

func renew(v *Verb, c *Client, args [][]byte, out []byte) []byte {
	g, err := parse(v.Options, args[2:])
	if err != nil {
		return appendSyntax(out, err)
	}
	if err := c.Access.May(true, args[1]); err != nil {
		return appendFailure(out, c.proto(), err)
	}
	key := string(args[1])
	err = c.Session.Locks().Renew(c.Traced(context.Background()), lock.RenewRequest{
		DB: c.Identity().DB, Key: key, Side: side(g), Owner: g.word("OWNER"), Lease: lease(g),
	})
	if err != nil {
		return appendFailure(out, c.proto(), err)
	}
	return resp.AppendInt(out, 1)
}
