package downstream

import (
	"log/slog"
	"sync"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

const (
	freeBytes = 64 << 10 // bytes of each client that are not counted: most clients never touch a budget
	drawStep  = 64 << 10 // bytes that are drawn at a time, so that a long command draws rarely
)

// budgets are the bounds for all clients together.
type budgets struct {
	queries *budget // of commands that are not whole, or kept
	ahead   *budget // of what clients send that do not read their replies
	replies *budget // of replies gathered
}

func newBudgets(maxQueries, maxReplies int, log *slog.Logger) budgets {
	return budgets{
		queries: newBudget(maxQueries, "max-query-memory", log, telemetry.QueryBytes, telemetry.QueryDropped),
		ahead:   newBudget((maxQueries+1)/2, "max-query-memory", log, telemetry.QueryBytes, telemetry.QueryDropped),
		replies: newBudget(maxReplies, "max-reply-memory", log, telemetry.ReplyBytes, telemetry.ReplyDropped),
	}
}

// budget bounds how many bytes of one kind this process holds for all clients together. When it is exhausted the
// clients with the most are dropped first, as with Redis' maxmemory-clients.
type budget struct {
	limit   int    // bytes; 0: no bound
	what    string // for the log
	log     *slog.Logger
	bytes   *telemetry.Gauge
	dropped *telemetry.Counter

	mu       sync.Mutex // guards what follows, and bytes and gone of the accounts
	used     int
	accounts map[*Account]struct{} // that have drawn
}

func newBudget(limit int, what string, log *slog.Logger, bytes *telemetry.Gauge, dropped *telemetry.Counter) *budget {
	return &budget{limit: limit, what: what, log: log, bytes: bytes, dropped: dropped, accounts: map[*Account]struct{}{}}
}

// Account counts what this process keeps for one client, in one of the bounds for all clients together. The zero
// Account counts nothing. It is used by one goroutine at a time, and not copied after its first use.
type Account struct {
	of   *budget
	drop func(why string)
	addr string

	shown int // what Set said last
	bytes int
	gone  bool // has been dropped and draws no more
}

// another is a second account of the same client, in the same bound.
func (a *Account) another() Account { return Account{of: a.of, drop: a.drop, addr: a.addr} }

// Set notes how many bytes are kept now. Clients that are dropped for it, which may include this one, have been dropped
// when it returns. It blocks on no client.
func (a *Account) Set(n int) {
	if n = counted(n); n == a.shown || a.of == nil || a.of.limit == 0 {
		return
	}
	a.shown = n
	for _, v := range a.of.draw(a, n) {
		a.of.dropClient(v)
	}
}

// trySet is Set for bytes that need not be kept: it says whether the client may have n bytes now. When there is no room
// for them, the client that has the most is dropped, but not for one that would have as much.
func (a *Account) trySet(n int) bool {
	if a.of.limit == 0 {
		return true
	}
	n = counted(n)
	victim, ok := a.of.reserve(a, n)
	if victim != nil {
		a.of.dropClient(victim)
	}
	if ok {
		a.shown = n
	}
	return ok
}

func (b *budget) dropClient(v *Account) { v.drop("over " + b.what) }

// reserve counts n bytes for a if there is room, or if it can be had by dropping another client, the victim.
func (b *budget) reserve(a *Account, n int) (victim *Account, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.showUsed(b.used)
	if a.gone {
		return nil, false
	}
	if b.used+n-a.bytes > b.limit {
		if victim = b.largest(); victim == nil || victim.bytes <= n {
			return nil, false
		}
		b.evict(victim)
	}
	b.book(a, n)
	return victim, true
}

// counted is how many bytes are drawn for n.
func counted(n int) int {
	if n <= freeBytes {
		return 0
	}
	return (n + drawStep - 1) / drawStep * drawStep
}

// draw counts n bytes for a, and returns the clients that must be dropped.
func (b *budget) draw(a *Account, n int) (victims []*Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.showUsed(b.used)
	if a.gone {
		return nil
	}
	b.book(a, n)
	for b.used > b.limit {
		v := b.largest()
		b.evict(v)
		victims = append(victims, v)
	}
	return victims
}

// evict takes all that v has; its client is then to be dropped. mu is held.
func (b *budget) evict(v *Account) {
	b.dropped.Add(1)
	b.log.Warn("clients dropped, the largest first: "+b.what+" is reached", "client", v.addr, "bytes", v.bytes)
	b.book(v, 0)
	v.gone = true
}

// book is called with mu held.
func (b *budget) book(a *Account, n int) {
	b.used += n - a.bytes
	a.bytes = n
	if n > 0 {
		b.accounts[a] = struct{}{}
	} else {
		delete(b.accounts, a)
	}
}

// showUsed has the metric follow, when all is booked: in the midst of it more may be used than the bound. mu is held.
func (b *budget) showUsed(was int) { b.bytes.Add(int64(b.used - was)) }

func (b *budget) largest() (most *Account) {
	for a := range b.accounts {
		if most == nil || a.bytes > most.bytes {
			most = a
		}
	}
	return most
}
