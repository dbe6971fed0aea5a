package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

// The steps that the goals are about; the pair is the first two.
const (
	stepAcquire   = "plain: acquire"
	stepRelease   = "plain: release, the last"
	stepPair      = "plain: the pair"
	stepRenewMany = "plain: renew 100"
	stepNamed     = "OWNER: acquire"
	stepRenew     = "OWNER: RENEW"

	stepFloorAcquire = "floor: acquire"
	stepFloorRelease = "floor: release, the last"
	stepFloorRenew   = "floor: renew 1"
	stepFloorPair    = "floor: the pair"
	stepFloorMany    = "floor: renew 100"
)

// scriptStep is one step of a lock, done by our script and by Redisson's.
type scriptStep struct {
	name   string
	before []string // commands that lead up to it, by words
	ours   scriptCall
	theirs scriptCall
	most   float64 // how much of their time ours may take
	holds  int     // that one call is about, 1 if it is 0
}

// scriptCall is one run of a script.
type scriptCall struct {
	source string
	keys   string // by words; of each hold
	args   string
	each   string   // more args, of each hold
	before []string // beside those of the step
	want   string   // how its reply begins
}

// Words in steps: of the lock its name, channels, fair queue; two owners and what belongs to them; clocks.
func wordsOf(name string) *strings.Replacer {
	const uuid = "8743c9c0-0795-4907-87fd-6c719a6b4586:"
	now := time.Now()
	return strings.NewReplacer("%lock", name, "%channel", "redisson_lock__channel:{"+name+"}", "%rwchannel", "redisson_rwlock:{"+name+"}",
		"%proxy", strings.TrimSuffix(uuid, ":"),
		"%latch", "redisson_unlock_latch:{"+name+"}:0123456789abcdef0123456789abcdef",
		"%queue", "redisson_lock_queue:{"+name+"}", "%timeouts", "redisson_lock_timeout:{"+name+"}", "%tickets", "lockproxy_fair:{"+name+"}",
		"%none", "922337203685477", "%places", "{"+name+"}:timeout", "%sc", "redisson_sc:{"+name+"}",
		"%holds", "{"+name+"}:"+uuid+"17:rwlock_timeout", "%yourholds", "{"+name+"}:"+uuid+"18:rwlock_timeout", "%prefix", "{"+name+"}",
		"%me", uuid+"17", "%you", uuid+"18", "%job", "job-17", "%task", "job-18", "%token", "redisson_lock_token:{"+name+"}",
		"%notafter", strconv.FormatInt(now.Add(time.Hour).UnixMicro(), 10), "%now", strconv.FormatInt(now.UnixMilli(), 10),
		"%far", strconv.FormatInt(now.Add(time.Hour).UnixMilli(), 10), "''", "")
}

// words are those of a text for one lock.
func words(text string, of *strings.Replacer) (all []string) {
	for word := range strings.FieldsSeq(text) {
		all = append(all, of.Replace(word))
	}
	return all
}

// command is the call on some locks.
func (call scriptCall) command(names []string) []byte {
	var keys, each []string
	for _, name := range names {
		of := wordsOf(name)
		keys, each = append(keys, words(call.keys, of)...), append(each, words(call.each, of)...)
	}
	all := append([]string{"EVALSHA", sha(call.source), strconv.Itoa(len(keys))}, keys...)
	return command(append(append(all, words(call.args, wordsOf(names[0]))...), each...)...)
}

// steps are all that are measured.
func steps() (all []scriptStep) {
	all = append(all, plainSteps()...)
	all = append(all, namedSteps()...)
	all = append(all, fairSteps()...)
	all = append(all, readSteps()...)
	all = append(all, limitSteps()...)
	return append(all, floorSteps()...)
}

// floorSteps have in our place what any script would have to do.
func floorSteps() []scriptStep {
	renew := scriptCall{source: floorRenew, keys: "%lock", args: "%notafter", each: "%me 30000", want: "*1\r\n:1\r\n"}
	renewMany := renew
	renewMany.want = "*100\r\n:1\r\n"
	return []scriptStep{
		{stepFloorAcquire, nil, scriptCall{source: floorAcquire, keys: "%lock %queue", args: "%notafter %me 1 30000", want: "*3\r\n:1\r\n"},
			redissonsAcquire("%me", theyGrant), 0, 0},
		{stepFloorRelease, held("%me", "1"), scriptCall{source: floorRelease, keys: "%lock %channel", args: "%notafter %me PUBLISH", want: freed},
			redissonsRelease("%me", ":1"), 0, 0},
		{stepFloorRenew, held("%me", "1"), renew, redissonsRenew("%me", "*1\r\n:1"), 0, 1},
		{stepFloorMany, held("%me", "1"), renewMany, redissonsRenew("%me", "*100\r\n:1"), 0, 100},
	}
}

