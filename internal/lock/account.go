package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// Scripts run as the service account. Where that may not do all that they do, a script would end in the middle, and a lock that was
// had could not be given back. So Redis is asked at first what the account lacks: the log says it, and no lock is given.

// accountAsked is how often an account is asked for that lacks nothing; one that does is asked for at each sample of the clock.
const accountAsked = 10 * time.Second

// account is what is known of the service account's rights at one node, and of what the node can do.
type account struct {
	doubts atomic.Int64           // how often there was a reason to ask anew
	known  atomic.Int64           // one more than doubts was when the last question began that got an answer
	lacks  atomic.Pointer[string] // rights without which no lock is given
	cannot atomic.Pointer[string] // what Redis said when a lock was taken and given back for a try
	verb   atomic.Pointer[string] // with what a node of a cluster publishes

	said string // what the log says that it lacks; used by the one question under way

	// guarded by mu, under which nobody waits for Redis
	mu     sync.Mutex
	asking chan struct{} // closed when the question under way is over; nil: there is none
	failed time.Time     // when a question got no answer last
	began  time.Time     // when the last question began
	next   time.Time     // when to ask
	era    int           // of the clock: another master has users of its own
}

// fresh says that Redis has answered a question that began after the last reason to ask.
func (a *account) fresh() bool { return a.known.Load() == a.doubts.Load()+1 }

// outdated says that the node may be another than it was: it is asked before the next lock is given.
func (a *account) outdated() { a.doubts.Add(1) }

// askPause is for how long nobody waits for an answer after a question that got none, and for how long refusals that may be about
// the names of a client's own locks do not lead to another question.
const askPause = time.Second

// refused is told what became of a script. Where Redis refused it for want of a right or of a command, what is known of the node is
// not true any more, and the node is asked before the next lock is given. A refusal of keys may be about the name that a client
// gave its lock, of which the account has no right to know: no client can have the node asked all the time by it.
func (a *account) refused(err error) {
	line, lacks := lacking(err)
	if !lacks || a.refusal() != nil { // a node that refuses locks is asked at each sample of the clock
		return
	}
	if aboutKeys(line) && a.askedLately() {
		return
	}
	a.outdated()
}

// askedLately says whether the node was asked within askPause. It is asked again soon then, but nobody waits for that.
func (a *account) askedLately() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	lately := time.Since(a.began) < askPause
	if lately {
		a.next = time.Time{} // at the next sample of the clock
	}
	return lately
}

// silent says whether the last question got no answer a moment ago.
func (a *account) silent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.failed) < askPause
}

// due says whether it is time to ask.
func (a *account) due(era int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.fresh() || era != a.era || !time.Now().Before(a.next)
}

// takes says whether the call asks a node of a quorum for a lock.
func takes(c node.Call) bool {
	for _, vote := range scripts.Vote {
		if c.Script == vote {
			return true
		}
	}
	return false
}

// right is one ACL rule, and the commands one of which needs it. Without needed, locks only wait longer when it is lacking.
type right struct {
	rule, commands string
	needed         bool
}

// Of each kind of key one is asked for: what Redis says of it, it says of all that the rules in docs/OPERATIONS.md are for. Which names
// locks have is not known here; a script whose lock is out of bounds is refused before it begins.
var accountKeys = []string{"redisson_lock_token:{lockproxy}", "lockproxy_watch:{lockproxy}", "{lockproxy}:rwlock_timeout"}

// accountCommands are the commands of the scripts that name a key, with what follows it.
var accountCommands = []string{
	"del", "exists", "get", "hdel 1", "hexists 1", "hget 1", "hgetall", "hincrby 1 1", "hkeys", "hlen", "hmget 1", "hset 1 1", "lindex 0",
	"linsert BEFORE 1 1", "llen", "lpop", "lpush 1", "lrange 0 1", "lrem 0 1", "pexpire 1", "pttl", "rpush 1", "set 1", "type", "zadd 1 1",
	"zcard", "zrange 0 1", "zrem 1", "zscore 1",
}

