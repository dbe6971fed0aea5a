package lock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/loglimit"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Loss is a lock that its holder no longer has and did not give back.
type Loss struct {
	Key    string
	Kind   Kind
	Reason string // gone, expired, unrenewed, forced, max-hold, clock, failover
}

// The reasons of a loss, short enough for a metric's label.
const (
	reasonGone      = lockstore.Gone
	reasonExpired   = "expired"   // the lease it was taken with is over
	reasonUnrenewed = "unrenewed" // no renewal could be confirmed before the lease was over
	reasonForced    = "forced"    // UNLOCK FORCE through this proxy
	reasonMaxHold   = "max-hold"  // held longer than max-hold, no longer renewed
	reasonClock     = lockstore.Clock
	reasonFailover  = lockstore.Failover
)

var reasonText = map[string]string{
	reasonGone:      "Redis no longer has it",
	reasonExpired:   "its lease was over",
	reasonUnrenewed: "it could not be renewed in time",
	reasonForced:    "it was freed by force",
	reasonMaxHold:   "it was held longer than max-hold",
	reasonClock:     "Redis' clock jumped",
	reasonFailover:  "after a failover the new master does not have it",
}

// showFailures makes the counts of losses, for each kind and reason, and of renewals that failed begin at 0: to Prometheus a counter
// that begins with the first of them has not grown.
func showFailures() {
	telemetry.Renewal(context.Background(), "error", 0)
	for _, kind := range lockstore.Kinds {
		for reason := range reasonText {
			telemetry.LockLost(context.Background(), kind.String(), reason, 0)
		}
	}
}

type lossRecord struct {
	reason string
	at     time.Time
}

func (l lossRecord) error(key string) error {
	return &Error{Code: "LOCKLOST", Text: fmt.Sprintf("'%s' was lost %d ms ago (%s): %s",
		lockstore.Printable(key), time.Since(l.at).Milliseconds(), l.reason, reasonText[l.reason])}
}

// orLost is the error for a connection whose UNLOCK or RENEW failed with err: LOCKLOST if a loss is known, else err.
func (c *Client) orLost(h *hold, err error) error {
	if lost, ok := c.lossOf(h.id); ok && !h.named && c.m.holds.snapshot(h).count == 0 {
		return lost.error(h.id.Key)
	}
	return err
}

// lose ends a live hold that was lost, and tells everybody who should know. One that an UNLOCK without a majority wanted to give back is not
// lost: that UNLOCK is done now, and may be said again. lose does no I/O. mu is held.
func (hs *holds) lose(h *hold, reason string) {
	c := h.client
	if h.unwanted {
		hs.noteUnwanted(h)
		hs.vacate(h, h.vacantAt(reason))
		hs.end(h)
		return
	}
	// A named owner that takes a lock for a fixed time knows when it ends: no push for that.
	expected := reason == reasonExpired && h.named
	hs.rememberLoss(h, lossRecord{reason, time.Now()})
	hs.done.remove(h.id)
	hs.vacate(h, h.vacantAt(reason))
	hs.end(h)
	hs.lost.Add(1)
	telemetry.LockLost(context.Background(), h.id.Kind.String(), reason, 1)
	if c != nil && !expected {
		c.info.Push(Loss{Key: h.id.Key, Kind: h.id.Kind, Reason: reason})
	}
	lost := Lost{ID: h.id, Reason: reason, At: time.Now(), Expected: expected}
	if c != nil {
		lost.Addr = c.info.Addr
	}
	hs.lossLog.add(lost)
}

// noteUnwanted notes of a hold that is over that the UNLOCK is done which wanted to give it back, if one did. mu is held.
func (hs *holds) noteUnwanted(h *hold) {
	if h.unwanted {
		hs.done.add(h.id, h.client, time.Now())
	}
}

// vacantAt is when a hold that was lost for this reason is over in Redis at the earliest. holds.mu is held.
func (h *hold) vacantAt(reason string) time.Time {
	switch now := time.Now(); reason {
	case reasonExpired, reasonUnrenewed, reasonMaxHold:
		return lockstore.Later(now, h.certainUntil())
	default:
		return now
	}
}

// recheckKey makes the watchdog check every live hold of a key at once: one of them may be newer than what ended the others.
func (hs *holds) recheckKey(key lockstore.LineKey, reason string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h := range hs.byKey[key].All() {
		hs.suspect(h, reason)
	}
}

