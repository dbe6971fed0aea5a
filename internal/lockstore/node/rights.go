package node

import (
	"context"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/scripts"
)

// right is one ACL rule, and commands of which the account must be allowed one, or else lacks the rule. If it is not
// needed, locks only wait longer without it.
type right struct {
	rule, commands string
	needed         bool
}

// One key of each kind is asked about: what Redis says of it holds for all keys that the rules in docs/OPERATIONS.md
// are for. Which names locks have is not known here; a script whose lock is out of bounds is refused before it begins.
var accountKeys = []string{"redisson_lock_token:{lockproxy}", "lockproxy_fair:{lockproxy}",
	"{lockproxy}:rwlock_timeout"}

// accountCommands are the commands of the scripts that name a key, with what follows it.
var accountCommands = []string{
	"del", "exists", "get", "hdel 1", "hexists 1", "hget 1", "hgetall", "hkeys", "hlen", "hmget 1", "hscan 0", "hset 1 1", "hstrlen 1", "lindex 0",
	"linsert BEFORE 1 1", "llen", "lpop", "lpush 1", "lrange 0 1", "lrem 0 1", "pexpire 1", "pexpireat 1", "pexpiretime", "pttl", "rpush 1", "set 1",
	"strlen", "type", "zadd 1 1", "zcard", "zrange 0 1", "zrem 1", "zscore 1",
}

// Rules are the ACL rules for all that locks need of the service account: of one Redis, on a cluster, on a quorum.
// Tests of the engine give an account these and no others.
func Rules(way PubSub, clustered, quorum bool) []string {
	return ruleNames(rights(way, clustered, quorum))
}

func ruleNames(all []right) (names []string) {
	for _, r := range all {
		names = append(names, r.rule)
	}
	return names
}

// rulesOf are the rules of some rights: those without which no lock is given, and the rest.
func rulesOf(all []right) (needed, rest string) {
	is := func(needed bool) (some []right) {
		return slices.DeleteFunc(slices.Clone(all), func(r right) bool { return r.needed != needed })
	}
	return strings.Join(ruleNames(is(true)), " "), strings.Join(ruleNames(is(false)), " ")
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
	all = append(all, right{"+memory|usage", "memory usage " + strings.Join(accountKeys, "|memory usage "), false})
	const channel = " redisson_lock__channel:{lockproxy}"
	needed, other := []string{"time", "evalsha 0 0", "eval 0 0"}, []string{"ping", "info memory"}
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
		// The data path asks for Redis' limits of output.
		all = append(all, right{"+config|get", "config get maxmemory", false})
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

// lacking are those of the rights that the node says the account has not.
func (n *Node) lacking(all []right) ([]right, error) {
	client, err := n.Control.Client(0)
	if err != nil {
		return nil, err
	}
	args := []string{scripts.Account.SHA, "0"}
	for _, r := range all {
		args = append(args, r.commands)
	}
	reply := client.Do(context.Background(), client.B().Arbitrary("EVALSHA").Args(args...).Build())
	if unknownScript(reply.Error()) {
		args[0] = scripts.Account.Source
		reply = client.Do(context.Background(), client.B().Arbitrary("EVAL").Args(args...).Build())
	}
	numbers, err := reply.AsIntSlice()
	if strings.HasPrefix(refusalIn(Outcome(err)), "NOPERM") {
		return []right{{rule: "+eval +evalsha", needed: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	var lacking []right
	for _, i := range numbers {
		if i < 1 || i > int64(len(all)) {
			return nil, errOdd(scripts.Account.Name)
		}
		lacking = append(lacking, all[i-1])
	}
	return lacking, nil
}
