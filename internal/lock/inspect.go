package lock

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/hottest"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Holder is one owner of a lock. The fields after Owned are known only of those that hold it through this proxy (Local).
type Holder struct {
	lockstore.Owned
	Local    bool
	ClientID int64 // 0 when the connection that named the owner has gone
	Addr     string
	Name     string
	User     string
	Held     time.Duration // since it was granted
	Watched  bool          // the watchdog renews it
	Renewed  time.Time     // the last renewal, zero before the first
	Renewals int64
	Lease    time.Duration // of a renewal when it is watched, else as it was taken

	client *Client // whose hold it is; nil: nobody's here
}

// introduce fills in who the holder is. It asks the client's connection, so no mutex is held.
func (h *Holder) introduce() {
	if h.client != nil {
		h.ClientID, h.Addr, h.Name = h.client.info.ID, h.client.info.Addr, h.client.info.Name()
		h.User = h.client.info.User()
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
func (m *Manager) Nodes() []NodeInfo { return m.store.Nodes() }

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
		for i := range in.Holders {
			in.Holders[i].introduce()
		}
	}
	return in, err
}

// describe adds what this proxy knows of the holders of one lock.
func (hs *holds) describe(all []Holder, db int, key string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := time.Now()
	for i := range all {
		if h := hs.byID[lockstore.ID{DB: db, Key: key, Owner: all[i].Owner, Kind: all[i].Kind}]; h != nil && h.count > 0 {
			h.describe(&all[i], now)
			if hs.store.Rules().Votes {
				all[i].Holds = h.count // each node counts one
			}
		}
	}
}

// describe adds what this proxy knows of a live hold, at one time for all that are listed together. holds.mu is held.
func (h *hold) describe(out *Holder, now time.Time) {
	out.Local, out.Held, out.Watched, out.client = true, max(0, now.Sub(h.grantedAt)), h.watched, h.client
	out.Renewed, out.Renewals, out.Lease = h.renewedAt, h.renewals, h.lease
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
	out := append(m.holds.listHeld(owner), m.lines.listWaiting(owner)...)
	if pattern != "" {
		out = slices.DeleteFunc(out, func(e Entry) bool { return !Glob(pattern, e.Key) })
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
func (m *Manager) HeldLongest(n int) []Entry { return longest(m.holds.listHeld(""), n) }

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
		for h := range held.All() {
			if owner != "" && owner != h.id.Owner || h.releasing && handed {
				continue
			}
			e := Entry{DB: h.id.DB, Key: h.id.Key, Left: max(0, h.deadline.Sub(now))}
			e.Owner, e.Kind, e.Holds = h.id.Owner, h.id.Kind, h.count
			h.describe(&e.Holder, now)
			out = append(out, e)
		}
		if done += held.Len(); done >= listPiece {
			done = 0
			yield(&hs.mu, done)
		}
	}
	return out
}

// handed says that a lock has an owner here that is not releasing it: then those that are releasing it no longer have it. When a plain lock
// has two owners here, one has been handed it by the other.
func handed(held chain.Chain[*hold]) bool {
	for h := range held.All() {
		if !h.releasing {
			return true
		}
	}
	return false
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
		e.Holder = Holder{Owned: lockstore.Owned{Owner: w.id.Owner, Kind: w.id.Kind}, Local: true, Held: now.Sub(w.since), client: w.c}
		out = append(out, e)
	}
	return out
}

// Hottest are the locks that were waited for most here, those first, as many as asked for. The counts are rough.
func (m *Manager) Hottest(most int) []hottest.Entry { return m.lines.hottest.Top(most) }

// ForgetHottest begins to count anew.
func (m *Manager) ForgetHottest() { m.lines.hottest.Reset() }

// Ages are how long the oldest hold through this proxy has lasted, and how long the longest wait has; 0: there is none.
func (m *Manager) Ages() (hold, wait time.Duration) { return m.holds.oldest(), m.lines.longestWait() }

func (hs *holds) oldest() (age time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	done := 0
	for _, h := range hs.byID {
		if done++; h.count > 0 {
			age = max(age, time.Since(h.grantedAt))
		}
		yield(&hs.mu, done)
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

// Glob says whether name matches a pattern of Redis' KEYS and SCAN: * ? [abc] [^a] [a-z] and \\ before a literal byte.
// It is linear in memory and at worst len(pattern) x len(name) in time, whatever the pattern.
func Glob(pattern, name string) bool {
	star, resume := -1, 0 // the last *, and where in name it stopped taking bytes
	p, n := 0, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if size, ok := one(pattern[p:], name[n]); ok {
				p += size
				n++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, n = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one matches a byte with the first element of a pattern, which is size bytes long.
func one(pattern string, b byte) (size int, ok bool) {
	switch {
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == b
	case pattern[0] == '[':
		return class(pattern, b)
	}
	return 1, pattern[0] == b
}

// class matches a byte with [...]; one that is not closed goes to the pattern's end, as in Redis.
func class(pattern string, b byte) (size int, ok bool) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			ok = ok || pattern[i] == b
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			ok = ok || low <= b && b <= high
			i += 2
		default:
			ok = ok || pattern[i] == b
		}
	}
	return min(i+1, len(pattern)), ok != not
}
