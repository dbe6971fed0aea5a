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
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Holder is one owner of a lock. The fields after Owned are known only of those that hold it through this proxy
// (Local). Times are in ms.
type Holder struct {
	lockstore.Owned
	Local    bool   `json:"-"`
	ClientID int64  `json:"client_id"` // 0 when the connection has gone whose hold it is; of a named owner the one that named it last
	Addr     string `json:"addr"`
	Name     string `json:"name"`
	User     string `json:"user"`
	Held     int64  `json:"held_ms,omitempty"`        // since it was granted
	Watched  bool   `json:"watched,omitempty"`        // the watchdog renews it
	Renewed  int64  `json:"renewed_ms_ago,omitempty"` // the last renewal, 1 at least; -1 before the first
	Renewals int64  `json:"renewals,omitempty"`
	Lease    int64  `json:"lease_ms,omitempty"` // of a renewal when it is watched, else as it was taken

	by *ClientInfo // the connection whose hold it is, or that waits; nil: nobody's here
}

// Introduce fills in whose the hold is. It asks the client's connection, so no mutex is held.
func (h *Holder) Introduce() {
	if h.by != nil {
		h.ClientID, h.Addr, h.Name, h.User = h.by.ID, h.by.Addr, h.by.Name(), h.by.User()
	}
}

// Info is what can be said of one lock.
type Info struct {
	lockstore.Info
	At      string   // the Redis that keeps it and no data; "": that of the data does, or a quorum
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

// Apart is whether locks can be had, at each Redis that keeps locks and no data, of which none is one of a quorum; and
// the address of all.
func (m *Manager) Apart() (where []Ability, at string) {
	if at = m.rules.At; at != "" {
		where, _ = m.Able()
	}
	return where, at
}

// Elsewhere says that locks are not where the data is.
func (m *Manager) Elsewhere() bool { return m.rules.Elsewhere() != "" }

// Able is why locks cannot be had, as trial locks of the last ten seconds showed; nil: they can. where has it for each
// Redis that keeps locks.
func (m *Manager) Able() (where []Ability, err error) { return m.store.Able() }

// Info reads a lock from Redis and adds what this proxy knows. Errors are Redis' own or that it cannot be reached.
func (m *Manager) Info(ctx context.Context, db int, key string) (Info, error) {
	return m.info(ctx, db, key, lockstore.AllOwners)
}

// Found is a lock that was found among the keys of Redis.
type Found struct {
	Key string
	Info
}

// mostShown is about how many holders are shown of each lock that was found.
const mostShown = 16

// Scan finds keys, and says where the next one goes on.
type Scan func() (next string, keys []string, err error)

// Find reads those of the keys that a scan finds which look like locks that somebody holds, one after the other. It
// passes over those that the service account may not use.
func (m *Manager) Find(ctx context.Context, db int, scan Scan) (next string, all []Found, err error) {
	if by := m.rules.Elsewhere(); by != "" {
		return "", nil, noScan(by)
	}
	next, keys, err := scan()
	if err != nil {
		return "", nil, err
	}
	for _, key := range keys {
		if len(key) > lockstore.MaxName || m.nameable(key) != nil {
			continue
		}
		in, err := m.info(ctx, db, key, mostShown)
		switch {
		case lockstore.Forbidden(err):
		case err != nil:
			return "", nil, err
		case in.Held():
			all = append(all, Found{key, in})
		}
	}
	return next, all, nil
}

// info is Info with about so many holders.
func (m *Manager) info(ctx context.Context, db int, key string, most int) (Info, error) {
	if err := m.nameable(key); err != nil {
		return Info{}, err
	}
	said, err := m.store.Info(ctx, db, key, most)
	if err != nil {
		return Info{Info: said}, err
	}
	in := Info{Info: said, At: m.rules.At, Here: m.lines.waitingAt(db, key)}
	now := time.Now()
	for _, o := range said.Owners {
		id := lockstore.ID{DB: db, Key: key, Owner: o.Owner, Kind: o.Kind}
		here := m.holds.entry(id, now).Holder
		if !here.Local {
			here = m.leases.entry(id, now).Holder
		}
		if m.rules.Votes && here.Local {
			o.Holds = here.Holds // each node counts one
		}
		here.Owned = o
		here.Introduce()
		in.Holders = append(in.Holders, here)
	}
	return in, nil
}

// Entry is one line of LOCKLIST: a lock held, or waited for, through a proxy. As JSON it is what proxies tell of it.
type Entry struct {
	DB     int    `json:"-"`
	Key    string `json:"-"`
	Holder        // Owner, Kind and Holds as the proxy knows them
	Left   int64  `json:"ttl_ms,omitempty"` // for how many ms it is sure of the lock without another renewal

	Place  int   `json:"place,omitempty"` // of one that waits: in its line at the proxy, from 1; 0: it holds the lock
	Fair   bool  `json:"fair,omitempty"`  // it waits in the fair queue
	Waited int64 `json:"waiting_ms,omitempty"`

	Proxy      string `json:"proxy,omitempty"`        // the id of the proxy that tells of it
	OwnerBytes []byte `json:"owner_base64,omitempty"` // of an owner that is no UTF-8
}

// List names the locks held and waited for through this proxy, by key: those that hold it, then those that wait. owner
// and pattern (Redis' glob) narrow it when not empty. What changes meanwhile may be in it, or not.
// Each entry is by itself, since a slice of so many that grows would be copied many times.
func (m *Manager) List(owner, pattern string) (out []*Entry) {
	m.Each(allFit, func(e Entry) { out = append(out, &e) })
	fits := glob.New(cmp.Or(pattern, "*"))
	out = slices.DeleteFunc(out, func(e *Entry) bool { return owner != "" && owner != e.Owner || !fits.Matches(e.Key) })
	for _, e := range out {
		e.Introduce()
	}
	slices.SortStableFunc(out, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Place, b.Place), cmp.Compare(b.Held, a.Held))
	})
	return out
}

