package lock

import (
	"cmp"
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
	ctl    *upstream.Control
	era    int
	log    *slog.Logger
	at     func(name string) bool // on a cluster: whether a name is one of its own
	run    func(work func())      // runs the question aside
	pubsub PubSub                 // of a cluster's node; else ""
	votes  bool                   // it is one of a quorum
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
	if s.pubsub != "" {
		var err error
		if verb, err = verbAt(s.ctl, s.pubsub); err != nil {
			return err
		}
	}
	lacking, err := lackingRights(s.ctl, rights(publishedBy(verb), s.pubsub != "", s.votes))
	if err != nil {
		return err
	}
	if name := m.probeName(s.at); name != "" && (!a.fresh() || !a.sameEra(s.era) || a.cannot.Load() != nil) {
		cannot, err := m.probe(s, name, verb)
		if err != nil {
			return err
		}
		a.noteProbe(cannot, s.log)
	}
	if was := a.verb.Swap(&verb); s.pubsub != "" && verb != s.pubsub.verb() && (was == nil || *was != verb) {
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

// admit refuses locks at a node where the account is known to lack what they need. It waits for as long as the verb may until that
// is known.
func (d *direct) admit(ctx context.Context, r Request) (Request, error) {
	waiting, cancel := ctx, func() {}
	if r.Blocks && r.Block > 0 {
		waiting, cancel = context.WithTimeout(ctx, max(milliseconds(r.Block), leastTold))
	}
	defer cancel()
	refusal, err := d.permitted(waiting, r.Key)
	if err != nil && ctx.Err() == nil {
		return r, &upstream.NotSentError{Cause: errUntold}
	}
	return r, cmp.Or(err, refusal)
}

// permitted waits until it is known what the shard of a name can do.
func (f *sharded) permitted(ctx context.Context, name string) (refusal, err error) {
	mb := f.use(cluster.Slot([]byte(name)), nil)
	if mb == nil {
		return nil, nil
	}
	defer f.unuse(mb)
	err = f.probed(ctx, mb)
	return mb.account.refusal(), err
}

// probed waits until it is known what a shard can do.
func (f *sharded) probed(ctx context.Context, mb *shard) error {
	if mb.account.fresh() {
		return nil
	}
	return f.m.ensure(ctx, &mb.account, f.site(mb))
}

func (f *sharded) site(mb *shard) site {
	return site{
		ctl: mb.Control, log: f.m.log.With("node", mb.is.Addr), at: func(name string) bool { return f.on(mb, name) }, run: f.background,
		pubsub: f.m.opts.ClusterPubSub,
	}
}

// verbOf is with what the scripts publish at a shard.
func (f *sharded) verbOf(mb *shard) string {
	_ = f.probed(context.Background(), mb) // no longer than one or two questions, and a script that was wanted is sent
	if verb := mb.account.verb.Load(); verb != nil {
		return *verb
	}
	return f.m.opts.ClusterPubSub.verb()
}