// recheckLate is recheckIf for a hold that Redis has just been said to have, in an answer to what was sent at that time: the last look may
// have come between the two. mu is held.
func (hs *holds) recheckLate(h *hold, sent time.Time) {
	if sent.Before(hs.looked) {
		hs.suspect(h, reasonGone)
	}
}

// suspect makes the watchdog check a hold at once. mu is held.
func (hs *holds) suspect(h *hold, reason string) {
	if h.suspect != reasonForced { // that one is known, others are guesses
		h.suspect = reason
	}
	h.suspected, h.maybeCut = time.Now(), true
	hs.plan(h, h.suspected)
}

// recheckIf makes the watchdog check, as soon as it can, those live holds for which why gives a reason; why gets their key, and what
// they are suspected for already. Watched ones are renewed then.
func (hs *holds) recheckIf(why func(key, already string) string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.looked = time.Now()
	for key, live := range hs.byKey {
		for h := range live.All() {
			if reason := why(key.Key, h.suspect); reason != "" {
				hs.suspect(h, reason)
			}
		}
	}
}

// shorten moves the deadlines of the holds of some keys earlier by that much: at a new master whose clock is ahead of the
// former one's locks end earlier, because Redis keeps the time at which a key expires, not its lease. What was sent after then was
// answered by the new one.
func (hs *holds) shorten(by time.Duration, then time.Time, some func(key string) bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for key, live := range hs.byKey {
		if !some(key.Key) {
			continue
		}
		for h := range live.All() {
			if h.asked.After(then) {
				continue
			}
			h.deadline = h.deadline.Add(-by)
			if hs.noteDeadline(h); h.deadline.Before(h.next) {
				hs.plan(h, h.deadline)
			}
		}
	}
}

// wakeIf makes all who wait for some keys try: messages may have been missed.
func (ls *lines) wakeIf(some func(key string) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.byKey {
		if some(key.Key) {
			l.Wake()
			if l.key.Fair {
				retry.Wake(l.keep)
			}
		}
	}
}

const (
	// lossesLogged is how many losses are logged one by one each time; the others are counted.
	lossesLogged = 200
	// logPause is the shortest time between two such times.
	logPause = 100 * time.Millisecond
	// lossesRecent is how many losses are kept for those who ask what was lost lately.
	lossesRecent = 100
)

// lossLog keeps the losses that are to be logged, because whoever finds a loss must not wait for the log to be written.
type lossLog struct {
	to   *slog.Logger
	wake chan struct{} // one slot

	mu     sync.Mutex // a leaf
	news   []Lost
	more   int
	recent []Lost // the last lossesRecent, as a ring
	oldest int    // of a full ring
}

// Lost is a hold that was lost.
type Lost struct {
	lockstore.ID
	Reason   string
	At       time.Time
	Expected bool   // its owner knew when it would end
	Addr     string // of the client that held it; "": it has gone
}

// Losses are the last ones, the newest first.
func (m *Manager) Losses() []Lost {
	l := m.lossLog
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(slices.Clone(l.recent[l.oldest:]), l.recent[:l.oldest]...)
	slices.Reverse(all)
	return all
}

func newLossLog(to *slog.Logger) *lossLog {
	return &lossLog{to: loglimit.Most(to, lossesLogged), wake: make(chan struct{}, 1)}
}

func (l *lossLog) add(lost Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) < lossesRecent {
		l.recent = append(l.recent, lost)
	} else {
		l.recent[l.oldest] = lost
		l.oldest = (l.oldest + 1) % lossesRecent
	}
	if len(l.news) < lossesLogged {
		l.news = append(l.news, lost)
	} else {
		l.more++
	}
	retry.Wake(l.wake)
}

func (l *lossLog) take() (news []Lost, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, more = l.news, l.more
	l.news, l.more = nil, 0
	return news, more
}

// tell writes losses to the log until ctx ends.
func (l *lossLog) tell(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			l.write()
			retry.Sleep(ctx, logPause, nil)
		case <-ctx.Done():
			l.write()
			return
		}
	}
}

func (l *lossLog) write() {
	news, more := l.take()
	for _, lost := range news {
		level := slog.LevelWarn
		if lost.Expected {
			level = slog.LevelInfo
		}
		l.to.Log(context.Background(), level, "lock lost", "key", lost.Key, "kind", lost.Kind, "db", lost.DB, "owner", lost.Owner, "reason", lost.Reason)
	}
	if more > 0 {
		l.to.Warn("more locks were lost at the same time", "locks", more)
	}
}
