package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/upstream"
)

// One question at a time is under way to a node about what it can do. Whoever needs the answer waits for that one, and no longer
// than it wants to.

// site is a node whose account is asked.
type site struct {
	ctl *upstream.Control
	era int
	log *slog.Logger
	at  func(name string) bool // on a cluster: whether a name is one of its own
	run func(work func())      // runs the question aside
}

// ask begins to ask a node, unless somebody does already. over is closed when that question is over, with or without an answer.
func (m *Manager) ask(a *account, s site) (over <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking == nil {
		a.asking, a.began = make(chan struct{}), time.Now()
		s.run(func() { m.askNode(a, s) })
	}
	return a.asking
}

// ensure waits until it is known what the node can do, no longer than ctx, whose error it returns then. Where Redis says nothing
// it returns nil: the lock is tried all the same.
func (m *Manager) ensure(ctx context.Context, a *account, s site) error {
	for range 2 { // a question that was under way may have begun before the last reason to ask
		if a.fresh() || a.silent() {
			return nil
		}
		select {
		case <-m.ask(a, s):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askAccount has a node asked what the account lacks and what the node can do, when it is time to.
func (m *Manager) askAccount(a *account, s site) {
	if a.due(s.era) {
		m.ask(a, s)
	}
}

// askNode is the one question under way.
func (m *Manager) askNode(a *account, s site) {
	doubts := a.doubts.Load()
	err := m.learn(a, s)
	if err != nil {
		s.log.Debug("a node did not say what it can do", "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.asking)
	a.asking = nil
	if err != nil {
		a.failed = time.Now()
		return
	}
	a.failed, a.era, a.next = time.Time{}, s.era, time.Now().Add(accountAsked)
	if a.refusal() != nil {
		a.next = time.Time{}
	}
	a.known.Store(doubts + 1)
}

// learn asks what the account lacks at a node, and what the node can do; it logs what is new.
func (m *Manager) learn(a *account, s site) error {
	verb := publish
	if m.fleet != nil {
		var err error
		if verb, err = verbAt(s.ctl, m.opts.ClusterPubSub); err != nil {
			return err
		}
	}
	lacking, err := lackingRights(s.ctl, rights(publishedBy(verb), m.fleet != nil, m.quorum != nil))
	if err != nil {
		return err
	}
	if name := m.probeName(s.at); name != "" && (!a.fresh() || !a.sameEra(s.era) || a.cannot.Load() != nil) {
		cannot, err := m.probe(s.ctl, name, verb)
		if err != nil {
			return err
		}
		a.noteProbe(cannot, s.log)
	}
	if was := a.verb.Swap(&verb); m.fleet != nil && verb != m.opts.ClusterPubSub.verb() && (was == nil || *was != verb) {
		s.log.Warn("a node lacks a command that cluster-pubsub asks for: it publishes otherwise", "with", verb)
	}
	a.noteRights(lacking, s)
	return nil
}

func (a *account) sameEra(era int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.era == era
}

// leastTold is how long a LOCK waits at least for what is just being asked, however short its BLOCK is: after each start and each
// new connection that takes a moment.
const leastTold = time.Second

var errUntold = errors.New("it is not known yet what Redis can do")

// permitted refuses locks at a node where the account is known to lack what they need. It waits for as long as the verb may until
// that is known. Of a quorum each node has a vote.
func (m *Manager) permitted(ctx context.Context, r Request) error {
	if m.quorum != nil {
		return nil
	}
	waiting, cancel := ctx, func() {}
	if r.Blocks && r.Block > 0 {
		waiting, cancel = context.WithTimeout(ctx, max(milliseconds(r.Block), leastTold))
	}
	defer cancel()
	a, err := &m.account, error(nil)
	if m.fleet == nil {
		err = m.probed(waiting)
	} else if mb := m.fleet.use(cluster.Slot([]byte(r.Key)), nil); mb != nil {
		defer m.fleet.unuse(mb)
		a, err = &mb.account, m.fleet.probed(waiting, mb)
	}
	if err != nil && ctx.Err() == nil {
		return &upstream.NotSentError{Cause: errUntold}
	}
	if err != nil {
		return err
	}
	return a.refusal()
}

// probed waits until it is known what the one Redis can do.
func (m *Manager) probed(ctx context.Context) error {
	if m.account.fresh() {
		return nil
	}
	return m.ensure(ctx, &m.account, m.site())
}

// probed waits until it is known what a member can do.
func (f *fleet) probed(ctx context.Context, mb *member) error {
	if mb.account.fresh() {
		return nil
	}
	return f.m.ensure(ctx, &mb.account, f.site(mb))
}

// site is the one Redis.
func (m *Manager) site() site {
	return site{ctl: m.one.Control, era: m.one.Clock.Era(), log: m.log, run: m.background}
}

// site is a member.
func (f *fleet) site(mb *member) site {
	return site{ctl: mb.Control, log: f.m.log.With("node", mb.is.Addr), at: func(name string) bool { return f.on(mb, name) }, run: f.background}
}

// verbOf is with what the scripts publish at a member.
func (f *fleet) verbOf(mb *member) string {
	_ = f.probed(context.Background(), mb) // no longer than one or two questions, and a script that was wanted is sent
	if verb := mb.account.verb.Load(); verb != nil {
		return *verb
	}
	return f.m.opts.ClusterPubSub.verb()
}