// Each calls f with all that List has of the locks that fit, in no order, before Introduce has said who they are. Neither
// of both must block.
func (m *Manager) Each(fits Fits, f func(Entry)) {
	m.holds.each(fits, f)
	m.leases.each(fits, f)
	m.lines.each(fits, f)
}

// HeldLongest are the locks held through this proxy, those first that have been held for longest: n at most.
func (m *Manager) HeldLongest(n int) []Entry { return longest(n, m.holds.each, m.leases.each) }

// WaitingLongest are the verbs that wait at this proxy, those first that have waited for longest: n at most.
func (m *Manager) WaitingLongest(n int) []Entry { return longest(n, m.lines.each) }

// Fits says whether a lock is meant.
type Fits = func(db int, key string) bool

// each calls f with what one part of the engine has of the locks that fit, under that part's mutex.
type each = func(fits Fits, f func(Entry))

func allFit(int, string) bool { return true }

func longest(n int, parts ...each) (out []Entry) {
	var all []*Entry
	for _, each := range parts {
		each(allFit, func(e Entry) { all = append(all, &e) })
	}
	slices.SortStableFunc(all,
		func(a, b *Entry) int {
			return cmp.Or(cmp.Compare(b.Held+b.Waited, a.Held+a.Waited), cmp.Compare(a.Key, b.Key))
		})
	for _, e := range all[:min(n, len(all))] {
		e.Introduce()
		out = append(out, *e)
	}
	return out
}

// oldest is for how many ms somebody has held a lock, or waited.
func oldest(parts ...each) (age int64) {
	for _, each := range parts {
		each(allFit, func(e Entry) { age = max(age, e.Held, e.Waited) })
	}
	return age
}

// millis is a time in ms, which is not below 0 when a clock was set back.
func millis(d time.Duration) int64 { return max(0, d.Milliseconds()) }

// listPiece is how many things are looked at before others can have the mutex that guards them.
const listPiece = 256

// yield lets others have a mutex for a moment, when so many more things make it listPiece that are done.
func yield(mu *sync.Mutex, done *int, more int) {
	if *done += more; *done >= listPiece {
		*done = 0
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
	}
}

// each calls f with the connections' locks, all holders of a lock in one piece. The map may change between two pieces: a
// lock that is added then may be passed over.
func (hs *holds) each(fits Fits, f func(Entry)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now, done := time.Now(), 0
	for at, held := range hs.byKey {
		if fits(at.DB, at.Key) {
			hs.eachOf(held, now, f)
		}
		yield(&hs.mu, &done, held.Len())
	}
}

