package dropin

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// unlike is the whole list of commands whose replies need not be the same to the byte, with the reason; by command, or
// command and subcommand. Errors are the same to the byte here too, but for what the proxy refuses. What is marked (1)
// is compared to the byte all the same, on one server, by TestDropinReadsOfOneServer.
var unlike = map[string]struct {
	alike  func(want, got string) bool
	reason string
}{
	"SMEMBERS": {sameSet, hashTable}, "SINTER": {sameSet, hashTable}, "SUNION": {sameSet, hashTable}, "SDIFF": {sameSet, hashTable},
	"SSCAN": {sameSet, hashTable}, "KEYS": {sameSet, hashTable}, "SCAN": {sameSet, hashTable}, "ZSCAN": {sameSet, hashTable},
	"CONFIG GET": {sameSet, hashTable}, "ACL CAT": {sameSet, hashTable}, "FUNCTION LIST": {sameSet, hashTable}, "FUNCTION DUMP": {sameKind, hashTable},
	"SORT":    {sameSet, "the order of a hash table when BY says not to sort"},
	"SORT_RO": {sameSet, "the order of a hash table when BY says not to sort"},
	"SPOP":    {sameSet, "the order of a hash table; only whole sets are popped"},

	"COMMAND": {withVerbs, ourVerbs}, "COMMAND INFO": {withVerbs, ourVerbs}, "COMMAND DOCS": {withVerbs, ourVerbs}, "COMMAND LIST": {withVerbs, ourVerbs},
	"COMMAND COUNT": {sameKind, ourVerbs},

	"TTL": {nearly, clock}, "PTTL": {nearly, clock}, "EXPIRETIME": {nearly, clock}, "PEXPIRETIME": {nearly, clock}, "TIME": {sameKind, clock}, "LASTSAVE": {sameKind, clock}, "DBSIZE": {sameKind, clock + ": keys that have expired count until they are noticed"}, "OBJECT IDLETIME": {sameKind, clock},
	"XPENDING": {sameButNumbers, clock + ": idle times"}, "XINFO CONSUMERS": {sameButNumbers, clock + ": idle times"},
	"XINFO STREAM": {sameButNumbers, clock + ": delivery times (1)"}, "LATENCY HISTOGRAM": {sameKind, clock}, "ACL LOG": {sameKind, clock + ", addresses"},
	"DUMP": {sameKind, hashTable + "; the clock, in streams"},

	"RANDOMKEY": {sameKind, "chance"}, "HRANDFIELD": {sameKind, "chance"}, "SRANDMEMBER": {sameKind, "chance"}, "ZRANDMEMBER": {sameKind, "chance"}, "ACL GENPASS": {sameKind, "chance"}, "LOLWUT": {sameKind, "chance"},

	"INFO":         {sameKind, "it describes the process, with a section of ours (TestDropinInfo)"},
	"MEMORY USAGE": {sameKind, "the allocator (1)"}, "MEMORY STATS": {sameKind, "the allocator"}, "MEMORY DOCTOR": {sameKind, "the allocator"},
	"MEMORY MALLOC-STATS": {sameKind, "the allocator"},

	"CLIENT ID": {sameKind, "the proxy counts its own clients"}, "CLIENT INFO": {sameKind, "addresses, numbers"}, "CLIENT LIST": {sameKind, "addresses, numbers"},
	"CLIENT SETNAME": {badName, longNames}, "CLIENT SETINFO": {badName, longNames},
	"CLIENT HELP": {sameKind, "the proxy tells what its own CLIENT does"},
	"HELLO":       {sameHello, "the number of the connection; of several mistakes the proxy names the first as Redis 7.2 does, 7.0 takes each option as it comes"},

	"PUBSUB CHANNELS": {withChannels, "the channels of lockproxy's own are there, too, in the order of a hash table"},

	"MONITOR": {refused, "off unless configured: it shows the commands of all clients"},
	"SYNC":    {refused, replication}, "PSYNC": {refused, replication}, "REPLCONF": {refused, replication},
	"CLIENT IMPORT-SOURCE": {refused, replication},
	"DEBUG":                {refused, "it stops the server, changes the connection, or does not answer"},
	"SCRIPT DEBUG":         {refused, "it takes the connection over"},
}

const (
	hashTable   = "the order of a hash table, whose seed is the server's (1)"
	clock       = "the clock"
	badNames    = " cannot contain spaces, newlines or special characters.\r\n"
	longNames   = "the proxy bounds what it keeps of each client; Redis 7.2 does not look behind a zero byte"
	ourVerbs    = "the lock verbs and LOCKPROXY are there, too (TestDropinCommand), and it comes in the order of a hash table"
	replication = "the replication protocol takes the connection over"
)

