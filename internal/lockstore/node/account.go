package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/upstream"
)

// Scripts run as the service account. If that lacked a right, a script would end in the middle, and a lock that was taken could not
// be given back. So Redis is first asked what the account lacks: that is logged, and no lock is given.

// accountAsked is how often Redis is asked about an account that lacks nothing; about one that does it is asked at each sample of
// the clock.
const accountAsked = 10 * time.Second

// Account is what is known of the service account's rights at one node, and of what the node can do.
type Account struct {
	doubts atomic.Int64           // how often there was a reason to ask anew
	known  atomic.Int64           // one more than doubts was when the last question began that got an answer
	lacks  atomic.Pointer[string] // rights without which no lock is given
	cannot atomic.Pointer[string] // Redis' error when the probe took a lock and gave it back
	tried  atomic.Pointer[trial]  // how the last question ended; nil: none has yet
	verb   atomic.Pointer[string] // the command with which a node of a cluster publishes

	said   string // what the log says that it lacks; used by the one question under way, as is evicts
	evicts string // the policy by which the node evicts keys; "": it does not

	// guarded by mu, under which nobody waits for Redis
	mu     sync.Mutex
	asking chan struct{} // closed when the question under way is over; nil: there is none
	failed time.Time     // when a question got no answer last
	began  time.Time     // when the last question began
	next   time.Time     // when to ask
	era    int           // of the clock: another master has users of its own
}

// trial is how a question ended. Its error is nil if a lock could be taken and given back.
type trial struct{ err error }

// Fresh says that Redis has answered a question that began after the last reason to ask.
func (a *Account) Fresh() bool { return a.known.Load() == a.doubts.Load()+1 }

// Outdated says that the node may be another than it was: it is asked before the next lock is given.
func (a *Account) Outdated() { a.doubts.Add(1) }

// askPause is for how long nobody waits for an answer after a question that got none, and for how long refusals that may be about
// the names of a client's own locks do not lead to another question.
const askPause = time.Second

// Refused is called with a script's error. If Redis refused the script because a right or a command is missing, what is known of the
// node is no longer true, and the node is asked before the next lock is given. A refusal of keys may only be about the name that a
// client gave its lock: no client can make the proxy ask the node all the time by that, since it is not asked again within askPause.
func (a *Account) Refused(err error) {
	line, lacks := lacking(err)
	if !lacks || a.refuses() { // a node that refuses locks is asked at each sample of the clock
		return
	}
	if aboutKeys(line) && a.askedLately() {
		return
	}
	a.Outdated()
}

// askedLately says whether the node was asked within askPause. It is asked again soon then, but nobody waits for that.
func (a *Account) askedLately() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	lately := time.Since(a.began) < askPause
	if lately {
		a.next = time.Time{} // at the next sample of the clock
	}
	return lately
}

// silent says whether the last question got no answer a moment ago.
func (a *Account) silent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.failed) < askPause
}

// due says whether it is time to ask.
func (a *Account) due(era int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.Fresh() || era != a.era || !time.Now().Before(a.next)
}

// Site is a node whose account is asked.
type Site struct {
	Node   *Node
	Era    int // of its clock
	Log    *slog.Logger
	Run    func(work func()) // runs the question aside
	PubSub PubSub            // of a cluster's node: the way to publish there; else ""
	Votes  bool              // it is one of a quorum

	// Of the probe's locks.
	UUID  string                 // begins their owners
	Steps Steps                  // as all locks have them
	Has   func(name string) bool // whether a lock with this name would be there; nil: any would
}

// Refusal is why no lock is given at a node; nil: none is known.
func (n *Node) Refusal() error {
	if lacks := n.Account.Lacks(); lacks != "" {
		return &lockstore.Error{Code: "NOPERM", Text: "the service account lacks what locks need: " + lacks}
	}
	if cannot := n.Account.Cannot(); cannot != "" {
		return &upstream.ReplyError{Line: cannot + ", so no lock is given that could not be given back"}
	}
	return nil
}

// Able is why no lock can be had at a node, as the last trial showed; nil: one was had. *upstream.ReplyError and *lockstore.Error are
// Redis' refusals, lockstore.ErrUntried is for a node that has not been tried yet, and any other error says that it does not answer.
func (n *Node) Able() error {
	if err := n.Refusal(); err != nil {
		return err
	}
	last := n.Account.tried.Load()
	if last == nil {
		return lockstore.ErrUntried
	}
	return last.err
}

// One question at a time is under way to a node about what it can do. Whoever needs the answer waits for that one, and no longer
// than it wants to.

// ask begins to ask the node, unless somebody does already. over is closed when that question is over, with or without an answer.
func (a *Account) ask(s Site) (over <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking == nil {
		a.asking, a.began = make(chan struct{}), time.Now()
		s.Run(func() { a.askNode(s) })
	}
	return a.asking
}

