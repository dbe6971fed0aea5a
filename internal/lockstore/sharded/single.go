package sharded

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// single is one Redis, or the master behind Sentinels, which may be another one later.
//
// A new master has what had reached it when it was promoted. Every hold is looked at there when the wake-up connection
// is back (resubscribed), and once more a little later: the answer of the former master to a verb may have been on its
// way.
type single struct {
	host lockstore.Host
	only *shard
	node.Subscribers
	switched switched
}

func newSingle(h lockstore.Host, ctl *upstream.Control) *single {
	s := &single{host: h}
	s.only = &shard{Node: node.Node{Control: ctl}, sample: s.sample, site: s.site,
		steps: func() node.Steps { return node.Steps{Publish: node.Publish, Proxy: h.UUID} }}
	s.Subscribers = node.Subscribers{node.NewSubscriber(ctl,
		node.SubscriberOptions{Logger: h.Log, Back: s.resubscribed})}
	ctl.OnSwitch(s.masterSwitches)
	return s
}

// Run listens to Redis, and keeps its time. The Control's Close ends requests.
func (s *single) Run(ctx, _ context.Context) {
	var listening sync.WaitGroup
	listening.Go(func() { s.Subscribers[0].Run(ctx) })
	s.only.KeepTime(ctx, func() error {
		if s.switched.due() {
			s.host.RecheckAll(lockstore.Failover)
		}
		return s.sample()
	}, s.site)
	listening.Wait()
}

// renewAtOnce is the most renewal scripts in flight; renewSmall where a script has the holds of one slot only.
const renewAtOnce, renewSmall = 16, 64

func (s *single) Location(string) lockstore.Location { return lockstore.Location{AtOnce: renewAtOnce} }

func (s *single) permitted(ctx context.Context, most time.Duration, _ string) (refused, err error) {
	return s.only.Admit(ctx, most, s.site)
}

func (s *single) able() []lockstore.Ability { return []lockstore.Ability{{Err: s.only.Able()}} }

func (s *single) site() node.Site {
	return node.Site{Node: &s.only.Node, Era: s.only.Clock.Era(), Log: s.host.Log, Run: s.host.Background,
		UUID: s.host.UUID}
}

func (s *single) do(ctx context.Context, r *request) ([]int64, error) {
	return r.sendTo(ctx, s.only, false)
}

// sample asks Redis for its time.
func (s *single) sample() error {
	jump, err := s.only.Sample()
	switch {
	case jump.By == 0:
	case jump.Another:
		s.anotherClock(jump)
	default:
		s.host.Log.Warn("Redis' clock jumped, checking every lock", "by", jump.By)
		s.host.RecheckAll(lockstore.Clock)
	}
	return err
}

// resubscribed is called when the wake-up connection is back: messages may have been missed and Redis may have
// forgotten locks, so every waiter tries again and every hold is looked at.
func (s *single) resubscribed() {
	s.only.Account.Outdated()
	s.host.RecheckAll(s.switched.reason())
	s.host.Wake(lockstore.EveryKey)
}

// lookLater is how long after the first look at a new master the second comes.
const lookLater = time.Second

// switched remembers that the master has changed.
type switched struct {
	mu    sync.Mutex
	fresh bool      // no look has begun since
	again time.Time // when to look again; zero: no need
}

// masterSwitches is called when another Redis is about to become the master, before any connection to it is made.
func (s *single) masterSwitches() {
	s.only.Account.Outdated()
	s.only.Clock.Forget() // no not-after is computed before the new master's clock has been read
	s.Subscribers[0].Hurry()
	s.switched.mu.Lock()
	s.switched.fresh = true
	s.switched.mu.Unlock()
}

// anotherClock is called with how much the new master's clock is ahead of the former one's. Nothing is sent to the new
// one before its clock is known.
func (s *single) anotherClock(ahead node.Jump) {
	s.host.Log.Warn("the new master's clock differs from the former one's", "by", ahead.By)
	if ahead.By >= 0 {
		s.host.Shorten(ahead.By, ahead.Asked, lockstore.EveryKey)
	}
}

// reason is why a hold that is missing in the look that begins now is gone.
func (s *switched) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		return lockstore.Gone
	}
	s.fresh, s.again = false, time.Now().Add(lookLater)
	return lockstore.Failover
}

// due says, once, that the time of the second look has come.
func (s *switched) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again.IsZero() || time.Now().Before(s.again) {
		return false
	}
	s.again = time.Time{}
	return true
}