// rights are all that locks need of the service account: of one Redis, on a cluster, on a quorum.
func rights(way PubSub, clustered, quorum bool) []right {
	all := make([]right, 0, len(accountCommands)+16)
	for _, c := range accountCommands {
		name, rest, _ := strings.Cut(c, " ")
		var on []string
		for _, key := range accountKeys {
			on = append(on, name+" "+key+" "+rest)
		}
		all = append(all, right{"+" + name, strings.Join(on, "|"), true})
	}
	for i, pattern := range []string{"~redisson_*", "~lockproxy_*", "~{*"} {
		key := accountKeys[i]
		all = append(all, right{pattern, "get " + key + "|exists " + key + "|del " + key, true})
	}
	const channel = " redisson_lock__channel:{lockproxy}"
	needed, other := []string{"time", "evalsha 0 0", "eval 0 0"}, []string{"ping"}
	classic, sharded := !clustered || way != PubSubSharded, clustered && way != PubSubClassic
	if classic {
		needed = append(needed, "publish"+channel+" 0")
		other = append(other, "subscribe"+channel, "unsubscribe"+channel)
	}
	if sharded {
		needed = append(needed, "spublish"+channel+" 0")
		other = append(other, "ssubscribe"+channel, "sunsubscribe"+channel)
	}
	if clustered {
		needed = append(needed, "asking")
	} else {
		other = append(other, "select 0")
	}
	if !quorum { // no hand-off, no replicas; the commands are those of another Redis
		other = append(other, "wait 0 1", "command")
		if classic {
			all = append(all, right{"+pubsub|numsub", "pubsub numsub" + channel, false})
		}
		if sharded {
			all = append(all, right{"+pubsub|shardnumsub", "pubsub shardnumsub" + channel, false})
		}
	}
	for _, c := range slices.Concat(needed, other) {
		name, _, _ := strings.Cut(c, " ")
		all = append(all, right{"+" + name, c, slices.Contains(needed, c)})
	}
	return all
}

// noteProbe notes what Redis refused to the lock that was taken for a try.
func (a *account) noteProbe(cannot string, log *slog.Logger) {
	was := a.cannot.Load()
	switch {
	case cannot == "" && was != nil:
		log.Info("locks can be taken and given back again")
	case cannot != "" && (was == nil || *was != cannot):
		log.Error("a lock could not be taken and given back for a try, none is given", "error", cannot)
	}
	a.cannot.Store(nil)
	if cannot != "" {
		a.cannot.Store(&cannot)
	}
}

// noteRights notes what the account lacks.
func (a *account) noteRights(lacking []right, s site) {
	log := s.log
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

// lackingRights asks one node.
func lackingRights(ctl *upstream.Control, all []right) ([]right, error) {
	client, err := ctl.Client(0)
	if err != nil {
		return nil, err
	}
	args := []string{scripts.Account.SHA, "0"}
	for _, r := range all {
		args = append(args, r.commands)
	}
	reply := client.Do(context.Background(), client.B().Arbitrary("EVALSHA").Args(args...).Build())
	if node.UnknownScript(reply.Error()) {
		args[0] = scripts.Account.Source
		reply = client.Do(context.Background(), client.B().Arbitrary("EVAL").Args(args...).Build())
	}
	numbers, err := reply.AsIntSlice()
	var refusal *upstream.ReplyError
	if errors.As(node.Outcome(err), &refusal) && strings.HasPrefix(refusal.Line, "NOPERM") {
		return []right{{rule: "+eval +evalsha", needed: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	var lacking []right
	for _, n := range numbers {
		lacking = append(lacking, all[n-1])
	}
	return lacking, nil
}

func (a *account) refusal() error {
	if lacks := a.lacks.Load(); lacks != nil {
		return &Error{"NOPERM", "the service account lacks what locks need: " + *lacks}
	}
	if cannot := a.cannot.Load(); cannot != nil {
		return &upstream.ReplyError{Line: *cannot + ", so no lock is given that could not be given back"}
	}
	return nil
}
