// Package proxies is how the proxies before one Redis know of each other: the one that is to show all locks, or events, asks on a
// channel, and each that hears it answers on another. That is for what people are shown. No lock waits for it, and what is
// heard decides nothing about one: when a lock was freed by force elsewhere, the engine asks Redis about its holders here.
// The force itself is done by the proxy that is asked, since one that was stopped would free a lock that its owner has taken
// again. So proxies need no addresses, tokens or certificates for each other, and Redis' ACL says who may publish here. A
// hash in Redis would be met by DBSIZE, KEYS * and FLUSHALL.
package proxies

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/events"
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

	// answerTime is for all answers. As many as were not heard of for quietAfter have lateTime once all others have.
	answerTime, quietAfter, lateTime = time.Second, 10 * time.Second, 100 * time.Millisecond
	// fresh is for how long an Overview is shown again, mostRecent how many are.
	fresh, mostRecent = time.Second, 16
	// rest and restMost are the pauses after an answer, which are otherwise four times as long as it took to make.
	rest, restMost = 20 * time.Millisecond, 100 * time.Millisecond
)

// ExchangeOptions set an Exchange up.
type ExchangeOptions struct {
	Self  Proxy
	Home  *Home // nil: this proxy is alone
	Locks Locks
	// Events are what has happened at this proxy.
	Events *events.Log
	// Quorum says that locks are elsewhere: their proxies may have another Redis for data.
	Quorum bool
}

// Locks is the lock engine, as far as it is asked.
type Locks interface {
	Each(fits lock.Fits, f func(lock.Entry))
	Stats() lock.Stats
	// Forced is called when another proxy says that it has freed a lock by force.
	Forced(db int, key string)
}

// Exchange asks the other proxies, and answers them. Ask and Of may be called on nil, which knows of none.
type Exchange struct {
	o       ExchangeOptions
	waiting chan message        // questions of others
	turn    chan struct{}       // has one slot: whoever has put something in asks
	recent  map[string]Overview // by their questions; of whoever has the turn

	mu       sync.Mutex  // guards all below
	asked    *collection // nil: nobody waits for answers
	known    []State     // other proxies
	nameless int         // so many more did not answer the last time, and have never said who they are
	deaf     error       // why no messages come; nil: they do
}

// collection is a question, and what was answered to it. The Exchange's mutex guards it.
type collection struct {
	id      string
	answers []Answer
	bytes   int
	echo    bool          // the question has come back: this proxy hears what is said
	came    chan struct{} // has one slot
}

// message is a question, or news.
type message struct {
	ID     string    `json:"id,omitempty"` // of the question
	From   Proxy     `json:"from"`
	Ask    *Question `json:"ask,omitempty"`
	Forced *forced   `json:"forced,omitempty"`
}

// forced is a lock that was freed by force.
type forced struct {
	DB   int    `json:"db"`
	Name []byte `json:"name"`
}

// New is an Exchange that hears nothing before Run.
func New(o ExchangeOptions) *Exchange {
	o.Self.Host, o.Self.Version = clip(o.Self.Host), clip(o.Self.Version)
	return &Exchange{o: o, waiting: make(chan message, mostWaiting), turn: make(chan struct{}, 1), recent: map[string]Overview{}}
}

// Self is what this proxy says of itself.
func (x *Exchange) Self() Proxy { return x.o.Self }

