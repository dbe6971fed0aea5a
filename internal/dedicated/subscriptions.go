package dedicated

import (
	"iter"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Subscription is what a client has subscribed to.
type Subscription struct {
	Kind SubscriptionKind
	Name string
}

// SubscriptionKind is which of the three families of commands a subscription belongs to.
type SubscriptionKind uint8

const (
	OfChannel SubscriptionKind = iota
	OfPattern
	OfShard
)

// SubscribeVerbs and UnsubscribeVerbs are the commands of each kind.
var (
	SubscribeVerbs   = [...]string{OfChannel: "subscribe", OfPattern: "psubscribe", OfShard: "ssubscribe"}
	UnsubscribeVerbs = [...]string{OfChannel: "unsubscribe", OfPattern: "punsubscribe", OfShard: "sunsubscribe"}
)

// subscriptionBytes is what a subscription takes beside its name.
const subscriptionBytes = 64

// Bytes is how much is kept for a subscription, about.
func (s Subscription) Bytes() int { return len(s.Name) + subscriptionBytes }

// Confirmation is Redis' answer to a SUBSCRIBE or its like, one for each name.
type Confirmation struct {
	Verb   string
	Of     Subscription
	Ends   bool // the subscription has ended
	Null   bool // there was none that could end: Of has no name
	Number int  // how many subscriptions there are now: sharded ones, or all others together
}

// Name is the subscription's name; nil: it has none.
func (c Confirmation) Name() []byte {
	if c.Null {
		return nil
	}
	return []byte(c.Of.Name)
}

// confirmationIn takes a confirmation apart; false: it is none.
func confirmationIn(frame []byte) (c Confirmation, ok bool) {
	r, _ := resp.ParseReply(frame)
	if len(r.Elems) != 3 {
		return c, false
	}
	verb, name := string(r.Elems[0].Text), r.Elems[1]
	word := firstWords[verb]
	sub := Subscription{word.of, string(name.Text)}
	return Confirmation{Verb: verb, Of: sub, Ends: word.ends, Null: name.Null, Number: r.Elems[2].Int()}, true
}

// subscribes is the effect of a SUBSCRIBE, or its like, which is answered by confirmations. They change the state, one
// by one.
type subscribes struct {
	verb  string
	names int
}

func (subscribes) apply(*State) {}
func (subscribes) bytes() int   { return 0 }

// subscriptions are those of a connection.
type subscriptions struct {
	number [3]int // of each kind, as Redis counts them
	due    int    // confirmations still to come of the command that has got its first one; 0: there is no such command

	all   map[Subscription]struct{} // nil in a cluster, where they have connections of their own
	bytes int                       // of all, about
}

// total is how many there are.
func (s *subscriptions) total() int {
	return s.number[OfChannel] + s.number[OfPattern] + s.number[OfShard]
}

// take takes a confirmation. last: it is the last one of the command that asks, whose reply comes next.
func (s *subscriptions) take(c Confirmation, asks subscribes) (last bool) {
	if asks.verb == c.Verb {
		if s.due == 0 {
			s.due = s.confirmations(c.Of.Kind, asks.names)
		}
		s.due--
		last = s.due == 0
	}
	switch c.Of.Kind {
	case OfChannel:
		s.number[OfChannel] = c.Number - s.number[OfPattern]
	case OfPattern:
		s.number[OfPattern] = c.Number - s.number[OfChannel]
	case OfShard:
		s.number[OfShard] = c.Number
	}
	s.note(c)
	return last
}

// note keeps which subscriptions there are.
func (s *subscriptions) note(c Confirmation) {
	if s.all == nil || c.Null {
		return
	}
	before := len(s.all)
	if c.Ends {
		delete(s.all, c.Of)
	} else {
		s.all[c.Of] = struct{}{}
	}
	s.bytes += (len(s.all) - before) * c.Of.Bytes()
}

// confirmations returns how many confirmations a command gets: one for each of its names, or without names one for each
// subscription of that kind, but at least one.
func (s *subscriptions) confirmations(k SubscriptionKind, names int) int {
	if names > 0 {
		return names
	}
	return max(s.number[k], 1)
}

// brings says whether one of them brings a message that begins so.
func (s *subscriptions) brings(k SubscriptionKind, frame []byte) bool {
	for name := range s.names(k) {
		if secondText(frame, name) {
			return true
		}
	}
	return false
}

// names are those of a kind.
func (s *subscriptions) names(k SubscriptionKind) iter.Seq[string] {
	return func(yield func(string) bool) {
		for sub := range s.all {
			if sub.Kind == k && !yield(sub.Name) {
				return
			}
		}
	}
}
