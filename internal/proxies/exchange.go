// Package proxies is how the proxies before one Redis know of each other: the one that is to show all locks asks on a
// channel, and each that hears it answers on another. That is for what people are shown: no lock waits for it, and nothing
// that is heard changes one.
package proxies

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	asking     = "lockproxy:ask"     // the channel of questions
	answersFor = "lockproxy:answer:" // and the id of the proxy that has asked: the channel of its answers

	mostQuestion, mostAnswer = 16 << 10, 256 << 10 // bytes
	mostHeard                = 16 << 20            // bytes of all answers to a question
	mostWaiting              = 32                  // questions
	mostID                   = 64                  // bytes of a question's id

	// answerTime is for all answers. Those that did not answer the last time have lateTime once all others have.
	answerTime, lateTime = time.Second, 100 * time.Millisecond
	// Fresh is for how long a view is shown again, whoFresh that of a question about no locks.
	fresh, whoFresh = time.Second, 4 * time.Second
	mostRecent      = 16 // views
	// rest and restMost are the pauses after an answer, which are otherwise four times as long as it took to make.
	rest, restMost = 20 * time.Millisecond, 100 * time.Millisecond
)

// Options set an Exchange up.
type Options struct {
	Self  Proxy
	Home  *Home // nil: this proxy is alone
	Locks Locks
	// Quorum says that locks are elsewhere: their proxies may have another Redis for data.
	Quorum bool
}

// Locks is the lock engine, as far as it is asked.
type Locks interface {
	Entries() []lock.Entry
	Stats() lock.Stats
	// Forced is called when another proxy says that it has freed a lock by force.
	Forced(db int, key string)
}

// Exchange asks the other proxies, and answers them. Ask and Of may be called on nil, which knows of none.
type Exchange struct {
	o        Options
	look     look
	waiting  chan message // questions of others
	turn     sync.Mutex   // who has it asks
	mu       sync.Mutex   // guards all below
	asked    *collection  // the question that was asked last
	known    []State      // other proxies
	nameless int          // so many more did not answer the last time, and have never said who they are
	deaf     error        // why no messages come; nil: they do
	recent   map[Question]*shared
}

// shared is a view for all who want the same at the same time.
type shared struct {
	done chan struct{} // closed when it is there
	made time.Time
	View
}

// collection is a question, and what was answered to it. The Exchange's mutex guards it.
type collection struct {
	id      string
	over    bool // nobody waits for more
	answers []Answer
	bytes   int
	echo    bool          // the question has come back: this proxy hears what is said
	came    chan struct{} // has one slot
}

// message is a question, or news, on its channel: the ids of the proxy and of the question, and this as JSON.
type message struct {
	id     string
	From   Proxy     `json:"from"`
	Ask    *Question `json:"ask,omitempty"`
	Forced *forced   `json:"forced,omitempty"`
}

// forced is a lock that was freed by force.
type forced struct {
	DB   int  `json:"db"`
	Name Text `json:"name"`
}

var errDeaf = errors.New("no message has come yet")

// New is an Exchange that hears nothing before Run.
func New(o Options) *Exchange {
	o.Self.Host, o.Self.Version = clip(o.Self.Host), clip(o.Self.Version)
	return &Exchange{o: o, waiting: make(chan message, mostWaiting), deaf: errDeaf, recent: map[Question]*shared{}}
}

// Self is what this proxy says of itself.
func (x *Exchange) Self() Proxy { return x.o.Self }

// Run hears questions, and answers them, until ctx ends.
func (x *Exchange) Run(ctx context.Context) {
	var answering sync.WaitGroup
	answering.Go(func() { x.answerAll(ctx) })
	if x.o.Home != nil {
		x.listen(ctx)
		x.o.Home.close()
	}
	answering.Wait()
}

// listen keeps the subscription.
func (x *Exchange) listen(ctx context.Context) {
	failures := retry.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}
	for ctx.Err() == nil {
		began := time.Now()
		err := x.o.Home.subscribe(ctx, x.hear, asking, answersFor+x.o.Self.ID)
		x.mu.Lock()
		x.deaf = err
		x.mu.Unlock()
		if time.Since(began) > time.Second {
			failures.Reset()
		}
		retry.Sleep(ctx, failures.Next(), x.o.Home.moved)
	}
}

