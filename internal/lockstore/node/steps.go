package node

import (
	"cmp"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// Steps makes the scripts of steps.
type Steps struct {
	Publish string // the command with which scripts wake waiters
	Proxy   string // by which name this proxy is woken; "": all are, as on the nodes of a quorum
}

// stepScripts are the scripts of one kind of lock.
type stepScripts struct{ acquire, release, extend, renew, force, handoff *scripts.Script }

func scriptsOf(k lockstore.Kind) stepScripts {
	switch k {
	case lockstore.Plain:
		return stepScripts{scripts.Acquire, scripts.Release, scripts.Extend, scripts.Renew, scripts.Force, scripts.Handoff}
	case lockstore.Limit:
		return stepScripts{scripts.LimitAcquire, scripts.LimitRelease, scripts.LimitExtend, scripts.LimitRenew, scripts.LimitForce,
			scripts.LimitHandoff}
	}
	return stepScripts{scripts.RWAcquire, scripts.RWRelease, scripts.RWExtend, scripts.RWRenew, scripts.RWForce, scripts.RWHandoff}
}

// Acquire is the script of an acquire.
func (s Steps) Acquire(a *lockstore.Acquire, notAfter string) Call {
	id, token, there, writes := a.ID, "", "", number(a.Counts.Writes)
	if a.Fence {
		token = "1"
	}
	if a.Named() {
		there = cmp.Or(a.There, lockstore.Lengthens)
	}
	c := Call{DB: id.DB, Script: scriptsOf(id.Kind).acquire, Keys: id.Keys(), Shape: Shape{Least: granted}}
	proxy, queued := "", ""
	switch {
	case a.Queues:
		queued = number(a.Place)
	case a.Blocks:
		proxy = s.Proxy
	}
	switch lease, place := leaseText(a.Lease), number(a.Place); id.Kind {
	case lockstore.Plain:
		c.Args = []string{id.Owner, cmp.Or(there, writes), lease, notAfter, token, queued, s.Publish, proxy, place}
	case lockstore.Limit:
		c.Args = []string{id.Field(), cmp.Or(there, writes), lease, notAfter, number(a.Limit), s.Publish, proxy, place}
	default:
		c.Args = []string{id.Reader(), id.Side(), cmp.Or(there, number(a.Counts.Reads)), writes, lease, notAfter, token,
			lockstore.ReadPrefix(id.Key), proxy, place, s.Publish}
	}
	return c
}

// granted is how many numbers an acquire returns.
const granted = 5

func number(n int64) string { return strconv.FormatInt(n, 10) }

// leaseText is a lease in ms for a script: no longer than lockproxy itself counts with, since the embedded store ends
// longer ones at once.
func leaseText(ms int64) string { return number(lockstore.Milliseconds(ms).Milliseconds()) }

// Acquired reads what that script has returned.
func Acquired(a *lockstore.Acquire, out []int64) lockstore.Acquired {
	if out[0] == lockstore.Granted {
		got := lockstore.Acquired{Code: out[0], Made: out[1] == 1, TTL: out[2], Expiry: lockstore.ExpiryAt(out[4])}
		if a.ID.Kind == lockstore.Limit {
			got.Left = out[3]
		} else {
			got.Token = out[3]
		}
		return got
	}
	return lockstore.Acquired{Code: out[0], Turn: out[1] == 1, TTL: out[2], Place: out[3], Others: out[4]}
}

// Release is the script of a release.
func (s Steps) Release(r *lockstore.Release, notAfter string) Call {
	switch {
	case r.Forced():
		return s.force(r, notAfter)
	case r.Next != nil:
		return s.handoff(r, notAfter)
	}
	id, expiry, publish := r.ID, "", s.Publish
	if at := r.Expiry.On(0); at != 0 {
		expiry = number(at)
	}
	if r.Quiet {
		publish = ""
	}
	c := Call{DB: id.DB, Script: scriptsOf(id.Kind).release, Keys: id.Keys()}
	if !id.Kind.Spec().RW {
		c.Args = []string{id.Field(), number(r.Counts.Writes), notAfter, expiry, publish, s.Proxy}
		return c
	}
	side, reads, writes := id.Side(), "", ""
	if r.Whole {
		side = bothSides
	}
	if !r.Named {
		reads, writes = number(r.Counts.Reads), number(r.Counts.Writes)
	}
	c.Args = []string{id.Reader(), side, reads, writes, notAfter, expiry, publish, lockstore.ReadPrefix(id.Key), s.Proxy}
	return c
}

// bothSides is what a script on a read/write lock is told about all that a connection has.
const bothSides = "both"

// handoff is the script of a release that gives the lock on: it has the arguments of the release, and of each acquire.
func (s Steps) handoff(r *lockstore.Release, notAfter string) Call {
	why := ""
	switch {
	case r.Next.Others:
		why = "others"
	case r.Next.Turn:
		why = "proxies"
	case r.Next.Asks[0].ID.Kind.Spec().Shared:
		why = "share"
	}
	alone := *r
	alone.Next = nil
	all := s.Release(&alone, notAfter)
	all.Script, all.Shape = scriptsOf(r.ID.Kind).handoff, Shape{Least: 2 + granted*len(r.Next.Asks)}
	all.Args = append([]string{r.Next.Line.Channel(), why, s.Publish, s.Proxy}, all.Args...)
	for _, a := range r.Next.Asks {
		all.Args = append(all.Args, s.Acquire(a, notAfter).Args...)
	}
	return all
}

// Released reads what the script of a release has returned: what became of it, and what each of those has got that were
// to be handed the lock.
func Released(out []int64, r *lockstore.Release) lockstore.Released {
	done := lockstore.Released{Code: out[0]}
	if r.Next == nil {
		return done
	}
	done.Turn = out[1]
	for i, a := range r.Next.Asks {
		done.Given = append(done.Given, Acquired(a, out[2+granted*i:2+granted*(i+1)]))
	}
	return done
}

// Renew is the script of a renewal.
func Renew(r lockstore.Renewal, notAfter string) Call {
	holds, how := len(r.Holds), "lengthen"
	if r.Sets {
		how = "set"
	}
	c := Call{DB: r.DB, Script: scriptsOf(r.Kind).renew, Shape: Shape{Least: holds, Late: true}}
	c.Keys, c.Args = make([]string, 0, holds), append(make([]string, 0, 2+2*holds), notAfter)
	if r.Kind == lockstore.Plain {
		c.Args = append(c.Args, how)
	}
	for _, h := range r.Holds {
		c.Keys = append(c.Keys, h.ID.Key)
		if r.Kind == lockstore.Write {
			c.Args = append(c.Args, h.ID.Reader(), number(h.Counts.Reads), number(h.Counts.Writes), leaseText(h.Lease),
				lockstore.ReadPrefix(h.ID.Key))
		} else {
			c.Args = append(c.Args, h.ID.Field(), leaseText(h.Lease))
		}
	}
	return c
}

// Extend is the script of an extension; again says that an earlier request may have been done.
func Extend(e lockstore.Extension, again bool, notAfter string) Call {
	how, expiry := "set", ""
	switch {
	case e.Expiry.On(0) != 0:
		how, expiry = "keep", number(e.Expiry.On(0))
	case e.Named() && again:
		how = lockstore.Lengthens
	case e.Named():
		how = lockstore.Renews
	}
	id := e.ID
	c := Call{DB: id.DB, Script: scriptsOf(id.Kind).extend, Keys: []string{id.Key}, Shape: Shape{Least: 3}}
	c.Args = []string{id.Field(), leaseText(e.Lease), notAfter, how, expiry}
	if id.Kind.Spec().RW {
		side := id.Side()
		if !e.Named() {
			side = bothSides
		}
		c.Args = []string{id.Reader(), side, leaseText(e.Lease), notAfter, how, expiry, lockstore.ReadPrefix(id.Key)}
	}
	return c
}

// force is the script that frees a lock, whoever holds it.
func (s Steps) force(r *lockstore.Release, notAfter string) Call {
	c := Call{DB: r.ID.DB, Script: scriptsOf(r.ID.Kind).force, Keys: r.ID.WaitKeys(), Args: []string{s.Publish, notAfter}}
	if r.ID.Kind.Spec().RW {
		side := ""
		if !r.Whole {
			side = r.ID.Kind.String()
		}
		c.Args = append(c.Args, side, lockstore.ReadPrefix(r.ID.Key))
	}
	return c
}

// ForceOwner is the script that takes all that one owner has of a lock that is freed by force, by the owner's field.
func (s Steps) ForceOwner(r *lockstore.Release, field, notAfter string) Call {
	id := r.ID
	id.Owner = field
	c := s.Release(&lockstore.Release{ID: id, Whole: true}, notAfter)
	if id.Kind.Spec().RW {
		c.Args[0] = field
	}
	return c
}

// Refresh is the script that says which owners wait in a fair queue.
func (s Steps) Refresh(q lockstore.Queue, notAfter string) Call {
	args := append(make([]string, 0, 2+2*len(q.Positions)), notAfter, s.Publish)
	for _, p := range q.Positions {
		args = append(args, p.ID.Field(), number(p.Place))
	}
	return Call{DB: q.DB, Script: scripts.Refresh, Keys: lockstore.QueueKeys(q.Key), Args: args,
		Shape: Shape{Names: len(q.Positions)}}
}

// Leave is the script that takes an owner out of a fair queue.
func (s Steps) Leave(id lockstore.ID, notAfter string) Call {
	return Call{DB: id.DB, Script: scripts.Leave, Keys: lockstore.QueueKeys(id.Key),
		Args: []string{notAfter, s.Publish, id.Field()}}
}

// Vacant is the script that wakes those that wait for locks, if the locks are free.
func (s Steps) Vacant(holds []lockstore.ID) Call {
	letters := make([]byte, 0, len(holds))
	keys := make([]string, 0, 2*len(holds))
	args := make([]string, 2, 2+len(holds))
	for _, id := range holds {
		letters = append(letters, id.Kind.Spec().Letter)
		args = append(args, id.Field())
		keys = append(keys, id.WaitKeys()...)
	}
	args[0], args[1] = s.Publish, string(letters)
	return Call{DB: holds[0].DB, Script: scripts.Vacant, Keys: keys, Args: args, Shape: Shape{Least: len(holds)}}
}

// Guarded is the call with a key that never exists, for a cluster. The script touches keys that it does not declare, or
// one that it has deleted. In a slot that is moving Redis would stop it there, in the middle; this key makes Redis
// refuse the script before it begins.
func (c Call) Guarded() Call {
	switch c.Script {
	case scripts.Renew, scripts.Extend:
		return c // their only keys are those that they declare
	}
	c.Keys = append(c.Keys[:len(c.Keys):len(c.Keys)], lockstore.GuardKey(c.Keys[0]))
	return c
}
