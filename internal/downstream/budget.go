package downstream

import (
	"log/slog"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/loglimit"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

const (
	freeBytes = 64 << 10 // bytes of each client that are not counted: most clients never touch a budget
	drawStep  = 64 << 10 // bytes that are drawn at a time, so that a long command draws rarely
	logEvery  = time.Second
	// countedLines is more than come in ten seconds: each has a sum that would be lost with it.
	countedLines = 20
)

// budget bounds how many bytes of one kind this process holds for all clients together. When it is exhausted the clients
// with the most are dropped first, as with Redis' maxmemory-clients.
type budget struct {
	limit   int    // bytes; 0: no bound
	what    string // for the log
	log     *slog.Logger
	bytes   *telemetry.Gauge
	dropped *telemetry.Counter

	mu       sync.Mutex // guards what follows, and the accounts but for their shown
	used     int
	accounts map[*account]struct{} // that have drawn
	quiet    time.Time             // nothing is logged before
	unlogged int
}

// account is what one client has drawn from a budget.
type account struct {
	shown int // what its owner said last; only the owner uses it
	bytes int
	gone  bool // has been dropped and draws no more
	drop  func(why string)
	addr  string
}

// set notes that the client of a holds n bytes now. Clients that are dropped for it, which may include this one, have been
// dropped when it returns. It blocks on no client.
func (b *budget) set(a *account, n int) {
	if n = counted(n); n == a.shown || b.limit == 0 {
		return
	}
	a.shown = n
	for _, v := range b.draw(a, n) {
		b.drop(v)
	}
}

func (b *budget) drop(v *account) { v.drop("over " + b.what) }

// take is set for bytes that one need not hold: it says whether the client of a may hold n bytes now. When there is no room for them, the
// client that has the most is dropped, but not for one that would have as much.
func (b *budget) take(a *account, n int) bool {
	if b.limit == 0 {
		return true
	}
	n = counted(n)
	v, ok := b.reserve(a, n)
	if v != nil {
		b.drop(v)
	}
	if ok {
		a.shown = n
	}
	return ok
}

// reserve counts n bytes for a if there is room, or if it can be had by dropping another client, the victim.
func (b *budget) reserve(a *account, n int) (victim *account, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.show(b.used)
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
func (b *budget) draw(a *account, n int) (victims []*account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.show(b.used)
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
func (b *budget) evict(v *account) {
	b.note(v)
	b.book(v, 0)
	v.gone = true
}

// book is called with mu held.
func (b *budget) book(a *account, n int) {
	b.used += n - a.bytes
	a.bytes = n
	if n > 0 {
		b.accounts[a] = struct{}{}
	} else {
		delete(b.accounts, a)
	}
}

// show has the metric follow, when all is booked: in the midst of it more may be used than the bound. mu is held.
func (b *budget) show(was int) { b.bytes.Add(int64(b.used - was)) }

func (b *budget) largest() (most *account) {
	for a := range b.accounts {
		if most == nil || a.bytes > most.bytes {
			most = a
		}
	}
	return most
}

// note counts a dropped client, and logs it unless another has been logged just before.
func (b *budget) note(v *account) {
	b.dropped.Add(1)
	b.unlogged++
	now := time.Now()
	if now.Before(b.quiet) {
		return
	}
	b.log.Warn("clients dropped, the largest first: "+b.what+" is reached", "client", v.addr, "bytes", v.bytes, "clients", b.unlogged)
	b.quiet, b.unlogged = now.Add(logEvery), 0
}

// Account counts what this process keeps for a client besides the present command and replies, in one of the bounds for all
// clients together. The zero Account counts nothing. It is used by one goroutine at a time, and not copied after its first use.
type Account struct {
	of *budget
	account
}

// CommandsKept counts commands that are kept, in --max-query-memory.
func (c *Conn) CommandsKept() Account {
	return Account{&c.gate.queries, account{drop: c.read.account.drop, addr: c.addr}}
}

// PendingReplies counts what is kept for replies that are yet to come, in --max-reply-memory.
func (c *Conn) PendingReplies() Account {
	return Account{&c.gate.replies, account{drop: c.write.account.drop, addr: c.addr}}
}

// Set notes how many bytes are kept now. The client may be dropped for it, or others who have more. It blocks on nobody.
func (a *Account) Set(n int) {
	if a.of != nil {
		a.of.set(&a.account, n)
	}
}

// setBudgets makes the gate's budgets from its options.
func (g *Gate) setBudgets() {
	log := loglimit.Most(g.log, countedLines)
	g.queries = budget{limit: g.o.MaxQueryMemory, what: "max-query-memory", log: log, bytes: &telemetry.QueryBytes,
		dropped: &telemetry.QueryDropped, accounts: make(map[*account]struct{})}
	g.ahead = budget{limit: (g.o.MaxQueryMemory + 1) / 2, what: "max-query-memory", log: log, bytes: &telemetry.QueryBytes,
		dropped: &telemetry.QueryDropped, accounts: make(map[*account]struct{})}
	g.replies = budget{limit: g.o.MaxReplyMemory, what: "max-reply-memory", log: log, bytes: &telemetry.ReplyBytes,
		dropped: &telemetry.ReplyDropped, accounts: make(map[*account]struct{})}
}