// hear takes a message. What is longer than it may be, or an answer to nothing that was asked, is never read.
func (x *Exchange) hear(m rueidis.PubSubMessage) {
	first, rest, _ := strings.Cut(m.Message, " ")
	if m.Channel != asking {
		x.answered(first, rest)
		return
	}
	id, text, _ := strings.Cut(rest, " ")
	switch {
	case first == x.o.Self.ID:
		x.echo(id)
		return
	case len(text) > mostQuestion, len(id) > mostID:
		return
	}
	said := message{}
	if json.Unmarshal([]byte(text), &said) != nil || said.From.ID != first || !said.From.valid() {
		return
	}
	said.id = id
	select {
	case x.waiting <- said:
	default: // it asks again
	}
}

// echo notes that a question of this proxy has come back.
func (x *Exchange) echo(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.asked; c != nil && c.id == id {
		c.echo, x.deaf = true, nil
		retry.Wake(c.came)
	}
}

// answered notes an answer.
func (x *Exchange) answered(id, text string) {
	x.mu.Lock()
	c := x.asked
	wanted := c != nil && c.id == id && len(text) <= mostAnswer && c.bytes+len(text) <= mostHeard && len(c.answers) < mostProxies
	if wanted {
		c.bytes += len(text)
	}
	x.mu.Unlock()
	a := Answer{}
	if !wanted || json.Unmarshal([]byte(text), &a) != nil || !a.valid() || a.ID == x.o.Self.ID {
		return
	}
	x.meet(a.Proxy)
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.over || slices.ContainsFunc(c.answers, func(other Answer) bool { return other.ID == a.ID }) {
		return
	}
	c.answers = append(c.answers, a)
	retry.Wake(c.came)
}

// answerAll answers questions one after the other, and rests after each.
func (x *Exchange) answerAll(ctx context.Context) {
	tick := time.NewTicker(lookMost)
	defer tick.Stop()
	for {
		select {
		case said := <-x.waiting:
			began := time.Now()
			x.answer(ctx, said)
			retry.Sleep(ctx, min(max(rest, 4*time.Since(began)), restMost), nil)
		case <-tick.C:
			x.look.forget()
		case <-ctx.Done():
			return
		}
	}
}

// answer does what a message of another proxy wants.
func (x *Exchange) answer(ctx context.Context, said message) {
	x.meet(said.From)
	switch {
	case said.Forced != nil:
		x.o.Locks.Forced(said.Forced.DB, string(said.Forced.Name))
	case said.Ask != nil:
		// Whoever asks hears, or does not: it says itself who has not answered.
		_, _ = x.o.Home.publish(ctx, answersFor+said.From.ID, said.id+" "+x.here(*said.Ask).text())
	}
}

// meet notes that a proxy is there.
func (x *Exchange) meet(p Proxy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	for i := range x.known {
		if known := &x.known[i]; known.ID == p.ID {
			if known.heard = now; known.State != "up" {
				known.State, known.Since, known.Trouble = "up", now, ""
			}
			return
		}
	}
	if len(x.known) < mostProxies {
		x.known = append(x.known, State{Proxy: p, State: "up", Since: now, heard: now})
	}
}

// here is the answer of this proxy.
func (x *Exchange) here(q Question) Answer {
	q.Locks, q.Of = min(q.Locks, MostLocks), max(0, min(q.Of, MostOf))
	self, now := x.o.Self, x.o.Locks.Stats()
	self.Holds, self.Waits = int(now.Held), int(now.Waiting)
	return x.look.answer(q, self, x.o.Locks.Entries)
}

// text is the answer as JSON, with as many of its locks as fit.
func (a Answer) text() string {
	for {
		text, err := json.Marshal(a)
		n := len(a.Locks)
		switch {
		case err != nil:
			return "" // it has no value that JSON has not
		case len(text) <= mostAnswer:
			return string(text)
		case n > 1:
			a.Locks = a.Locks[:n*3/4]
		default:
			l := &a.Locks[0]
			l.Holders, l.Waiters = l.Holders[:len(l.Holders)/2], l.Waiters[:len(l.Waiters)/2]
		}
	}
}

// Here is what this proxy would answer to others.
func (x *Exchange) Here(q Question) View {
	a := x.here(q)
	return View{Locks: a.Locks, Of: a.Of, At: a.at(time.Now())}
}

// at is when an answer was so that has come now.
func (a *Answer) at(now time.Time) time.Time {
	return now.Add(-max(0, time.Duration(a.Age)*time.Millisecond))
}

// Ask is what all proxies say, now or a moment ago. It takes answerTime at most for each of those who want something else
// at the same time.
func (x *Exchange) Ask(ctx context.Context, q Question) View {
	if x == nil {
		return View{At: time.Now()}
	}
	one, first := x.share(q)
	if first {
		one.View, one.made = x.ask(q), time.Now()
		close(one.done)
		return one.View
	}
	select {
	case <-one.done:
		return one.View
	case <-ctx.Done():
		return View{At: time.Now()}
	}
}

