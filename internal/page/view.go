package page

import (
	"cmp"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/hottest"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// filter is what somebody wants to see.
type filter struct {
	Name string // a part of it
	Sort string // name, held, or else by how long one has waited
}

// view is what the page of locks shows.
type view struct {
	filter
	Cards          []card
	Hottest        []hottest.Entry
	Locks          []row
	Shown          int // of so many
	Of             int
	Others, Silent int // other proxies: that have told of their locks, that have not
}

// row is one lock.
type row struct {
	ID            string // in the document
	DB            int
	Key           string
	Fair          bool
	Holders       []holder
	MoreHolders   int
	Waiters       []waiter
	MoreWaiters   int
	Waiting       int
	held, waiters []lock.Entry
}

// Sides says whether it is a read/write lock.
func (r row) Sides() bool {
	for _, e := range [][]lock.Entry{r.held, r.waiters} {
		if len(e) > 0 {
			return e[0].Kind != lock.Plain
		}
	}
	return false
}

// Lines is how many lines a lock takes.
func (r row) Lines() int { return max(1, len(r.Holders)+min(1, r.MoreHolders)) }

// client is who holds or waits.
type client struct {
	Owner, Addr, Name string
	Number            int64          // CLIENT ID; 0: none
	Named             bool           // the owner is not the connection
	Proxy             *proxies.State // the other one; nil: this one
	Kind              lock.Kind
	For               time.Duration
}

// Side is that of a read/write lock; "": it has none.
func (c client) Side() string {
	if c.Kind == lock.Plain {
		return ""
	}
	return c.Kind.String()
}

type holder struct {
	client
	Watched  bool
	Renewals int64
	Count    int64
	Left     time.Duration
	Share    string // of its lease, a percentage
	Low      bool   // hardly any is left
}

type waiter struct {
	client
	Fair bool
}

// look is what was last seen of the engine, for all who look at the same time.
type look struct {
	mu     sync.Mutex // one looks at a time; guards all below
	rows   []row      // by name
	taken  time.Time
	longer time.Duration // what is longest waited for
	took   time.Duration
}

// fresh is for how long a look is used, so that many who look cost no more than one.
func (l *look) fresh() time.Duration { return max(rest/2, min(20*l.took, restMost)) }

// locks are all locks, by name. The slices are shared: nobody changes them.
func (p *Page) locks() (rows []row, longestWait time.Duration) {
	l := &p.look
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.taken) >= l.fresh() {
		l.rows, l.longer = group(p.others.told(p.List("", "")))
		l.taken, l.took = now, time.Since(now)
	}
	return l.rows, l.longer
}

// group makes locks of a list that is sorted by name, holders first, waiters in their order.
func group(list []lock.Entry) (rows []row, longestWait time.Duration) {
	rows = make([]row, 0, len(list))
	for len(list) > 0 {
		same, databases := 1, false
		for same < len(list) && list[same].Key == list[0].Key {
			databases = databases || list[same].DB != list[0].DB
			same++
		}
		named := list[:same]
		list = list[same:]
		if databases {
			slices.SortStableFunc(named, func(a, b lock.Entry) int { return cmp.Compare(a.DB, b.DB) })
		}
		for len(named) > 0 {
			held, end := 0, 0
			for ; end < len(named) && named[end].DB == named[0].DB; end++ {
				if !named[end].Waiting {
					held++
				} else {
					longestWait = max(longestWait, named[end].Held)
				}
			}
			slices.SortStableFunc(named[:held], func(a, b lock.Entry) int { // readers come in any order
				return cmp.Or(cmp.Compare(a.ClientID, b.ClientID), strings.Compare(a.Owner, b.Owner))
			})
			rows = append(rows, row{DB: named[0].DB, Key: named[0].Key, held: once(named[:held]), waiters: named[held:end]})
			named = named[end:]
		}
	}
	return rows, longestWait
}

// once leaves out what several proxies tell of one hold: a named owner's, for which it has asked at each. That one knows
// best which is sure of it for longest.
func once(held []lock.Entry) []lock.Entry {
	if !slices.ContainsFunc(held, func(e lock.Entry) bool { return e.Proxy != "" }) {
		return held
	}
	sure := map[lockstore.Owned]time.Duration{}
	of := func(e lock.Entry) lockstore.Owned { return lockstore.Owned{Owner: e.Owner, Kind: e.Kind} }
	for _, e := range held {
		sure[of(e)] = max(sure[of(e)], e.Left)
	}
	return slices.DeleteFunc(slices.Clone(held), func(e lock.Entry) bool {
		left, is := sure[of(e)]
		if best := is && e.Left >= left; best {
			delete(sure, of(e))
			return false
		}
		return true
	})
}

