package lock

import (
	"cmp"
	"runtime"
	"slices"
	"time"
)

// Entry is one line of LOCKLIST: a lock held, or waited for, through this proxy.
type Entry struct {
	DB      int
	Key     string
	Waiting bool
	Fair    bool          // it waits in the fair queue
	Holder                // Owner, Kind and Holds as this proxy knows them; Held is the time waited when Waiting
	Left    time.Duration // how long we are sure of it without another renewal
}

// listPiece is how many holds LOCKLIST looks at before it lets others have the engine's mutex.
const listPiece = 256

// List names the locks held and waited for through this proxy, by key and owner. owner and pattern (Redis' glob) narrow
// it when not empty. What changes meanwhile may be in it, or not.
func (m *Manager) List(owner, pattern string) []Entry {
	out := append(m.listHeld(owner), m.listWaiting(owner)...)
	if pattern != "" {
		out = slices.DeleteFunc(out, func(e Entry) bool { return !glob(pattern, e.Key) })
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

// yield lets others have the mutex for a moment, after every listPiece things. mu is held.
func (m *Manager) yield(done int) {
	if done%listPiece == 0 {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
}

// listHeld names the locks held. The map may change between two pieces: what is added then may be passed over.
func (m *Manager) listHeld(owner string) (out []Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := 0
	for id, h := range m.holds {
		if done++; h.count > 0 && (owner == "" || owner == id.Owner) {
			e := Entry{DB: id.DB, Key: id.Key, Left: max(0, time.Until(h.deadline))}
			e.Owner, e.Kind, e.Holds = id.Owner, id.Kind, h.count
			h.describe(&e.Holder)
			out = append(out, e)
		}
		m.yield(done)
	}
	return out
}

// listWaiting names those who wait.
func (m *Manager) listWaiting(owner string) (out []Entry) {
	var all []*waiter // what is said of them below never changes
	m.mu.Lock()
	done := 0
	for _, l := range m.lines {
		for at := l.waiters.Front(); at != nil; at = at.Next() {
			if w := at.Value.(*waiter); owner == "" || owner == w.id.Owner {
				all = append(all, w)
			}
		}
		done++
		m.yield(done)
	}
	m.mu.Unlock()
	for _, w := range all {
		e := Entry{DB: w.id.DB, Key: w.id.Key, Waiting: true, Fair: w.r.Fair}
		e.Holder = Holder{Owner: w.id.Owner, Kind: w.id.Kind, Local: true, Held: time.Since(w.since), client: w.c}
		out = append(out, e)
	}
	return out
}