const (
	granted, refused      = "*5\r\n:1\r\n", "*5\r\n:0\r\n"
	freed, kept           = ":1\r\n", ":0\r\n"
	handedOn              = "*7\r\n:1\r\n:0\r\n:1\r\n" // freed, and granted to the next
	theyGrant, theyRefuse = "$-1\r\n", ":"
)

func held(by string, count string) []string {
	return []string{"HSET %lock " + by + " " + count, "PEXPIRE %lock 20000"}
}

// plainKeys are the KEYS that the steps of a plain lock share.
const plainKeys = "%lock %queue %token"

// acquireArgs and releaseArgs are the ARGV of a plain lock's steps, for an owner with a count; place is that of a waiter of the fair queue.
func acquireArgs(owner, count, place string) string {
	return owner + " " + count + " 30000 %notafter '' " + place + " PUBLISH '' 0"
}

func releaseArgs(owner, count string) string {
	return owner + " " + count + " %notafter '' PUBLISH %proxy"
}

func acquire(owner, count, want string) scriptCall {
	return scriptCall{source: scripts.Acquire.Source, keys: plainKeys, args: acquireArgs(owner, count, "''"), want: want}
}

func release(owner, count, want string) scriptCall {
	return scriptCall{source: scripts.Release.Source, keys: plainKeys, args: releaseArgs(owner, count), want: want}
}

// handOn gives a plain lock from one owner to the next.
func handOn(release, acquire string) scriptCall {
	return scriptCall{source: scripts.Handoff.Source, keys: plainKeys, args: "%channel '' PUBLISH %proxy " + release + " " + acquire, want: handedOn}
}

func plainSteps() []scriptStep {
	renew := scriptCall{source: scripts.Renew.Source, keys: "%lock", args: "%notafter set", each: "%me 30000", want: "*1\r\n:1\r\n"}
	renewMany := renew
	renewMany.want = "*100\r\n:1\r\n"
	return []scriptStep{
		{"plain: acquire", nil, acquire("%me", "1", granted), redissonsAcquire("%me", theyGrant), 1.2, 0},
		{"plain: re-enter", held("%me", "1"), acquire("%me", "2", granted), redissonsAcquire("%me", theyGrant), 1.2, 0},
		{"plain: refuse", held("%you", "1"), acquire("%me", "1", refused), redissonsAcquire("%me", theyRefuse), 1.2, 0},
		{"plain: release, the last", held("%me", "1"), release("%me", "0", freed), redissonsRelease("%me", ":1"), 1.2, 0},
		{"plain: release, of two", held("%me", "2"), release("%me", "1", kept), redissonsRelease("%me", ":0"), 1.2, 0},
		{"plain: renew 1", held("%me", "1"), renew, redissonsRenew("%me", "*1\r\n:1"), 1.2, 1},
		{"plain: renew 100", held("%me", "1"), renewMany, redissonsRenew("%me", "*100\r\n:1"), 1.2, 100},
		{"plain: hand-off ÷ release", held("%me", "1"), handOn(releaseArgs("%me", "0"), acquireArgs("%you", "1", "''")), redissonsRelease("%me", ":1"), 1.5, 0},
	}
}

func redissonsAcquire(owner, want string) scriptCall {
	return scriptCall{source: redissonAcquire, keys: "%lock", args: "30000 " + owner, want: want}
}

func redissonsRelease(owner, want string) scriptCall {
	return scriptCall{source: redissonRelease, keys: "%lock %channel %latch", args: "0 30000 " + owner + " PUBLISH 16000", want: want}
}

func redissonsRenew(owner, want string) scriptCall {
	return scriptCall{source: redissonRenew, keys: "%lock", args: "30000", each: owner, want: want}
}

