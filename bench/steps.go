package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

// scriptStep is one step of a lock, done by our script and by Redisson's.
type scriptStep struct {
	name   string
	before []string // commands that lead up to it, by words
	ours   scriptCall
	theirs scriptCall
	most   float64 // how much of their time ours may take
	holds  int     // that one call is about, 1 if it is 0
	pair   bool    // one of the two that most locks need
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
		"%latch", "redisson_unlock_latch:{"+name+"}:0123456789abcdef0123456789abcdef",
		"%queue", "redisson_lock_queue:{"+name+"}", "%timeouts", "redisson_lock_timeout:{"+name+"}", "%tickets", "lockproxy_fair:{"+name+"}",
		"%holds", "{"+name+"}:"+uuid+"17:rwlock_timeout", "%yourholds", "{"+name+"}:"+uuid+"18:rwlock_timeout", "%prefix", "{"+name+"}",
		"%me", uuid+"17", "%you", uuid+"18", "%job", "job-17", "%task", "job-18", "%name", uuid+"17/4", "%other", uuid+"18/4",
		"%watchjob", "lockproxy_watch:{"+name+"}:job-17", "%watchtask", "lockproxy_watch:{"+name+"}:job-18",
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
	return append(all, writeSteps()...)
}

const (
	granted, refused      = ":1\r\n", "*4\r\n:0\r\n"
	freed                 = ":1\r\n"
	theyGrant, theyRefuse = "$-1\r\n", ":"
)

func held(by string, count string) []string {
	return []string{"HSET %lock " + by + " " + count, "PEXPIRE %lock 20000"}
}