// Of is the other proxy whose connection an owner is, which has no ID if it is not known. none: it is no proxy's.
func (x *Exchange) Of(ctx context.Context, owner string) (of State, none bool) {
	id, _, is := lockstore.ConnectionIn(owner)
	if x == nil || !is || id == x.o.Self.ID {
		return State{}, false
	}
	v := x.Ask(ctx, Question{})
	i := slices.IndexFunc(v.Proxies, func(s State) bool { return s.ID == id })
	if i >= 0 {
		return v.Proxies[i], false
	}
	whole := !slices.ContainsFunc(v.Proxies, func(s State) bool { return s.Trouble != "" && s.State != "gone" })
	return State{}, whole && !x.o.Quorum
}

// Freed tells the other proxies of a lock that was freed by force, so that those at which its holders are tell them.
func (x *Exchange) Freed(ctx context.Context, db int, key string) {
	if x.o.Home == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	what := message{From: x.o.Self, Forced: &forced{db, Text(key)}}
	_, _ = x.say(ctx, "-", what) // otherwise they find it out when they renew it
}

// share finds a view for a question. first: the caller has to ask.
func (x *Exchange) share(q Question) (one *shared, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for of, one := range x.recent {
		if one.old(of) {
			delete(x.recent, of)
		}
	}
	if one = x.recent[q]; one != nil {
		return one, false
	}
	one = &shared{done: make(chan struct{})}
	if len(x.recent) < mostRecent {
		x.recent[q] = one
	}
	return one, true
}

// old says whether a view is to be asked for anew.
func (s *shared) old(q Question) bool {
	select {
	case <-s.done:
	default:
		return false
	}
	if q.Locks == 0 {
		return time.Since(s.made) > whoFresh
	}
	return time.Since(s.made) > fresh
}

// ask asks all proxies.
func (x *Exchange) ask(q Question) View {
	x.turn.Lock()
	defer x.turn.Unlock()
	c := &collection{id: rand.Text(), came: make(chan struct{}, 1)}
	own := x.here(q)
	self := State{Proxy: own.Proxy, State: "self", Since: own.Started}
	v := View{At: own.at(time.Now()), Proxies: []State{self}}
	if x.o.Home == nil {
		v.Locks, v.Of = merge([]Answer{own}, q)
		return v
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	x.mu.Lock()
	x.asked = c
	x.mu.Unlock()
	others, err := x.say(ctx, c.id, message{From: own.Proxy, Ask: &q})
	if others--; err != nil {
		others = -1
	}
	x.await(ctx, c, others)
	x.mu.Lock()
	defer x.mu.Unlock()
	c.over = true
	if err == nil && !c.echo {
		err = errors.Join(errors.New("this proxy does not hear the others"), x.deaf)
	}
	if err != nil {
		v.Proxies[0].Trouble = "others may be missing: " + err.Error()
	}
	now := time.Now()
	for _, a := range c.answers {
		if at := a.at(now); at.Before(v.At) {
			v.At = at
		}
	}
	all, nameless := states(x.known, c.answers, others, now)
	x.known, x.nameless = all, nameless
	v.Proxies = append(v.Proxies, all...)
	for range min(nameless, mostNameless) {
		v.Proxies = append(v.Proxies, State{State: "down", Since: now, Trouble: silent})
	}
	v.Locks, v.Of = merge(append([]Answer{own}, c.answers...), q)
	return v
}

// await waits until all have answered, of so many others (negative: it is not known how many there are); for as many as
// did not answer the last time only for a moment after the rest.
func (x *Exchange) await(ctx context.Context, c *collection, others int) {
	var late <-chan time.Time
	for {
		x.mu.Lock()
		quiet := x.nameless
		for _, s := range x.known {
			if s.State == "down" {
				quiet++
			}
		}
		answers, echo := len(c.answers), c.echo
		x.mu.Unlock()
		switch {
		case others < 0, !echo:
		case answers >= others:
			return
		case answers >= others-quiet && late == nil:
			late = time.After(lateTime)
		}
		select {
		case <-c.came:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// say has all proxies hear something, and says how many listen, this one among them.
func (x *Exchange) say(ctx context.Context, id string, what message) (listeners int, err error) {
	text, err := json.Marshal(what)
	if err != nil {
		return 0, err
	}
	return x.o.Home.publish(ctx, asking, x.o.Self.ID+" "+id+" "+string(text))
}
