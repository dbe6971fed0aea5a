package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/scripts"
)

// The fair queue is Redisson's, in Redis, so its waiters and those of all proxies stand in one order. A waiter enters it when
// it comes, and its proxy says every few seconds that it lives: Redisson's own are taken to live for minutes.

const (
	// queueRefresh is how often the waiters of one proxy in a queue are said to live; Redis believes it for 10 s.
	queueRefresh = 3 * time.Second
	// queueRefreshSoonest keeps those from asking without end that wait for others whose time is over.
	queueRefreshSoonest = 20 * time.Millisecond
)

// ownChannel is where Redisson tells one waiter that it is its turn.
func (w *waiter) ownChannel() string { return w.line.key.Channel() + ":" + w.id.Field() }

// beginQueue has the places of a new fair line refreshed until its last waiter has gone. mu is held.
func (d *direct) beginQueue(l *line) {
	l.keep, l.gone = make(chan struct{}, 1), make(chan struct{})
	d.m.background(func() { d.keepQueue(l) })
}

func (d *direct) keepQueue(l *line) {
	timer := time.NewTimer(queueRefresh)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.keep:
		case <-l.gone:
			return
		case <-d.m.ended:
			return
		}
		timer.Reset(d.refreshQueue(l))
	}
}

// refreshQueue says that the line's waiters live, and has those try that the queue has lost, or whose turn it is. It returns
// when to come again.
func (d *direct) refreshQueue(l *line) time.Duration {
	waiters, args := d.m.queued(l)
	if len(waiters) == 0 {
		return queueRefresh
	}
	text, _, err := d.notAfter(context.Background())
	if err != nil {
		return queueRefresh / 10
	}
	args[0], args[1], args[2] = text, d.publishing(), d.m.fairWait()
	out, err := node.Ints(d.eval(context.Background(), node.Call{DB: l.key.DB, Script: scripts.Refresh, Keys: lockstore.PlainKeys(l.key.Key), Args: args}))
	if err != nil || out[0] == scripts.Late {
		d.m.log.Debug("cannot refresh a fair queue", "key", l.key.Key, "error", err)
		if err == nil {
			_ = d.sample()
		}
		return queueRefresh / 10
	}
	d.m.mu.Lock()
	for _, n := range out[1:] {
		w := waiters[n-1]
		w.called = true
		signal(w.poke)
	}
	d.m.mu.Unlock()
	if out[0] >= 0 {
		return max(queueRefreshSoonest, min(queueRefresh, milliseconds(out[0])+time.Millisecond))
	}
	return queueRefresh
}

// queued are the waiters of a fair line that have a place, and the arguments that say so, after three others.
func (m *Manager) queued(l *line) (waiters []*waiter, args []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	args = make([]string, 3, 3+2*l.waiters.Len())
	for at := l.waiters.Front(); at != nil; at = at.Next() {
		if w := at.Value.(*waiter); w.ticket != 0 {
			waiters = append(waiters, w)
			args = append(args, w.id.Field(), strconv.FormatInt(w.ticket, 10))
		}
	}
	return waiters, args
}

func (m *Manager) fairWait() string { return strconv.FormatInt(m.opts.FairWait.Milliseconds(), 10) }

// leaveQueue takes a waiter that gives up out of the fair queue, unless the same owner waits in another connection of this
// proxy. What Redis does not hear of is over there after 10 s.
func (d *direct) leaveQueue(w *waiter) {
	if d.m.queuedToo(w) {
		return
	}
	if w.lost == 0 {
		if err := d.sendLeave(w.id); isNotSent(err) {
			d.m.background(func() { d.leaveLater(w) })
		}
		return
	}
	// A request without an answer may still put it there.
	d.m.background(func() {
		now := d.now()
		if d.m.sleep(context.Background(), time.Duration(w.lost-now)*time.Microsecond+time.Millisecond) && !d.m.queuedToo(w) {
			_ = d.sendLeave(w.id)
		}
	})
}

// leaveLater leaves the queue when Redis is in reach again. After 10 s the place counts no more.
func (d *direct) leaveLater(w *waiter) {
	end := time.Now().Add(10 * time.Second)
	for time.Now().Before(end) && d.m.sleep(context.Background(), retry.Around(node.MaxPause)) && !d.m.queuedToo(w) {
		if !isNotSent(d.sendLeave(w.id)) {
			return
		}
	}
}

// queuedToo says whether another waiter here has the same place in the queue.
func (m *Manager) queuedToo(w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lines[w.waitingLine()]
	if l == nil {
		return false
	}
	for at := l.waiters.Front(); at != nil; at = at.Next() {
		if other := at.Value.(*waiter); other != w && other.id == w.id {
			return true
		}
	}
	return false
}

func (d *direct) sendLeave(id lockstore.ID) error {
	err := d.idempotent(func() (int64, error) { return d.tryLeave(id) })
	if err != nil {
		d.m.log.Debug("cannot leave a fair queue, the place runs out", "key", id.Key, "error", err)
	}
	return err
}

// tryLeave asks again when Redis came to it too late, as after a pause of its writes: nobody else will.
func (d *direct) tryLeave(id lockstore.ID) (done int64, err error) {
	var tooLate error
	for try := range lateTries {
		ctx, sent := allowing(context.Background(), notAfter<<try), time.Now()
		text, at, err := d.notAfter(ctx)
		if err != nil {
			return 0, err
		}
		reply, err := d.eval(ctx, node.Call{DB: id.DB, Script: scripts.Leave, Keys: lockstore.PlainKeys(id.Key), Args: []string{text, d.publishing(), id.Field()}})
		if err != nil {
			return at, err
		}
		if code, err := reply.AsInt64(); err != nil || code != scripts.Late {
			return at, err
		}
		if tooLate = d.tooLate(time.Since(sent), notAfter<<try); !isLate(tooLate) {
			return at, tooLate
		}
	}
	return 0, tooLate
}