// locksView is the page of locks.
func (p *Page) locksView(r *http.Request) []section {
	v := p.view(asked(r))
	return []section{
		{name: "cards", title: "The last hour", class: "quiet", draw: func(d *document) { d.cards(v) }},
		{name: "locks", title: "Locks", beside: func(d *document) { d.picking(v) }, draw: func(d *document) { d.locks(v) }},
		{name: "redis", title: "Locks in Redis, also of Redisson", beside: func(d *document) { d.searching("", 0) }},
		{name: "hottest", title: "Waited for most", draw: func(d *document) { d.hottest(v) }},
	}
}

// view is what a filter leaves.
func (p *Page) view(w filter) *view {
	all, longest := p.locks()
	now := time.Now()
	v := &view{filter: w}
	v.Cards = p.history.cards(p.Stats(), longest, slices.ContainsFunc(p.losses(), func(e events.Event) bool { return now.Sub(e.At) < historyKept && bad(e) }))
	v.Hottest = p.Hottest(mostPast)
	v.Locks, v.Of = choose(all, w, mostRows)
	v.Shown = len(v.Locks)
	since, at := now.Sub(p.takenAt()), p.others.states()
	for _, other := range at {
		switch other.State {
		case "up":
			v.Others++
		case "down":
			v.Silent++
		}
	}
	for i := range v.Locks {
		v.Locks[i].describe(since, mostOf, at)
	}
	return v
}

func (p *Page) takenAt() time.Time {
	p.look.mu.Lock()
	defer p.look.mu.Unlock()
	return p.look.taken
}

// choose picks those that are shown, and says of how many.
func choose(all []row, w filter, most int) (some []row, of int) {
	picked := make([]*row, 0, len(all))
	for i := range all {
		if strings.Contains(all[i].Key, w.Name) {
			picked = append(picked, &all[i])
		}
	}
	switch w.Sort {
	case "name": // as it is
	case "held":
		slices.SortStableFunc(picked, func(a, b *row) int { return cmp.Compare(longest(b.held), longest(a.held)) })
	default:
		slices.SortStableFunc(picked, func(a, b *row) int { return cmp.Compare(b.longestWait(), a.longestWait()) })
	}
	for _, r := range picked[:min(len(picked), most)] {
		some = append(some, *r)
	}
	return some, len(picked)
}

// longest is the longest time for which one of them has held, or waited.
func longest(all []lock.Entry) (d time.Duration) {
	for i := range all {
		d = max(d, all[i].Held)
	}
	return d
}

// longestWait is in whole seconds, one at least: locks for which somebody always waits, but nobody for long, keep their
// places.
func (r *row) longestWait() time.Duration {
	if len(r.waiters) == 0 {
		return 0
	}
	return max(time.Second, longest(r.waiters).Truncate(time.Second))
}

// describe makes of what was seen, so long ago, what is shown; so many holders and waiters at most.
func (r *row) describe(since time.Duration, most int, at map[string]*proxies.State) {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(strconv.Itoa(r.DB) + ":" + r.Key)) // it never fails
	r.ID = strconv.FormatUint(sum.Sum64(), 36)
	for _, e := range r.held[:min(len(r.held), most)] {
		h := holder{client: clientOf(e, since, at), Watched: e.Watched, Renewals: e.Renewals, Count: e.Holds, Left: max(0, e.Left-since)}
		share := min(1, h.Left.Seconds()/max(e.Lease, time.Millisecond).Seconds())
		h.Share, h.Low = strconv.FormatFloat(100*share, 'f', 1, 64)+"%", share < 0.2
		r.Holders = append(r.Holders, h)
	}
	for _, e := range r.waiters[:min(len(r.waiters), most)] {
		r.Waiters = append(r.Waiters, waiter{client: clientOf(e, since, at), Fair: e.Fair})
		r.Fair = r.Fair || e.Fair
	}
	r.Waiting = len(r.waiters)
	r.MoreHolders, r.MoreWaiters = len(r.held)-len(r.Holders), len(r.waiters)-len(r.Waiters)
}

func clientOf(e lock.Entry, since time.Duration, at map[string]*proxies.State) client {
	return client{Owner: e.Owner, Addr: e.Addr, Name: e.Name, Number: e.ClientID, Kind: e.Kind, For: e.Held + since, Named: lockstore.ValidOwner(e.Owner), Proxy: at[e.Proxy]}
}