// namedSteps are those of OWNER. Redisson knows only one kind of owner.
func namedSteps() []scriptStep {
	has := held("%job", "1")
	renew := scriptCall{source: scripts.Extend.Source, keys: "%lock", args: "%job 30000 %notafter renew ''", want: "*3\r\n:1\r\n"}
	return []scriptStep{
		{"OWNER: acquire", nil, acquire("%job", "lengthen", granted), redissonsAcquire("%job", theyGrant), 1.2, 0},
		{"OWNER: again", has, acquire("%job", "lengthen", granted), redissonsAcquire("%job", theyGrant), 1.2, 0},
		{"OWNER: refuse", held("%you", "1"), acquire("%job", "lengthen", refused), redissonsAcquire("%job", theyRefuse), 1.2, 0},
		{"OWNER: release", has, release("%job", "0", freed), redissonsRelease("%job", ":1"), 1.2, 0},
		{"OWNER: RENEW", has, renew, redissonsRenew("%job", "*1\r\n:1"), 1.2, 0},
		{"OWNER: hand-off ÷ release", has, handOn(releaseArgs("%job", "0"), acquireArgs("%task", "lengthen", "''")), redissonsRelease("%job", ":1"), 1.5, 0},
	}
}

func fairSteps() []scriptStep {
	acquire := func(ticket, want string, before ...string) scriptCall {
		return scriptCall{source: scripts.Acquire.Source, keys: plainKeys, args: acquireArgs("%me", "1", ticket), want: want, before: before}
	}
	theirs := func(want string, before ...string) scriptCall {
		return scriptCall{source: redissonFairAcquire, keys: "%lock %queue %timeouts", args: "30000 %me 300000 %now", want: want, before: before}
	}
	theirRelease := func(want string) scriptCall {
		return scriptCall{source: redissonFairRelease, keys: "%lock %queue %timeouts %channel %latch", args: "0 30000 %me %now PUBLISH 16000", want: want}
	}
	others := held("%you", "1")
	waiter := append(held("%me", "1"), "RPUSH %queue %you", "ZADD %timeouts %far %you")
	ours := waiter
	ours = append(ours[:len(ours):len(ours)], "HSET %tickets '' 7 %you 7:%now")
	toNext := handOn(releaseArgs("%me", "0"), acquireArgs("%you", "1", "7"))
	toNext.before = []string{"HSET %tickets '' 7 %you 7:%now"}
	place := []string{"RPUSH %queue %me", "ZADD %timeouts %far %me"}
	ticket := "HSET %tickets '' 7 %me 7:%now"
	return []scriptStep{
		{"fair: acquire, nobody waits", nil, acquire("0", granted), theirs(theyGrant), 1.2, 0},
		{"fair: acquire, its turn", place, acquire("7", granted, ticket), theirs(theyGrant), 1.2, 0},
		{"fair: refuse, to the queue", others, acquire("0", refused), theirs(theyRefuse), 1.2, 0},
		{"fair: refuse, in the queue", append(others, place...), acquire("7", refused, ticket), theirs(theyRefuse), 1.2, 0},
		{"fair: release, nobody waits", held("%me", "1"), release("%me", "0", freed), theirRelease(":1"), 1.2, 0},
		{"fair: release, one waits", ours, release("%me", "0", freed), theirRelease(":1"), 1.2, 0},
		{"fair: hand-off ÷ release", waiter, toNext, theirRelease(":1"), 1.5, 0},
	}
}

// rwKeys are the KEYS that the steps of a read/write lock share.
const rwKeys = "%lock %rwchannel %token"

// rwAcquireArgs and rwReleaseArgs are the ARGV of its steps: the side that is taken or given back, and how often the owner is to read and write.
func rwAcquireArgs(owner, side, counts string) string {
	return owner + " " + side + " " + counts + " 30000 %notafter '' %prefix '' 0 PUBLISH"
}

func rwReleaseArgs(side, counts string) string {
	return "%me " + side + " " + counts + " %notafter '' PUBLISH %prefix %proxy"
}

func rwAcquire(side, counts, want string) scriptCall {
	return scriptCall{source: scripts.RWAcquire.Source, keys: rwKeys, args: rwAcquireArgs("%me", side, counts), want: want}
}

func rwRelease(side, counts, want string) scriptCall {
	return scriptCall{source: scripts.RWRelease.Source, keys: rwKeys, args: rwReleaseArgs(side, counts), want: want}
}

// toWriter gives a read/write lock to an owner that waits to write.
func toWriter(side string) scriptCall {
	return scriptCall{source: scripts.RWHandoff.Source, keys: rwKeys, want: handedOn,
		args: "%rwchannel '' PUBLISH %proxy " + rwReleaseArgs(side, "0 0") + " " + rwAcquireArgs("%you", "write", "0 1")}
}

func rwRenew(counts string) scriptCall {
	return scriptCall{source: scripts.RWRenew.Source, keys: "%lock", args: "%notafter", each: "%me " + counts + " 30000 %prefix", want: "*1\r\n:1\r\n"}
}