func plainSteps() []scriptStep {
	acquire := func(letters, want string) scriptCall {
		return scriptCall{source: scripts.Acquire.Source, keys: "%lock %queue", args: "30000 %me %notafter " + letters, want: want}
	}
	release := func(want string) scriptCall {
		return scriptCall{source: scripts.Release.Source, keys: "%lock %queue", args: "%me %notafter", want: want}
	}
	renew := scriptCall{source: scripts.Renew.Source, keys: "%lock", args: "30000 %notafter", each: "%me", want: ":1\r\n"}
	renewMany := renew
	renewMany.args, renewMany.want = "30000 %notafter "+strings.Repeat("-", 100), "*100\r\n:1\r\n"
	handoff := scriptCall{source: scripts.Pass.Source, keys: "%lock %queue", args: "%me %you 30000 %notafter", want: ":1\r\n"}
	return []scriptStep{
		{"plain: acquire", nil, acquire("", granted), redissonsAcquire("%me", theyGrant), 1, 0, true},
		{"plain: re-enter", held("%me", "1"), acquire("''", ":2\r\n"), redissonsAcquire("%me", theyGrant), 1.2, 0, false},
		{"plain: refuse", held("%you", "1"), acquire("", ":-"), redissonsAcquire("%me", theyRefuse), 1.2, 0, false},
		{"plain: release, the last", held("%me", "1"), release(freed), redissonsRelease("%me", ":1"), 1, 0, true},
		{"plain: release, of two", held("%me", "2"), release(":2\r\n"), redissonsRelease("%me", ":0"), 1.2, 0, false},
		{"plain: renew 1", held("%me", "1"), renew, redissonsRenew("%me", "*1\r\n:1"), 1.2, 1, false},
		{"plain: renew 100", held("%me", "1"), renewMany, redissonsRenew("%me", "*100\r\n:1"), 1.2, 100, false},
		{"plain: hand-off ÷ release", held("%me", "1"), handoff, redissonsRelease("%me", ":1"), 1.5, 0, false},
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

// namedSteps are those of OWNER, which has a registration beside its lock. Redisson knows only one kind of owner.
func namedSteps() []scriptStep {
	acquire := func(want string) scriptCall {
		return scriptCall{source: scripts.Acquire.Source, keys: "%lock %queue %watchjob", args: "30000 %job %notafter %name", want: want}
	}
	has := append(held("%job", "1"), "SET %watchjob %name PX 20000")
	return []scriptStep{
		{"OWNER: acquire", nil, acquire(granted), redissonsAcquire("%job", theyGrant), 1.2, 0, false},
		{"OWNER: again", has, acquire(":0\r\n"), redissonsAcquire("%job", theyGrant), 1.2, 0, false},
		{"OWNER: refuse", held("%you", "1"), acquire(":-"), redissonsAcquire("%job", theyRefuse), 1.2, 0, false},
		{"OWNER: release", has, scriptCall{source: scripts.Release.Source, keys: "%lock %queue %watchjob",
			args: "%job PUBLISH %notafter AW %name", want: freed}, redissonsRelease("%job", ":1"), 1.2, 0, false},
		{"OWNER: renew 1", has, scriptCall{source: scripts.Renew.Source, keys: "%lock %watchjob", args: "30000 %notafter", each: "%job %name",
			want: ":1\r\n"}, redissonsRenew("%job", "*1\r\n:1"), 1.2, 0, false},
		{"OWNER: hand-off ÷ release", has, scriptCall{source: scripts.Pass.Source, keys: "%lock %queue %watchjob %watchtask",
			args: "%job %task 30000 %notafter %name %other", want: ":1\r\n"}, redissonsRelease("%job", ":1"), 1.5, 0, false},
	}
}

func fairSteps() []scriptStep {
	acquire := func(ticket, want string, before ...string) scriptCall {
		return scriptCall{source: scripts.Acquire.Source, keys: "%lock %queue", args: "30000 %me %notafter NE " + ticket + " 300000", want: want, before: before}
	}
	theirs := func(want string, before ...string) scriptCall {
		return scriptCall{source: redissonFairAcquire, keys: "%lock %queue %timeouts", args: "30000 %me 300000 %now", want: want, before: before}
	}
	release := func(want string) scriptCall {
		return scriptCall{source: scripts.Release.Source, keys: "%lock %queue", args: "%me %notafter", want: want}
	}
	theirRelease := func(want string) scriptCall {
		return scriptCall{source: redissonFairRelease, keys: "%lock %queue %timeouts %channel %latch", args: "0 30000 %me %now PUBLISH 16000", want: want}
	}
	others := held("%you", "1")
	waiter := append(held("%me", "1"), "RPUSH %queue %you", "ZADD %timeouts %far %you")
	ours := waiter
	ours = append(ours[:len(ours):len(ours)], "HSET %tickets '' 7 %you 7:%now")
	handoff := scriptCall{source: scripts.Pass.Source, keys: "%lock %queue", args: "%me %you 30000 %notafter", before: []string{"HSET %tickets '' 7 %you 7:%now"}, want: granted}
	place := []string{"RPUSH %queue %me", "ZADD %timeouts %far %me"}
	ticket := "HSET %tickets '' 7 %me 7:%now"
	return []scriptStep{
		{"fair: acquire, nobody waits", nil, acquire("0", granted), theirs(theyGrant), 1.2, 0, false},
		{"fair: acquire, its turn", place, acquire("7", granted, ticket), theirs(theyGrant), 1.2, 0, false},
		{"fair: refuse, to the queue", others, acquire("0", refused), theirs(theyRefuse), 1.2, 0, false},
		{"fair: refuse, in the queue", append(others, place...), acquire("7", ":-", ticket), theirs(theyRefuse), 1.2, 0, false},
		{"fair: release, nobody waits", held("%me", "1"), release(freed), theirRelease(":1"), 1.2, 0, false},
		{"fair: release, one waits", ours, release(freed), theirRelease(":1"), 1.2, 0, false},
		{"fair: hand-off ÷ release", waiter, handoff, theirRelease(":1"), 1.5, 0, false},
	}
}

func readSteps() []scriptStep {
	acquire := func(letters, want string) scriptCall {
		return scriptCall{source: scripts.ReadAcquire.Source, keys: "%lock %holds", args: "30000 %me %notafter " + letters, want: want}
	}
	theirs := func(want string) scriptCall {
		return scriptCall{source: redissonReadAcquire, keys: "%lock %holds", args: "30000 %me %me:write", want: want}
	}
	release := func(want string) scriptCall {
		return scriptCall{source: scripts.ReadRelease.Source, keys: "%lock %holds %rwchannel", args: "%me PUBLISH %notafter %me:write %prefix", want: want}
	}
	theirRelease := func(want string) scriptCall {
		return scriptCall{source: redissonReadRelease, keys: "%lock %rwchannel %holds %prefix %latch", args: "0 %me PUBLISH 16000", want: want}
	}
	mine := []string{"HSET %lock mode read %me 1", "SET %holds:1 1 PX 20000", "PEXPIRE %lock 20000"}
	yours := []string{"HSET %lock mode read %you 1", "SET %yourholds:1 1 PX 20000", "PEXPIRE %lock 20000"}
	both := append(append([]string{}, yours...), mine...)
	twice := append(mine[:len(mine):len(mine)], "HSET %lock %me 2", "SET %holds:2 1 PX 20000")
	written := []string{"HSET %lock mode write %you:write 1", "PEXPIRE %lock 20000"}
	handoff := scriptCall{source: scripts.RWPass.Source, keys: "%lock %holds %rwchannel", args: "%me %me:write %you:write 30000 %notafter read", want: ":1\r\n"}
	return []scriptStep{
		{"read: acquire", nil, acquire("", granted), theirs(theyGrant), 1.2, 0, false},
		{"read: acquire, another reads", yours, acquire("", granted), theirs(theyGrant), 1.2, 0, false},
		{"read: re-enter", mine, acquire("M", ":2\r\n"), theirs(theyGrant), 1.2, 0, false},
		{"read: refuse", written, acquire("", ":-"), theirs(theyRefuse), 1.2, 0, false},
		{"read: release, the last", mine, release(freed), theirRelease(":1"), 1.2, 0, false},
		{"read: release, another reads", both, release(freed), theirRelease(":0"), 1.2, 0, false},
		{"read: release, of two", twice, release(":2\r\n"), theirRelease(":0"), 1.2, 0, false},
		{"read: renew 1", mine, scriptCall{source: scripts.ReadRenew.Source, keys: "%lock %holds", args: "30000 %notafter", each: "%me", want: ":1\r\n"},
			scriptCall{source: redissonReadRenew, keys: "%lock %prefix", args: "30000", each: "1 %me", want: "*1\r\n:1"}, 1.2, 0, false},
		{"read: hand-off to a writer ÷ release", mine, handoff, theirRelease(":1"), 1.5, 0, false},
	}
}

func writeSteps() []scriptStep {
	acquire := func(letters, want string) scriptCall {
		return scriptCall{source: scripts.WriteAcquire.Source, keys: "%lock", args: "30000 %me:write %notafter " + letters, want: want}
	}
	theirs := func(want string) scriptCall {
		return scriptCall{source: redissonWriteAcquire, keys: "%lock", args: "30000 %me:write", want: want}
	}
	release := func(want string) scriptCall {
		return scriptCall{source: scripts.WriteRelease.Source, keys: "%lock %rwchannel", args: "%me:write PUBLISH %notafter %me %prefix", want: want}
	}
	theirRelease := func(want string) scriptCall {
		return scriptCall{source: redissonWriteRelease, keys: "%lock %rwchannel %latch", args: "1 30000 %me:write PUBLISH 16000", want: want}
	}
	mine := func(count string) []string {
		return []string{"HSET %lock mode write %me:write " + count, "PEXPIRE %lock 20000"}
	}
	written := []string{"HSET %lock mode write %you:write 1", "PEXPIRE %lock 20000"}
	read := []string{"HSET %lock mode read %you 1", "SET %yourholds:1 1 PX 20000", "PEXPIRE %lock 20000"}
	handoff := scriptCall{source: scripts.RWPass.Source, keys: "%lock %rwchannel", args: "%me:write %me %you:write 30000 %notafter write", want: ":1\r\n"}
	return []scriptStep{
		{"write: acquire", nil, acquire("", granted), theirs(theyGrant), 1.2, 0, false},
		{"write: re-enter", mine("1"), acquire("M", ":2\r\n"), theirs(theyGrant), 1.2, 0, false},
		{"write: refuse, another writes", written, acquire("", ":-"), theirs(theyRefuse), 1.2, 0, false},
		{"write: refuse, another reads", read, acquire("", ":-"), theirs(theyRefuse), 1.2, 0, false},
		{"write: release, the last", mine("1"), release(freed), theirRelease(":1"), 1.2, 0, false},
		{"write: release, of two", mine("2"), release(":2\r\n"), theirRelease(":0"), 1.2, 0, false},
		{"write: renew 1", mine("1"), scriptCall{source: scripts.Renew.Source, keys: "%lock", args: "30000 %notafter", each: "%me:write", want: ":1\r\n"},
			redissonsRenew("%me:write", "*1\r\n:1"), 1.2, 0, false},
		{"write: hand-off ÷ release", mine("1"), handoff, theirRelease(":1"), 1.5, 0, false},
	}
}
