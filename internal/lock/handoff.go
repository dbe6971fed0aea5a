package lock

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
)

// When a holder gives the lock back and the next waiter stands on this proxy, one script moves it from owner to owner. This is
// lock cohorting (Dice, Marathe, Shavit 2012); turns.go keeps the turns of other proxies and of Redisson.

// handoffReaders is the most readers that one script lets in.
const handoffReaders = 32

// streakOf is the streak of a new hold: who comes to others that read goes on with the longest of theirs. mu is held.
func (m *Manager) streakOf(a *acquire) handoffStreak {
	s := a.streak
	if a.h.id.Kind.Spec().Shared {
		for other := range m.byKey[a.h.id.Line()] {
			if other.streak.grants > s.grants {
				s = other.streak
			}
		}
	}
	if s.grants == 0 {
		s.since = time.Now()
	}
	return s
}

// offer is what a waiter that was claimed gets: the answer to an acquire that somebody else sent for it, or nothing.
type offer struct {
	acquire *acquire
	answer  answer
	err     error
}

// handoff is one release that goes on to those who wait next.
type handoff struct {
	m       *Manager
	line    *line
	waiters []*waiter
	asks    []*acquire // of each waiter, entered
	streak  handoffStreak
	turn    bool // somebody else's, if anybody listens
}

// claim picks who stands next and may be handed the lock that id gives back; nil = nobody here.
func (m *Manager) claim(id lockstore.ID) *handoff {
	h := m.pickNext(id)
	if h == nil {
		return nil
	}
	for i, w := range h.waiters {
		_, explicit := w.c.id(w.r.Kind, w.r.DB, w.r.Key, w.r.Owner)
		hold := m.tryEnter(w.id, explicit)
		if hold == nil {
			for j := range h.waiters[i:] {
				h.nothing(i + j)
			}
			h.waiters = h.waiters[:i]
			break
		}
		h.asks = append(h.asks, w.c.newAcquire(hold, w.r, w))
	}
	if len(h.asks) == 0 {
		return nil
	}
	return h
}

// pickNext claims the waiters: each gets an offer from then on.
func (m *Manager) pickNext(id lockstore.ID) *handoff {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.nextLine(id)
	if l == nil || m.draining() {
		return nil
	}
	h := &handoff{m: m, line: l, streak: m.holds[id].streak}
	for at := l.waiters.Front(); at != nil && len(h.waiters) < handoffReaders; at = at.Next() {
		w := at.Value.(*waiter)
		if !w.parked || w.claimed || w.r.Replicas > 0 || w.ctx.Err() != nil || len(h.waiters) > 0 && w.id.Kind != h.waiters[0].id.Kind {
			break
		}
		w.claimed = true
		h.waiters = append(h.waiters, w)
		if !w.id.Kind.Spec().Shared {
			break
		}
	}
	if len(h.waiters) == 0 {
		return nil
	}
	if h.turn = !l.key.Fair && h.streak.over(l.pause, time.Now()); h.turn {
		l.messages.Store(0)
	}
	return h
}

// nextLine is where the next stands: the fair queue comes first. mu is held.
func (m *Manager) nextLine(id lockstore.ID) *line {
	key := id.Line()
	if h := m.holds[id]; h != nil {
		h.releasing = true
	}
	if key.RW && m.heldBeside(id) {
		return nil // it is not free yet
	}
	if l := m.lines[key.Fairly()]; l != nil {
		return l
	}
	return m.lines[key]
}

// heldBeside says whether another owner of this proxy holds the lock that id gives back, and goes on holding it: one that others
// may share. mu is held.
func (m *Manager) heldBeside(id lockstore.ID) bool {
	for other := range m.byKey[id.Line()] {
		if other.id != id && !other.releasing {
			return true
		}
	}
	return false
}

// tryEnter is enter for a hold that nobody works on, or whose lease a renewal can no longer change; else nil.
func (m *Manager) tryEnter(id lockstore.ID, explicit bool) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.entry(id, explicit)
	if h.late.After(time.Now()) {
		m.forget(h)
		return nil
	}
	select {
	case h.busy <- struct{}{}:
		h.users++
		return h
	default:
		return nil
	}
}

