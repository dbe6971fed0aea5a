package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Account is what is known of what the service account can do at one node. One question at a
// time is under way to the node about that. Whoever needs the answer waits for that one, and no longer than it wants
// to.
type Account struct {
	known atomic.Pointer[standing] // nil: nothing is

	mu     sync.Mutex    // guards the changes of known, and asking; nobody waits for Redis under it
	asking chan struct{} // closed when the question under way is over; nil: there is none
}

// now is what is known at this moment.
func (a *Account) now() *standing {
	if s := a.known.Load(); s != nil {
		return s
	}
	return &standing{}
}

// happen has an event happen to what is known.
func (a *Account) happen(event func(standing) standing) (was, is *standing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.change(event)
}

// change is happen for a caller that has mu.
func (a *Account) change(event func(standing) standing) (was, is *standing) {
	was = a.now()
	s := event(*was)
	a.known.Store(&s)
	return was, &s
}

// Outdated says that the node may be another than it was: it is asked before the next lock is given.
func (a *Account) Outdated() { a.happen(standing.outdated) }

// Refused is called with a script's error. If Redis refused the script because a right or a command is missing, what is
// known of the node is no longer true.
func (a *Account) Refused(err error) {
	if line, lacks := lacking(err); lacks {
		a.happen(func(s standing) standing { return s.refused(line, time.Now()) })
	}
}

// Verb is the command with which the node publishes; "": it is not known yet.
func (a *Account) Verb() string { return a.now().verb }

// Site is a node whose account is asked.
type Site struct {
	Node   *Node
	Era    int // of its clock
	Log    *slog.Logger
	Run    func(work func()) // runs the question aside
	PubSub PubSub            // of a cluster's node: the way to publish there; else ""
	Votes  bool              // it is one of a quorum

	// Of the probe's locks.
	UUID string                 // begins their owners
	Has  func(name string) bool // whether a lock with this name would be there; nil: any would
}

// Able is why no lock can be had at a node, as the last trial showed; nil: one was had. *upstream.ReplyError and
// *lockstore.Error are Redis' refusals, lockstore.ErrUntried is for a node that has not been tried yet, and any other
// error says that it does not answer.
func (n *Node) Able() error { return n.Account.now().able() }

// Admit waits until it is known what the node can do, no longer than ctx, whose error it returns then, and no longer
// than most (lockstore.ErrOver), if that is not 0. refusal is why no lock is given there; nil: none is known. If Redis
// does not answer, the lock is tried all the same.
func (n *Node) Admit(ctx context.Context, most time.Duration, site func() Site) (refusal, err error) {
	a := &n.Account
	var over <-chan time.Time
	for range 2 { // a question that was under way may have begun before the last reason to ask
		s := a.now()
		if s.fresh || s.silent(time.Now()) {
			break
		}
		if over == nil && most > 0 {
			over = time.After(most)
		}
		select {
		case <-a.askAccount(site()):
		case <-over:
			return a.now().refusal(), lockstore.ErrOver
		case <-ctx.Done():
			return a.now().refusal(), ctx.Err()
		}
	}
	return a.now().refusal(), nil
}

// askAccount begins to ask the node, unless somebody does already. over is closed when that question is over, with or without
// an answer.
func (a *Account) askAccount(s Site) (over <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking == nil {
		a.asking = make(chan struct{})
		a.change(func(s standing) standing { return s.asked(time.Now()) })
		s.Run(func() { a.askNode(s) })
	}
	return a.asking
}

// askWhenDue asks the node what it can do, when it is time to.
func (a *Account) askWhenDue(s Site) {
	if a.now().due(s.Era, time.Now()) {
		a.askAccount(s)
	}
}

// askNode is the one question under way.
func (a *Account) askNode(s Site) {
	answer, err := s.learn(a.now())
	a.mu.Lock()
	defer a.mu.Unlock()
	was, is := a.change(func(known standing) standing {
		if err != nil {
			return known.unanswered(err, time.Now())
		}
		return known.afterAnswer(answer, s.Era, time.Now())
	})
	close(a.asking)
	a.asking = nil
	s.logChange(was, is)
}

// unreached notes that the node could not even be asked for its time.
func (a *Account) unreached(err error, s Site) {
	s.logChange(a.happen(func(known standing) standing { return known.tried(err) }))
}

// learn finds out what the account can do at a node.
func (s Site) learn(known *standing) (f found, err error) {
	f.verb = Publish
	if s.PubSub != "" {
		if f.verb, f.unheard, err = s.Node.publishesWith(s.PubSub); err != nil {
			return f, err
		}
	}
	if name := s.probeName(); name != "" {
		if f.cannot, err = s.probe(name, f.verb); err != nil {
			return f, err
		}
	}
	if f.evicts = known.evicts; !known.fresh { // else each question would stand in ACL LOG, where the account may not ask
		f.evicts = s.Node.evicts()
	}
	return f, nil
}

// logChange tells the log what is new. That a node does not answer is told elsewhere.
func (s Site) logChange(was, is *standing) {
	if s.PubSub != "" && is.verb != was.verb && is.verb != s.PubSub.Verb() {
		s.Log.Warn("a node lacks a command that cluster-pubsub asks for: it publishes otherwise", "with", is.verb)
	}
	if is.unheard > 0 && was.unheard == 0 {
		s.Log.Warn("somebody hears of locks by SUBSCRIBE, whom SPUBLISH does not reach: set cluster-pubsub to both", "channels", is.unheard)
	}
	switch refused := is.trialRefused(); {
	case refused == was.trialRefused():
	case refused != "":
		s.Log.Error("no lock can be had: a trial lock could not be taken and released", "error", refused)
	case is.trial == nil:
		s.Log.Info("a trial lock could be taken and released: locks can be had again")
	}
	if is.evicts != "" && is.evicts != was.evicts {
		s.Log.Warn("Redis may evict locks when its memory is full: set maxmemory-policy to noeviction, or keep the locks on another Redis",
			"maxmemory-policy", is.evicts)
	}
}