// ofValkey is what the proxy answers itself, as Redis does whatever is upstream, and a Valkey 8.1 otherwise.
var ofValkey = map[string]string{
	"CLIENT LIST": "it takes CLIENT KILL's filters there", "CLIENT KILL": "an ID that is no number is a syntax error there",
	"CLIENT UNBLOCK": "it takes more arguments than it knows there",
	"READONLY":       "a server that is no cluster's takes it there", "READWRITE": "as READONLY",
}

// alike says whether two servers' replies to one command are the same: to the byte, or as the lists say.
func alike(args []string, want, got string) bool {
	if want == got || valkeysOwn(args, want, got) {
		return true
	}
	rule, listed := listedIn(unlike, args)
	return listed && rule.alike(want, got)
}

// listedIn is what a list has on a command, or command and subcommand.
func listedIn[T any](list map[string]T, args []string) (of T, listed bool) {
	name := strings.ToUpper(args[0])
	if len(args) > 1 {
		if of, listed = list[name+" "+strings.ToUpper(args[1])]; listed {
			return of, true
		}
	}
	of, listed = list[name]
	return of, listed
}

// valkeysOwn says that a Valkey answered otherwise than Redis, and the proxy in Redis' words.
func valkeysOwn(args []string, want, got string) bool {
	if _, listed := listedIn(ofValkey, args); !listed || !testredis.Valkey() {
		return false
	}
	return harness.IsErrorFrame(got) || sameKind(want, got)
}

// withChannels: the same channels in any order, but for those by which proxies know of each other.
func withChannels(want, got string) bool {
	_, of := harness.Split(want)
	_, channels := harness.Split(got)
	channels = slices.DeleteFunc(channels, func(c string) bool { return strings.Contains(c, "\r\nlockproxy:") })
	slices.Sort(of)
	slices.Sort(channels)
	return slices.Equal(of, channels)
}

// sameSet: the same elements at every depth, in any order.
func sameSet(want, got string) bool { return sorted(want) == sorted(got) }

// sameKind: both are integers, or strings, or arrays, and so on; and neither is an error.
func sameKind(want, got string) bool { return want[0] == got[0] && !harness.IsErrorFrame(want) }

// withVerbs: the same elements in any order, and perhaps the lock verbs'.
func withVerbs(want, got string) bool {
	_, these := harness.Split(want)
	_, those := harness.Split(got)
	more := map[string]int{}
	for _, e := range those {
		more[sorted(e)]++
	}
	for _, e := range these {
		if more[sorted(e)]--; more[sorted(e)] < 0 {
			return false
		}
	}
	n := len(those) - len(these)
	return want[0] == got[0] && n%len(verbs) == 0
}

var integers = regexp.MustCompile(`(?m)^:-?[0-9]+\r$`)

// sameButNumbers: the same but for the values of integers.
func sameButNumbers(want, got string) bool {
	return integers.ReplaceAllString(want, ":n") == integers.ReplaceAllString(got, ":n")
}

func sameHello(want, got string) bool {
	return sameButNumbers(want, got) || harness.IsErrorFrame(got) && (harness.IsErrorFrame(want) || strings.Contains(got, badNames))
}

// badName: the proxy says so, whatever else there is to say, or where Redis takes it.
func badName(want, got string) bool {
	return strings.HasSuffix(got, " cannot be longer than 4096 bytes.\r\n") ||
		want == "+OK\r\n" && strings.HasSuffix(got, badNames)
}

// nearly: integers above zero that are seconds or milliseconds apart.
func nearly(want, got string) bool {
	const apart = 10_000
	a, aErr := strconv.Atoi(strings.Trim(want, ":\r\n"))
	b, bErr := strconv.Atoi(strings.Trim(got, ":\r\n"))
	return aErr == nil && bErr == nil && a > 0 && b > 0 && max(a-b, b-a) < apart
}

// refused: the proxy says that it does not do this, and names itself.
func refused(_, got string) bool {
	return strings.HasPrefix(got, "-ERR '") && strings.Contains(got, "lockproxy")
}

// sorted orders the elements of an aggregate reply at every depth.
func sorted(frame string) string {
	head, elements := harness.Split(frame)
	for i, e := range elements {
		elements[i] = sorted(e)
	}
	slices.Sort(elements)
	return head + strings.Join(elements, "")
}

// The list is of commands that exist, each with its reason.
func TestDropinUnlikeList(t *testing.T) {
	for name, rule := range unlike {
		if rule.reason == "" || rule.alike == nil || name != strings.ToUpper(name) {
			t.Errorf("%s has no reason", name)
		}
	}
	if rule := unlike["SMEMBERS"].alike; rule("*2\r\n:1\r\n:2\r\n", "*2\r\n:1\r\n:3\r\n") || !rule("*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n") {
		t.Error("sameSet")
	}
	if alike([]string{"info"}, "-ERR a\r\n", "-ERR b\r\n") || alike([]string{"get", "info"}, "$1\r\na\r\n", "$1\r\nb\r\n") || alike([]string{"TTL", "a"}, ":5\r\n", ":-1\r\n") {
		t.Error("the list lets differences through")
	}
}
