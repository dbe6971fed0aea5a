package node

import (
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// Steps makes the scripts of steps.
type Steps struct {
	Publish            string // the command with which scripts wake waiters
	FairWait, FenceTTL string // in ms
}

// NewSteps is for scripts that wake waiters with publish.
func NewSteps(publish string, h lockstore.Host) Steps {
	return Steps{publish, strconv.FormatInt(h.FairWait.Milliseconds(), 10), strconv.FormatInt(h.FenceTTL.Milliseconds(), 10)}
}

// Acquire is the script of an acquire.
func (s Steps) Acquire(a *lockstore.Acquire, notAfter string) Call {
	id, flags := a.ID, acquireFlags(a)
	keys := id.AcquireKeys()
	if a.Fence {
		keys = append(keys, lockstore.TokenKey(id.Key))
	}
	if a.Named {
		keys = append(keys, id.WatchKey())
	}
	c := Call{DB: id.DB, Script: id.Kind.Spec().Acquire, Keys: keys, Shape: Shape{Least: 4, Grant: true, Alone: AnyShort}}
	c.Args = append(make([]string, 0, 9), leaseText(a.Lease), id.Field(), notAfter, flags)
	if id.Kind != lockstore.Plain {
		c.Args = append(append(c.Args, string(a.Registration), s.FenceTTL), id.Rest()...)
		return c
	}
	c.Args = append(c.Args, s.Publish)
	if flags == "" || flags == "N" { // each ARGV costs Redis time, and no other is looked at
		return c
	}
	c.Args = append(c.Args, string(a.Registration), s.FenceTTL)
	if a.Queues {
		c.Args = append(c.Args, s.FairWait, strconv.FormatInt(a.Ticket, 10))
	}
	return c
}

// leaseText is a lease in ms for a script: no longer than lockproxy itself counts with, since the embedded store ends longer ones at once.
func leaseText(ms int64) string {
	return strconv.FormatInt(lockstore.Milliseconds(ms).Milliseconds(), 10)
}

func acquireFlags(a *lockstore.Acquire) (flags string) {
	if a.Fence {
		flags = "F"
	}
	switch {
	case a.Named && a.Watched:
		flags += "OW"
	case a.Named:
		flags += "OD"
	default: // nobody else knows this owner: what Redis may have of it besides was lost or never heard of
		if a.Count == 0 {
			flags += "N"
		}
		if a.ID.Kind.Spec().RW && !a.Beside {
			flags += "M"
		}
	}
	if a.Queues && a.ID.Kind == lockstore.Plain {
		flags += "E"
	}
	return flags
}

// Acquired reads what that script has returned. One number alone is the answer of a common case: see acquire_short.lua.
func Acquired(a *lockstore.Acquire, out []int64) lockstore.Acquired {
	if len(out) == 1 {
		switch n := out[0]; {
		case n == 0:
			return lockstore.Acquired{Code: lockstore.Granted, Count: 1, TTL: a.Lease}
		case n > 0:
			return lockstore.Acquired{Code: lockstore.Granted, Count: n, TTL: a.Lease, Raised: true}
		default:
			return lockstore.Acquired{TTL: -16 - n, Token: a.Ticket} // it keeps its place, if it has one
		}
	}
	got := lockstore.Acquired{Code: out[0], Count: out[1], TTL: out[2], Token: out[3]}
	if got.Code == lockstore.Granted {
		got.Raised, got.Unrenewed = out[4] > 0, out[4] < 0
	}
	return got
}

// released is the shape of what a release returns.
var released = Shape{Least: 2, Alone: AnyShort}

// Release is the script of a release.
func (s Steps) Release(r *lockstore.Release, notAfter string) Call {
	id := r.ID
	keys, flags := id.ReleaseKeys(), ""
	if r.All {
		flags += "A"
	}
	if r.Named {
		keys, flags = append(keys, id.WatchKey()), flags+"W"
	}
	if r.Alone {
		flags += "X"
	}
	args := append(make([]string, 0, 7), id.Field(), s.Publish, notAfter, flags)
	if id.Kind == lockstore.Plain && !r.Named { // each ARGV costs Redis time, and no other is looked at
		return Call{DB: id.DB, Script: scripts.Release, Keys: keys, Args: args, Shape: released}
	}
	args = append(args, string(r.Registration))
	return Call{DB: id.DB, Script: id.Kind.Spec().Release, Keys: keys, Args: append(args, id.Rest()...), Shape: released}
}

// Released reads what that script has returned. One number alone is the answer of a common case: see release_short.lua.
func Released(out []int64) (code, left int64) {
	switch {
	case len(out) > 1:
		return out[0], out[1]
	case out[0] == 1:
		return lockstore.Freed, 0
	}
	return lockstore.StillHeld, out[0] - 1
}

// Brief leaves out the ARGV that most calls do not need: each costs Redis as much time as a quarter of a command does. See
// acquire_short.lua, and the others of that name.
func (c Call) Brief() Call {
	a := c.Args
	switch {
	case c.Script == scripts.Acquire:
		c.Args = briefAcquire(a)
	case c.Script == scripts.Release && len(a) == 4 && a[3] == "":
		if c.Args = a[:3]; a[1] == Publish {
			c.Args = append(a[:1], a[2])
		}
	case (c.Script == scripts.ReadAcquire || c.Script == scripts.WriteAcquire) && a[3] == "NM":
		c.Args = a[:3]
	case (c.Script == scripts.ReadAcquire || c.Script == scripts.WriteAcquire) && a[3] == "M":
		c.Args = a[:4]
	case (c.Script == scripts.Renew || c.Script == scripts.ReadRenew) && len(a[2]) == 1:
		c.Args = append(a[:2], a[3:]...)
	case (c.Script == scripts.ReadRelease || c.Script == scripts.WriteRelease) && a[3] == "":
		c.Args = append(a[:3], a[5:]...)
	}
	return c
}

func briefAcquire(a []string) []string {
	flags, plain := a[3], a[4] == Publish
	switch {
	case flags == "N" && plain:
		return a[:3]
	case flags == "N":
		return append(a[:3], a[4])
	case flags == "" && plain:
		return a[:4]
	case flags == "NE" && plain:
		return append(a[:4], a[8], a[7])
	case (flags == "OW" || flags == "OD") && plain && a[5] != "" && (flags == "OW") == lockstore.Registration(a[5]).Renewed():
		return append(a[:3], a[5])
	}
	return a
}

// Pass is the short script of most hand-offs, to one other owner that asks for nothing besides.
func (s Steps) Pass(r *lockstore.Release, h *lockstore.Handoff, notAfter string) (c Call, short bool) {
	if h.Turn || len(h.Asks) != 1 || h.Asks[0].ID.Kind.Spec().Shared {
		return c, false
	}
	back, next := s.Release(r, notAfter), s.Acquire(h.Asks[0], notAfter)
	b, n := back.Args, next.Args
	side := "write"
	if back.Script == scripts.ReadRelease {
		side = "read"
	}
	c = Call{DB: back.DB, Script: scripts.Pass, Keys: back.Keys}
	switch flags := b[3] + ">" + n[3]; {
	case back.Script == scripts.Release && (flags == ">N" || flags == ">NE"):
		c.Args = []string{b[0], n[1], n[0], notAfter}
	case back.Script == scripts.Release && (flags == "AW>OW" || flags == "AW>OD") && b[4] != "" && n[5] != "":
		c.Keys = append(slices.Clip(c.Keys), next.Keys[2])
		c.Args = []string{b[0], n[1], n[0], notAfter, b[4], n[5]}
	case back.Script != scripts.Release && flags == ">NM":
		c.Script, c.Args = scripts.RWPass, []string{b[0], b[5], n[1], n[0], notAfter, side}
	default:
		return c, false
	}
	return c, true
}

// Handoff is the script of a release that gives the lock to others.
func (s Steps) Handoff(r *lockstore.Release, h *lockstore.Handoff, notAfter string) Call {
	letters := ""
	if h.Turn {
		letters += "T"
	}
	if h.Asks[0].ID.Kind.Spec().Shared {
		letters += "S"
	}
	var one [1]Call // which most have
	asks := one[:0]
	for _, a := range h.Asks {
		asks = append(asks, s.Acquire(a, notAfter))
	}
	return handing(s.Release(r, notAfter), asks, h.Line, letters, s.Publish)
}

// handing is the script that gives back a hold of a lock and gives it to those who ask.
func handing(release Call, asks []Call, of lockstore.LineKey, letters, publish string) Call {
	all := Call{DB: release.DB, Script: scripts.Handoff, Keys: release.Keys}
	if of.RW {
		all.Script = scripts.RWHandoff
	}
	all.Args = []string{strconv.Itoa(len(asks)), of.Channel(), letters, publish}
	all.Shape.Least = 3 + 5*len(asks)
	args := release.Args
	describe(&all, release)
	for _, step := range asks {
		describe(&all, step)
		all.Keys, args = append(all.Keys, step.Keys...), append(args, step.Args...)
	}
	all.Args = append(all.Args, args...)
	return all
}

// describe appends what the script is to know of one of its steps.
func describe(c *Call, step Call) {
	c.Args = append(c.Args, step.Script.Name, strconv.Itoa(len(step.Keys)), strconv.Itoa(len(step.Args)))
}

// Renew is the script of a renewal.
func Renew(r lockstore.Renewal, notAfter string) Call {
	letters := make([]byte, 0, len(r.Holds))
	keys := make([]string, 0, len(r.Holds))
	args := make([]string, 3, 3+len(r.Holds))
	for _, h := range r.Holds {
		keys, args = append(keys, h.ID.Keys()...), append(args, h.ID.Field())
		if h.Registration != "" {
			letters = append(letters, 'W')
			keys, args = append(keys, h.ID.WatchKey()), append(args, string(h.Registration))
		} else {
			letters = append(letters, '-')
		}
	}
	args[0], args[1], args[2] = strconv.FormatInt(r.Lease.Milliseconds(), 10), notAfter, string(letters)
	return Call{DB: r.DB, Script: r.Kind.Spec().Renew, Keys: keys, Args: args, Shape: Shape{Least: len(r.Holds), Alone: TooLate}}
}

// Extend is the script of an extension.
func Extend(e lockstore.Extension, notAfter string) Call {
	keys, flags := e.ID.Keys(), ""
	if e.Named {
		keys, flags = append(keys, e.ID.WatchKey()), "W"
		if e.Again {
			flags += "R"
		}
	}
	if e.Watched {
		flags += "K"
	}
	args := []string{leaseText(e.Lease), e.ID.Field(), notAfter, flags, string(e.Registration), string(e.Known)}
	return Call{DB: e.ID.DB, Script: e.ID.Kind.Spec().Extend, Keys: keys, Args: append(args, e.ID.Rest()...), Shape: Shape{Least: 3}}
}

// Force is the script that frees a lock, whoever holds it.
func (s Steps) Force(f lockstore.Forcing, notAfter string) Call {
	if f.Kind == lockstore.Plain {
		return Call{DB: f.DB, Script: scripts.Force, Keys: lockstore.PlainKeys(f.Key), Args: []string{s.Publish, notAfter}}
	}
	side, channel := "", lockstore.ID{Key: f.Key, Kind: f.Kind}.Line().Channel()
	if f.Side != lockstore.Plain {
		side = f.Side.String()
	}
	return Call{DB: f.DB, Script: scripts.RWForce, Keys: []string{f.Key, channel}, Args: []string{s.Publish, notAfter, side, lockstore.ReadPrefix(f.Key)}}
}

// Refresh is the script that says which owners wait in a fair queue.
func (s Steps) Refresh(q lockstore.Queue, notAfter string) Call {
	args := append(make([]string, 0, 3+2*len(q.Places)), notAfter, s.Publish, s.FairWait)
	for _, p := range q.Places {
		args = append(args, p.ID.Field(), strconv.FormatInt(p.Ticket, 10))
	}
	return Call{DB: q.DB, Script: scripts.Refresh, Keys: lockstore.PlainKeys(q.Key), Args: args, Shape: Shape{Names: len(q.Places)}}
}

// Leave is the script that takes an owner out of a fair queue.
func (s Steps) Leave(id lockstore.ID, notAfter string) Call {
	return Call{DB: id.DB, Script: scripts.Leave, Keys: lockstore.PlainKeys(id.Key), Args: []string{notAfter, s.Publish, id.Field()}}
}

// Vacant is the script that wakes those that wait for locks, if the locks are free.
func (s Steps) Vacant(holds []lockstore.ID) Call {
	letters := make([]byte, 0, len(holds))
	keys := make([]string, 0, 2*len(holds))
	args := make([]string, 2, 2+len(holds))
	for _, id := range holds {
		letters = append(letters, id.Kind.Spec().Letter)
		args = append(args, id.Field())
		if id.Kind == lockstore.Plain {
			keys = append(keys, lockstore.PlainKeys(id.Key)...)
		} else {
			keys = append(keys, id.Key, id.Line().Channel())
		}
	}
	args[0], args[1] = s.Publish, string(letters)
	return Call{DB: holds[0].DB, Script: scripts.Vacant, Keys: keys, Args: args, Shape: Shape{Least: len(holds)}}
}

// guarded says whether a script touches keys that it does not declare, or one that it has deleted. In a slot that is moving
// Redis would stop it there, in the middle. A key that never exists makes Redis refuse the script before it begins.
func guarded(c Call) bool {
	switch c.Script {
	case scripts.Renew, scripts.Extend, scripts.Look:
		return false
	}
	return true
}

// Guarded is the call with the key that guards it on a cluster, where it needs that.
func (c Call) Guarded() Call {
	if guarded(c) {
		c.Keys = append(c.Keys[:len(c.Keys):len(c.Keys)], lockstore.GuardKey(c.Keys[0]))
	}
	return c
}
