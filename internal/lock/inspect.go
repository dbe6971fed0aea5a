package lock

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/glob"
	"github.com/lockproxy/lockproxy/internal/hottest"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Holder is one owner of a lock. The fields after Owned are known only of those that hold it through this proxy (Local).
type Holder struct {
	lockstore.Owned
	Local    bool
	ClientID int64 // 0 when the connection has gone whose hold it is; of a named owner the one that named it last
	Addr     string
	Name     string
	User     string
	Held     time.Duration // since it was granted
	Watched  bool          // the watchdog renews it
	Renewed  time.Time     // the last renewal, zero before the first
	Renewals int64
	Lease    time.Duration // of a renewal when it is watched, else as it was taken

	by ClientInfo // the connection whose hold it is, or that named the owner last; the zero value: nobody's here
}

// introduce fills in whose the hold is. It asks the client's connection, so no mutex is held.
func (h *Holder) introduce() {
	if h.by.ID != 0 {
		h.ClientID, h.Addr, h.Name, h.User = h.by.ID, h.by.Addr, h.by.Name(), h.by.User()
	}
}

// Info is what can be said of one lock.
type Info struct {
	lockstore.Info
	Holders []Holder // its Owners
	Here    int      // waiters on this proxy
}

// Ability is whether locks can be had at one Redis.
type Ability = lockstore.Ability

// NodeInfo is one node of a quorum.
type NodeInfo = lockstore.NodeInfo

// Nodes says how the nodes of a quorum are; nil when there is none.
func (m *Manager) Nodes() (all []NodeInfo) {
	where, _ := m.store.Able()
	for _, a := range where {
		if a.Info != nil {
			all = append(all, *a.Info)
		}
	}
	return all
}

// Able is why locks cannot be had, as trial locks of the last ten seconds showed; nil: they can. where has it for each Redis that keeps locks.
func (m *Manager) Able() (where []Ability, err error) { return m.store.Able() }

// Info reads a lock from Redis and adds what this proxy knows. Errors are Redis' own or that it cannot be reached.
func (m *Manager) Info(ctx context.Context, db int, key string) (Info, error) {
	if err := m.nameable(key); err != nil {
		return Info{}, err
	}
	said, err := m.store.Info(ctx, db, key)
	in := Info{Info: said}
	for _, o := range said.Owners {
		in.Holders = append(in.Holders, Holder{Owned: o})
	}
	if err == nil {
		in.Here = m.lines.waitingAt(db, key)
		m.holds.describe(in.Holders, db, key)
		m.leases.describe(in.Holders, db, key)
		for i := range in.Holders {
			in.Holders[i].introduce()
		}
	}
	return in, err
}

// describe adds what this proxy knows of the holders of one lock that are its connections.
func (hs *holds) describe(all []Holder, db int, key string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := time.Now()
	for i := range all {
		id := lockstore.ID{DB: db, Key: key, Owner: all[i].Owner, Kind: all[i].Kind}
		rec := hs.byID[id.Hold()]
		if rec == nil || rec.counts.Of(id.Kind) == 0 {
			continue
		}
		rec.describe(&all[i], now)
		if hs.votes {
			all[i].Holds = rec.counts.Of(id.Kind) // each node counts one
		}
	}
}

// describe adds what this proxy knows of a live hold, at one time for all that are listed together. holds.mu is held.
func (rec *record) describe(out *Holder, now time.Time) {
	out.Local, out.Held, out.Watched = true, max(0, now.Sub(rec.granted)), rec.watched
	out.Renewed, out.Renewals, out.Lease = rec.renewed, rec.renewals, rec.lease
	if rec.client != nil {
		out.by = rec.client.info
	}
}

// describe adds what this proxy knows of the holders of one lock that are named owners.
func (ls *leases) describe(all []Holder, db int, key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	for i := range all {
		if l := ls.byID[lockstore.ID{DB: db, Key: key, Owner: all[i].Owner, Kind: all[i].Kind}]; l != nil {
			l.describe(&all[i], now)
		}
	}
}

func (l *lease) describe(out *Holder, now time.Time) {
	out.Local, out.Held, out.Lease, out.by = true, max(0, now.Sub(l.granted)), l.length, l.by
}

// Entry is one line of LOCKLIST: a lock held, or waited for, through this proxy.
type Entry struct {
	DB      int
	Key     string
	Waiting bool
	Fair    bool          // it waits in the fair queue
	Place   int           // of one that waits: in its line here, from 1
	Holder                // Owner, Kind and Holds as this proxy knows them; Held is the time waited when Waiting
	Left    time.Duration // how long we are sure of it without another renewal
}

// listPiece is how many holds LOCKLIST looks at before it lets others have the engine's mutex.
const listPiece = 256

// List names the locks held and waited for through this proxy, by key and owner. owner and pattern (Redis' glob) narrow
// it when not empty. What changes meanwhile may be in it, or not.
func (m *Manager) List(owner, pattern string) []Entry {
	out := slices.Concat(m.holds.listHeld(owner), m.leases.list(owner), m.lines.listWaiting(owner))
	if pattern != "" {
		fits := glob.New(pattern)
		out = slices.DeleteFunc(out, func(e Entry) bool { return !fits.Matches(e.Key) })
	}
	for i := range out {
		out[i].introduce()
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		if c := cmp.Compare(a.Key, b.Key); c != 0 || a.Waiting == b.Waiting {
			return c
		}
		if a.Waiting {
			return 1
		}
		return -1
	})
	return out
}