// eachOf calls f with the holders of one lock.
func (hs *records) eachOf(held chain.Chain[*record], now time.Time, f func(Entry)) {
	handed := handed(held)
	for rec := range held.All() {
		if rec.releasing && handed {
			continue
		}
		for _, side := range rec.sides() {
			f(rec.entry(side, hs.clock, now))
		}
	}
}

// entry is what this proxy knows of one side of a connection's hold; the zero value: nothing.
func (hs *holds) entry(id lockstore.ID, now time.Time) (e Entry) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if rec := hs.of(id); rec != nil && rec.counts.Of(id.Kind) > 0 {
		e = rec.entry(id.Kind, hs.clock, now)
	}
	return e
}

// entry is one side of a live hold, at one time for all that are listed together. holds.mu is held.
func (rec *record) entry(side Kind, by clock, now time.Time) Entry {
	e := Entry{DB: rec.id.DB, Key: rec.id.Key, Left: millis(by.time(rec.sure).Sub(now)), Holder: Holder{
		Owned: lockstore.Owned{Owner: rec.id.Owner, Kind: side, Holds: rec.counts.Of(side)}, Local: true,
		Held: millis(now.Sub(by.time(rec.granted))), Watched: rec.is == watched, Renewed: -1, Renewals: rec.renewals,
		Lease: millis(rec.lease),
	}}
	if renewed := by.time(rec.renewed); !renewed.IsZero() {
		e.Renewed = 1 + millis(now.Sub(renewed))
	}
	if rec.client != nil {
		e.by = &rec.client.info
	}
	return e
}

// sides are those that a hold has.
func (rec *record) sides() []Kind {
	switch {
	case !rec.id.Kind.Spec().RW:
		return []Kind{rec.id.Kind}
	case rec.counts.Reads == 0:
		return []Kind{Write}
	case rec.counts.Writes == 0:
		return []Kind{Read}
	}
	return []Kind{Read, Write}
}

// handed says that a lock has an owner here that is not releasing the lock: then the owners that are releasing the lock
// no longer have it. When a plain lock has two owners here, one has been handed the lock by the other.
func handed(held chain.Chain[*record]) bool {
	for rec := range held.All() {
		if !rec.releasing {
			return true
		}
	}
	return false
}

// each calls f with the locks of named owners.
func (ls *leases) each(fits Fits, f func(Entry)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now, done := time.Now(), 0
	for id, l := range ls.byID {
		if fits(id.DB, id.Key) {
			f(l.entry(now))
		}
		yield(&ls.mu, &done, 1)
	}
}

// entry is what this proxy knows of a named owner's lock; the zero value: nothing.
func (ls *leases) entry(id lockstore.ID, now time.Time) (e Entry) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byID[id]; l != nil {
		e = l.entry(now)
	}
	return e
}

func (l *lease) entry(now time.Time) Entry {
	return Entry{DB: l.id.DB, Key: l.id.Key, Left: millis(l.until.Sub(now)), Holder: Holder{
		Owned: lockstore.Owned{Owner: l.id.Owner, Kind: l.id.Kind, Holds: 1}, Local: true,
		Held: millis(now.Sub(l.granted)), Renewed: -1, Lease: millis(l.length), ClientID: l.client, Addr: l.by.Addr, Name: l.by.Name, User: l.by.User,
	}}
}

// each calls f with those who wait.
func (ls *lines) each(fits Fits, f func(Entry)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now, done := time.Now(), 0
	for key, l := range ls.byKey {
		if !fits(key.DB, key.Key) {
			continue
		}
		place := 0
		for at := l.waiters.Front(); at != nil; at = at.Next() {
			place++
			w := at.Value.(*waiter)
			f(Entry{DB: w.id.DB, Key: w.id.Key, Fair: w.r.Fair, Place: place, Waited: millis(now.Sub(w.since)), Holder: Holder{
				Owned: lockstore.Owned{Owner: w.id.Owner, Kind: w.id.Kind}, Local: true, by: &w.c.info,
			}})
		}
		yield(&ls.mu, &done, place)
	}
}