// Ensure waits until it is known what the node can do, no longer than ctx, whose error it returns then. If Redis does not answer
// it returns nil: the lock is tried all the same.
func (a *Account) Ensure(ctx context.Context, site func() Site) error {
	for range 2 { // a question that was under way may have begun before the last reason to ask
		if a.Fresh() || a.silent() {
			return nil
		}
		select {
		case <-a.ask(site()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// AskWhenDue asks the node what the account lacks and what the node can do, when it is time to.
func (a *Account) AskWhenDue(s Site) {
	if a.due(s.Era) {
		a.ask(s)
	}
}

// askNode is the one question under way.
func (a *Account) askNode(s Site) {
	doubts := a.doubts.Load()
	err := a.learn(s)
	a.Tried(err, s.Log)
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.asking)
	a.asking = nil
	if err != nil {
		a.failed = time.Now()
		return
	}
	a.failed, a.era, a.next = time.Time{}, s.Era, time.Now().Add(accountAsked)
	if a.refuses() {
		a.next = time.Time{}
	}
	a.known.Store(doubts + 1)
}

// learn asks what the account lacks at a node, and what the node can do; it logs what is new.
func (a *Account) learn(s Site) error {
	verb := Publish
	if s.PubSub != "" {
		var err error
		if verb, err = s.Node.publishesWith(s.PubSub); err != nil {
			return err
		}
	}
	lacking, err := s.Node.lacking(rights(publishedBy(verb), s.PubSub != "", s.Votes))
	if err != nil {
		return err
	}
	if name := s.probeName(); name != "" {
		known := a.Fresh() && a.sameEra(s.Era) && a.cannot.Load() == nil
		cannot, err := s.probe(name, verb, known)
		if err != nil {
			return err
		}
		a.noteProbe(cannot, s.Log)
	}
	if was := a.verb.Swap(&verb); s.PubSub != "" && verb != s.PubSub.Verb() && (was == nil || *was != verb) {
		s.Log.Warn("a node lacks a command that cluster-pubsub asks for: it publishes otherwise", "with", verb)
	}
	a.noteRights(lacking, s)
	if !slices.ContainsFunc(lacking, func(r right) bool { return r.rule == "+info" }) { // else each question would stand in ACL LOG
		a.warnOfEviction(s)
	}
	return nil
}

// Tried notes how a trial ended: with an error if no lock could be had, or if the node could not be asked. The log is told of what
// Redis says, once; that a node does not answer is told elsewhere.
func (a *Account) Tried(err error, log *slog.Logger) {
	if moving(err) {
		return
	}
	was := a.tried.Swap(&trial{err})
	now, before := refusalIn(err), ""
	if was != nil {
		before = refusalIn(was.err)
	}
	switch {
	case now == before:
	case now != "":
		log.Error("no lock can be had: a trial lock could not be taken and released", "error", now)
	case err == nil:
		log.Info("a trial lock could be taken and released: locks can be had again")
	}
}

// moving says that the slot of the trial lock is on its way to another node: that tells nothing, and the next trial is in another slot.
func moving(err error) bool {
	code, _, _ := strings.Cut(refusalIn(err), " ")
	return code == "MOVED" || code == "ASK" || code == "TRYAGAIN"
}

// refusalIn is what Redis said; "": it did not say anything.
func refusalIn(err error) string {
	if refusal, is := errors.AsType[*upstream.ReplyError](err); is {
		return refusal.Line
	}
	return ""
}

func (a *Account) sameEra(era int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.era == era
}

// noteProbe notes what Redis refused to the probe; "": nothing.
func (a *Account) noteProbe(cannot string, log *slog.Logger) {
	was := a.cannot.Load()
	switch {
	case cannot == "" && was != nil:
		log.Info("a trial lock could be taken and released: locks are given again")
	case cannot != "" && (was == nil || *was != cannot):
		log.Error("a trial lock could not be taken and released, so no lock is given", "error", cannot)
	}
	a.cannot.Store(nil)
	if cannot != "" {
		a.cannot.Store(&cannot)
	}
}

// noteRights notes what the account lacks.
func (a *Account) noteRights(lacking []right, s Site) {
	log := s.Log
	var needed, rest []string
	for _, r := range lacking {
		if r.needed {
			needed = append(needed, r.rule)
		} else {
			rest = append(rest, r.rule)
		}
	}
	a.lacks.Store(nil)
	if len(needed) > 0 {
		text := strings.Join(needed, " ")
		a.lacks.Store(&text)
	}
	said := strings.Join(slices.Concat(needed, rest), " ")
	if said == a.said {
		return
	}
	a.said = said
	switch {
	case len(needed) > 0:
		log.Error("the service account lacks rights without which no lock is given", "lacks", said)
	case len(rest) > 0:
		log.Warn("the service account lacks rights: what needs them is refused, or takes longer", "lacks", said)
	default:
		log.Info("the service account has all rights that locks need")
	}
}

func (a *Account) refuses() bool { return a.Lacks() != "" || a.Cannot() != "" }

// Lacks are the rights without which no lock is given.
func (a *Account) Lacks() string { return text(&a.lacks) }

// Cannot is Redis' error if the probe could not take a lock and give it back.
func (a *Account) Cannot() string { return text(&a.cannot) }

// Verb is the command with which the node publishes; "": it is not known yet.
func (a *Account) Verb() string { return text(&a.verb) }

func text(of *atomic.Pointer[string]) string {
	if s := of.Load(); s != nil {
		return *s
	}
	return ""
}

// lacking is Redis' line if it refused something because a right or a command is missing.
func lacking(err error) (line string, yes bool) {
	if err == nil { // spares the allocation that errors.As needs
		return "", false
	}
	var refusal *upstream.ReplyError
	if !errors.As(err, &refusal) {
		return "", false
	}
	return refusal.Line, strings.HasPrefix(refusal.Line, "NOPERM ") || strings.Contains(strings.ToLower(refusal.Line), "unknown redis command")
}

// aboutKeys says whether a refusal is about keys, or channels, rather than about a command.
func aboutKeys(line string) bool {
	return strings.Contains(line, " key") || strings.Contains(line, " channel")
}