// send runs the release with what follows from it, and gives everybody claimed an offer. out is what the release returned.
func (h *handoff) send(d *direct, release node.Call, text string, at int64) ([]int64, error) {
	c, short := h.pass(release, text)
	if !short {
		c = h.call(release, text)
	}
	sent := time.Now()
	for _, a := range h.asks {
		a.notAfter, a.sent = at, sent
	}
	ctx := bounded(h.waiters[0].ctx, 0)
	out, err := d.evalInts(ctx, c)
	if short && err == nil {
		switch out[0] {
		case 0: // nothing was done
			out, err = d.evalInts(ctx, h.call(release, text))
		case 1:
			out = []int64{1, 0, 0, 1, 1, h.asks[0].lease(), 0, 1}
		default:
			out = []int64{out[0], 0, 0, 0, 0, 0, 0, 0}
		}
	}
	if err != nil {
		h.failed(err)
		return nil, err
	}
	h.note(out)
	for i, w := range h.waiters {
		ans := out[3+5*i : 8+5*i]
		if ans[0] != 1 {
			h.m.leave(h.asks[i].h)
			h.nothing(i)
			continue
		}
		w.offer <- offer{acquire: h.asks[i], answer: answer{code: 1, count: ans[1], ttl: ans[2], token: ans[3], raised: ans[4]}}
	}
	return out, nil
}

// nothing lets one that was claimed go on by itself; it may yet share the lock with those claimed before it.
func (h *handoff) nothing(i int) {
	h.waiters[i].offer <- offer{}
	if i > 0 {
		h.line.Wake()
	}
}

// failed tells those claimed that nothing is known, or that nothing was done.
func (h *handoff) failed(err error) {
	for i, w := range h.waiters {
		if isUnknown(err) {
			w.offer <- offer{acquire: h.asks[i], err: err}
			continue
		}
		h.m.leave(h.asks[i].h)
		w.offer <- offer{}
	}
}

// note keeps count of the grants in a row.
func (h *handoff) note(out []int64) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	switch {
	case out[2] == 1:
		h.line.offer(time.Now())
		h.line.tryAt = h.line.holdBack
	case out[3] == 1:
		for _, a := range h.asks {
			a.streak = h.streak.next()
		}
	}
}

// pass is the short script of most hand-offs, to one other owner that asks for nothing besides.
func (h *handoff) pass(release node.Call, text string) (c node.Call, short bool) {
	if h.turn || len(h.asks) != 1 || h.waiters[0].id.Kind.Spec().Shared {
		return c, false
	}
	next := h.asks[0].call(text)
	r, n := release.Args, next.Args
	side := "write"
	if release.Script == scripts.ReadRelease {
		side = "read"
	}
	c = node.Call{DB: release.DB, Script: scripts.Pass, Keys: release.Keys}
	switch flags := r[3] + ">" + n[3]; {
	case release.Script == scripts.Release && flags == ">N":
		c.Args = []string{r[0], n[1], n[0], text}
	case release.Script == scripts.Release && (flags == "AW>OW" || flags == "AW>OD") && r[4] != "" && n[5] != "":
		c.Keys = append(slices.Clip(c.Keys), next.Keys[2])
		c.Args = []string{r[0], n[1], n[0], text, r[4], n[5]}
	case release.Script != scripts.Release && flags == ">NM":
		c.Script, c.Args = scripts.RWPass, []string{r[0], r[5], n[1], n[0], text, side}
	default:
		return c, false
	}
	return c, true
}

func (h *handoff) call(release node.Call, text string) node.Call {
	letters := ""
	if h.turn {
		letters += "T"
	}
	if h.waiters[0].id.Kind.Spec().Shared {
		letters += "S"
	}
	asks := make([]node.Call, len(h.asks))
	for i, a := range h.asks {
		asks[i] = a.call(text)
	}
	return handing(release, asks, h.line.key, letters, h.m.store.publishing())
}

// handing is the script that gives back a hold of a lock and gives it to those who ask.
func handing(release node.Call, asks []node.Call, of lockstore.LineKey, letters, publishing string) node.Call {
	all := node.Call{DB: release.DB, Script: scripts.Handoff, Keys: release.Keys}
	if of.RW {
		all.Script = scripts.RWHandoff
	}
	all.Args = []string{strconv.Itoa(len(asks)), of.Channel(), letters, publishing}
	args := release.Args
	describe(&all, release)
	for _, step := range asks {
		describe(&all, step)
		all.Keys, args = append(all.Keys, step.Keys...), append(args, step.Args...)
	}
	all.Args = append(all.Args, args...)
	return all
}

// describe appends what the script is to know of one of its steps.
func describe(c *node.Call, step node.Call) {
	c.Args = append(c.Args, step.Script.Name, strconv.Itoa(len(step.Keys)), strconv.Itoa(len(step.Args)))
}