// Run hears questions, and answers them, until ctx ends.
func (x *Exchange) Run(ctx context.Context) {
	if x.o.Home == nil {
		return
	}
	var answering sync.WaitGroup
	answering.Go(func() { x.answerAll(ctx) })
	x.listen(ctx)
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

// hear takes a message: an answer, or what is said to all. What is longer than that may be is never read.
func (x *Exchange) hear(m rueidis.PubSubMessage) {
	if m.Channel != asking {
		id, answer, _ := strings.Cut(m.Message, " ")
		from, text, _ := strings.Cut(answer, " ")
		x.takeAnswer(id, from, text)
		return
	}
	said := message{}
	switch {
	case len(m.Message) > mostQuestion, json.Unmarshal([]byte(m.Message), &said) != nil, !said.From.valid():
	case said.From.ID == x.o.Self.ID:
		x.echo(said.ID)
	default:
		select {
		case x.waiting <- said:
		default: // it asks again
		}
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

// takeAnswer notes an answer. One that comes too late says that its proxy is at work.
func (x *Exchange) takeAnswer(id, from, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.asked
	for i := range x.known {
		if x.known[i].ID == from {
			x.known[i].heard = time.Now()
		}
	}
	if !c.reads(id, text) {
		return
	}
	a, ok := read(text)
	if !ok || a.ID == x.o.Self.ID {
		return
	}
	s := x.meet(a.Proxy)
	if s != nil && s.answered != id {
		s.answered = id
		c.answers = append(c.answers, a)
		retry.Wake(c.came)
	}
}

// reads says whether a text that has come as the answer to the question of that id is read.
func (c *collection) reads(id, text string) bool {
	if c == nil || c.id != id || len(text) > mostAnswer {
		return false
	}
	c.bytes += len(text)
	return c.bytes <= mostHeard
}

// meet notes that a proxy has said something; nil: there is no room for one more. mu is held.
func (x *Exchange) meet(p Proxy) *State {
	i := slices.IndexFunc(x.known, func(s State) bool { return s.ID == p.ID })
	if i < 0 {
		if len(x.known) == mostProxies {
			return nil
		}
		i = len(x.known)
		x.known = append(x.known, State{})
	}
	x.known[i].Proxy, x.known[i].heard = p, time.Now()
	return &x.known[i]
}

// answerAll answers questions one after the other, and rests after each.
func (x *Exchange) answerAll(ctx context.Context) {
	for {
		select {
		case said := <-x.waiting:
			began := time.Now()
			x.answerQuestion(ctx, said)
			retry.Sleep(ctx, min(max(rest, 4*time.Since(began)), restMost), nil)
		case <-ctx.Done():
			return
		}
	}
}

// answerQuestion does what a message of another proxy wants.
func (x *Exchange) answerQuestion(ctx context.Context, said message) {
	x.mu.Lock()
	x.meet(said.From)
	x.mu.Unlock()
	switch {
	case said.Forced != nil:
		x.o.Locks.Forced(said.Forced.DB, string(said.Forced.Name))
	case said.Ask != nil:
		// Whoever asks hears, or does not: it says itself who has not answered.
		_, _ = x.o.Home.publish(ctx, answersFor+said.From.ID, said.ID+" "+x.o.Self.ID+" "+x.here(*said.Ask).text())
	}
}

// here is the answer of this proxy.
func (x *Exchange) here(q Question) Answer {
	q.Locks, q.Of, q.Events = min(q.Locks, MostRows), max(0, min(q.Of, MostOf)), min(q.Events, MostRows)
	a, now := Answer{Proxy: x.o.Self}, x.o.Locks.Stats()
	a.Holds, a.Waits = int(now.Held), int(now.Waiting)
	if q.Events > 0 {
		a.Events, a.Of = newest(q, a.ID, x.o.Events)
	} else {
		a.Locks, a.Of = look(q, a.ID, a.Holds+a.Waits, x.o.Locks.Each)
	}
	return a
}

// Ask is what all proxies say, now or a moment ago. It takes answerTime at most for each of those who want something else
// at the same time.
func (x *Exchange) Ask(ctx context.Context, q Question) Overview {
	if x == nil {
		return Overview{At: time.Now()}
	}
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return Overview{At: time.Now()}
	}
	maps.DeleteFunc(x.recent, func(_ string, v Overview) bool { return time.Since(v.At) > fresh })
	key := fmt.Sprint(q)
	v, there := x.recent[key]
	if !there {
		v = x.askAll(q)
		if len(x.recent) < mostRecent {
			x.recent[key] = v
		}
	}
	return v
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
	_, _ = x.say(ctx, message{From: x.o.Self, Forced: &forced{db, []byte(key)}}) // otherwise they find it out when they renew it
}

// askAll asks all proxies.
func (x *Exchange) askAll(q Question) Overview {
	v := Overview{At: time.Now()}
	own := x.here(q)
	v.Proxies = []State{{Proxy: own.Proxy, State: "self", Since: own.Started}}
	if x.o.Home == nil || q.Here {
		v.combine([]Answer{own}, q)
		return v
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	c := &collection{id: rand.Text(), came: make(chan struct{}, 1)}
	x.mu.Lock()
	x.asked = c
	x.mu.Unlock()
	others, err := x.say(ctx, message{ID: c.id, From: own.Proxy, Ask: &q})
	if others--; err != nil {
		others = -1
	}
	if err == nil {
		x.awaitAnswers(ctx, c, others)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = nil
	if err != nil || !c.echo {
		v.Proxies[0].Trouble = "others may be missing: " + cmp.Or(x.deaf, err, errDeaf).Error()
	}
	now := time.Now()
	x.known, x.nameless = states(x.known, c.id, others, now)
	v.Proxies = append(v.Proxies, x.known...)
	for range min(x.nameless, mostNameless) {
		v.Proxies = append(v.Proxies, State{State: "down", Since: now, Trouble: silent})
	}
	v.combine(append([]Answer{own}, c.answers...), q)
	return v
}

// awaitAnswers waits until all have answered, of so many others; for as many as have not been heard of for a while only for a
// moment after the rest.
func (x *Exchange) awaitAnswers(ctx context.Context, c *collection, others int) {
	var late <-chan time.Time
	for {
		x.mu.Lock()
		missing, quiet, echo := others-len(c.answers), x.nameless, c.echo
		for _, s := range x.known {
			if s.State == "down" && time.Since(s.heard) > quietAfter {
				quiet++
			}
		}
		x.mu.Unlock()
		switch {
		case !echo:
		case missing <= 0:
			return
		case missing <= quiet && late == nil:
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
func (x *Exchange) say(ctx context.Context, what message) (listeners int, err error) {
	text, err := json.Marshal(what)
	if err != nil {
		return 0, err
	}
	return x.o.Home.publish(ctx, asking, string(text))
}