func readSteps() []scriptStep {
	theirs := func(want string) scriptCall {
		return scriptCall{source: redissonReadAcquire, keys: "%lock %holds", args: "30000 %me %me:write", want: want}
	}
	theirRelease := func(want string) scriptCall {
		return scriptCall{source: redissonReadRelease, keys: "%lock %rwchannel %holds %prefix %latch", args: "0 %me PUBLISH 16000", want: want}
	}
	mine := []string{"HSET %lock mode read %me 1", "SET %holds:1 1 PX 20000", "PEXPIRE %lock 20000"}
	yours := []string{"HSET %lock mode read %you 1", "SET %yourholds:1 1 PX 20000", "PEXPIRE %lock 20000"}
	both := append(append([]string{}, yours...), mine...)
	twice := append(mine[:len(mine):len(mine)], "HSET %lock %me 2", "SET %holds:2 1 PX 20000")
	written := []string{"HSET %lock mode write %you:write 1", "PEXPIRE %lock 20000"}
	return []scriptStep{
		{"read: acquire", nil, rwAcquire("read", "1 0", granted), theirs(theyGrant), 1.2, 0},
		{"read: acquire, another reads", yours, rwAcquire("read", "1 0", granted), theirs(theyGrant), 1.2, 0},
		{"read: re-enter", mine, rwAcquire("read", "2 0", granted), theirs(theyGrant), 1.2, 0},
		{"read: refuse", written, rwAcquire("read", "1 0", refused), theirs(theyRefuse), 1.2, 0},
		{"read: release, the last", mine, rwRelease("read", "0 0", freed), theirRelease(":1"), 1.2, 0},
		{"read: release, another reads", both, rwRelease("read", "0 0", freed), theirRelease(":0"), 1.2, 0},
		{"read: release, of two", twice, rwRelease("read", "1 0", kept), theirRelease(":0"), 1.2, 0},
		{"read: renew 1", mine, rwRenew("1 0"),
			scriptCall{source: redissonReadRenew, keys: "%lock %prefix", args: "30000", each: "1 %me", want: "*1\r\n:1"}, 1.2, 0},
		{"read: hand-off to a writer ÷ release", mine, toWriter("read"), theirRelease(":1"), 1.5, 0},
	}
}

// limitSteps are those of a lock that five may hold, of which Redisson has set the number of places. Redisson has no renewal by a watchdog.
func limitSteps() []scriptStep {
	const keys = "%lock %sc"
	acquire := func(count, want string) scriptCall {
		return scriptCall{source: scripts.LimitAcquire.Source, keys: keys, args: "%me " + count + " 30000 %notafter 5 PUBLISH '' 0", want: want}
	}
	theirs := func(want string) scriptCall {
		return scriptCall{source: redissonPermitAcquire, keys: "%lock %places %sc", args: "1 %far %now %none PUBLISH %me", want: want}
	}
	release := scriptCall{source: scripts.LimitRelease.Source, keys: keys, args: "%me 0 %notafter '' PUBLISH %proxy", want: freed}
	theirRelease := scriptCall{source: redissonPermitRelease, keys: "%lock %sc %places", args: "%me 1 %now PUBLISH", want: freed}
	none := []string{"SET %lock 5"}
	two := []string{"SET %lock 3", "ZADD %places %far %you %far %job"}
	mine := []string{"SET %lock 2", "ZADD %places %far %you %far %job %far %me"}
	full := []string{"SET %lock 0", "ZADD %places %none %you %none %job %none %task %none a %none b"}
	return []scriptStep{
		{"limit: acquire", none, acquire("1", granted), theirs("$2\r\nOK"), 1.5, 0},
		{"limit: acquire, two hold it", two, acquire("1", granted), theirs("$2\r\nOK"), 1.5, 0},
		{"limit: refuse", full, acquire("1", refused), theirs(theyGrant), 1.5, 0},
		{"limit: release, the last", []string{"SET %lock 4", "ZADD %places %far %me"}, release, theirRelease, 1.5, 0},
		{"limit: release, two hold it", mine, release, theirRelease, 1.5, 0},
		{"limit: hand-off ÷ release", mine, scriptCall{source: scripts.LimitHandoff.Source, keys: keys,
			args: "%sc '' PUBLISH %proxy %me 0 %notafter '' PUBLISH %proxy another 1 30000 %notafter 5 PUBLISH '' 0", want: handedOn}, theirRelease, 2, 0},
	}
}