// HeldLongest are the locks held through this proxy, those first that have been held for longest: n at most.
func (m *Manager) HeldLongest(n int) []Entry {
	return longest(append(m.holds.listHeld(""), m.leases.list("")...), n)
}

// WaitingLongest are the verbs that wait at this proxy, those first that have waited for longest: n at most.
func (m *Manager) WaitingLongest(n int) []Entry { return longest(m.lines.listWaiting(""), n) }

func longest(all []Entry, n int) []Entry {
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Key, b.Key)) })
	all = all[:min(n, len(all))]
	for i := range all {
		all[i].introduce()
	}
	return all
}

// yield lets others have a mutex that is held for a moment, after every listPiece things.
func yield(mu *sync.Mutex, done int) {
	if done%listPiece == 0 {
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
	}
}

// listHeld names the locks held, all holders of one in one look. The map may change between two pieces: what is added then may be passed over.
func (hs *holds) listHeld(owner string) (out []Entry) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now, done := time.Now(), 0
	if owner == "" {
		out = make([]Entry, 0, len(hs.byKey)+listPiece) // those who wait are added: with ten thousand locks, to grow costs more than all else
	}
	for _, held := range hs.byKey {
		handed := handed(held)
		for rec := range held.All() {
			if owner != "" && owner != rec.id.Owner || rec.releasing && handed {
				continue
			}
			for _, kind := range rec.kinds() {
				e := Entry{DB: rec.id.DB, Key: rec.id.Key, Left: max(0, rec.sure.Sub(now))}
				e.Owner, e.Kind, e.Holds = rec.id.Owner, kind, rec.counts.Of(kind)
				rec.describe(&e.Holder, now)
				out = append(out, e)
			}
		}
		if done += held.Len(); done >= listPiece {
			done = 0
			yield(&hs.mu, done)
		}
	}
	return out
}

// kinds are the sides that a hold has.
func (rec *record) kinds() []Kind {
	switch {
	case rec.id.Kind == Plain:
		return []Kind{Plain}
	case rec.counts.Reads == 0:
		return []Kind{Write}
	case rec.counts.Writes == 0:
		return []Kind{Read}
	}
	return []Kind{Read, Write}
}

// handed says that a lock has an owner here that is not releasing it: then those that are releasing it no longer have it. When a plain lock
// has two owners here, one has been handed it by the other.
func handed(held chain.Chain[*record]) bool {
	for rec := range held.All() {
		if !rec.releasing {
			return true
		}
	}
	return false
}

// list names the locks of named owners.
func (ls *leases) list(owner string) (out []Entry) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now, done := time.Now(), 0
	for _, held := range ls.byKey {
		for l := range held.All() {
			if owner != "" && owner != l.id.Owner {
				continue
			}
			e := Entry{DB: l.id.DB, Key: l.id.Key, Left: max(0, l.until.Sub(now))}
			e.Owner, e.Kind, e.Holds = l.id.Owner, l.id.Kind, 1
			l.describe(&e.Holder, now)
			out = append(out, e)
		}
		done++
		yield(&ls.mu, done)
	}
	return out
}

// listWaiting names those who wait.
func (ls *lines) listWaiting(owner string) (out []Entry) {
	type placed struct {
		*waiter // what is said of it below never changes
		place   int
	}
	var all []placed
	ls.mu.Lock()
	done := 0
	for _, l := range ls.byKey {
		place := 0
		for at := l.waiters.Front(); at != nil; at = at.Next() {
			place++
			if w := at.Value.(*waiter); owner == "" || owner == w.id.Owner {
				all = append(all, placed{w, place})
			}
		}
		done++
		yield(&ls.mu, done)
	}
	ls.mu.Unlock()
	now := time.Now()
	for _, w := range all {
		e := Entry{DB: w.id.DB, Key: w.id.Key, Waiting: true, Fair: w.r.Fair, Place: w.place}
		e.Holder = Holder{Owned: lockstore.Owned{Owner: w.id.Owner, Kind: w.id.Kind}, Local: true, Held: now.Sub(w.since), by: w.c.info}
		out = append(out, e)
	}
	return out
}

// Hottest are the locks that were waited for most here, those first, as many as asked for. The counts are rough.
func (m *Manager) Hottest(most int) []hottest.Entry { return m.lines.hottest.Top(most) }

// ForgetHottest begins to count anew.
func (m *Manager) ForgetHottest() { m.lines.hottest.Reset() }

// Ages are how long the oldest hold through this proxy has lasted, and how long the longest wait has; 0: there is none.
func (m *Manager) Ages() (hold, wait time.Duration) {
	return max(m.holds.oldest(), m.leases.oldest()), m.lines.longestWait()
}

func (hs *holds) oldest() (age time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	done := 0
	for _, rec := range hs.byID {
		if done++; rec.live() {
			age = max(age, time.Since(rec.granted))
		}
		yield(&hs.mu, done)
	}
	return age
}

// oldest is how long ago the first of the leases was granted that there are.
func (ls *leases) oldest() (age time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	done := 0
	for _, l := range ls.byID {
		age = max(age, time.Since(l.granted))
		done++
		yield(&ls.mu, done)
	}
	return age
}

func (ls *lines) longestWait() (age time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	done := 0
	for _, l := range ls.byKey {
		for at := l.waiters.Front(); at != nil; at = at.Next() { // a fair queue is not in the order of arrival
			age = max(age, time.Since(at.Value.(*waiter).since))
		}
		done++
		yield(&ls.mu, done)
	}
	return age
}
