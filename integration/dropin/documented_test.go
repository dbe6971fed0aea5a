package dropin

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The generator's second source: the argument trees that the server itself documents, so that a command of a later
// release is tried as it comes. The templates reach deeper.

// keysOfGroup are the keys a group of commands works on; see newGenerator for the notation of all this.
var keysOfGroup = map[string]string{
	"string": "$s", "hash": "$h", "list": "$l", "set": "$e", "sorted-set": "$z", "stream": "$x", "hyperloglog": "$p", "geo": "$g", "bitmap": "$b",
}

// byName is what stands for an argument of that name.
var byName = map[string]string{
	"seconds": "$ttl", "milliseconds": "$ttl", "ttl": "$ttl", "ms": "$ttl", "min-idle-time": "0|5000000|-1|x", "unix-time-seconds": "$at", "unix-time-milliseconds": "$at",
	"timeout": "0.01|0.02|-1|x|1e400|1e300", "offset": "$off", "id": "$id", "last-id": "$id", "lastid": "$id", "threshold": "$n|$rid", "group": "g1|g2", "groupname": "g1|g2",
	"consumer": "c1|c2", "consumername": "c1|c2", "member": "$m", "member1": "$m", "member2": "$m", "field": "$m", "script": "$script", "sha1": "$sha",
	"function": "f1|f2|nope", "function-code": "$lib", "library-name": "lib1|lib2", "serialized-value": "$dump|$dump|$w", "longitude": "$lon", "latitude": "$lat",
	"encoding": "u8|i5|u64|i65|x", "channel": "ch|$m", "shardchannel": "ch|$m", "pattern": "*|m?|ch*|[", "username": "u1|$m", "host": "127.0.0.1", "port": "1|x",
	"command": "get|lpush|nosuch", "command-name": "get|xgroup|nosuch", "categoryname": "read|nope", "subcommand": "GETREG|ENCODING|x", "bit": "0|1|2", "protover": "2|3|4|x",
	"radius": "900|$f", "width": "4000|$f", "height": "4000|$f", "index": "$i", "db": "1|99|x", "destination-db": "0|1|99|x", "index1": "0|1|99", "index2": "0|1|x",
	"client-id": "999999999999|-1|0|x", "section": "server|keyspace|nosuch", "count": "$n|$i", "cursor": "0|x",
}

// bounds are the ends of ranges.
var bounds = map[string]string{"stream": "$rid", "sorted-set": "$i|$r|$y"}

// timed are the arguments that would let a key expire, or a client wait, at a time two servers do not agree on: they are
// left as they are.
var timed = []string{"seconds", "milliseconds", "ttl", "timeout", "unix-time-seconds", "unix-time-milliseconds"}

// odd stands for any other argument now and then.
var odd = []string{
	"", "\x00", "nan", "inf", "-inf", "-1", "9223372036854775808", "99999999999999999999", "-9223372036854775808", "1e400", " 1", "*1\r\n$4\r\nPING\r\n",
	"\xff\xfe", "ünï", "'", "\"", "str:0", "hash:1", strings.Repeat("x", 2000), strings.Repeat("9", 400),
}

// tame are the shapes of commands that must not be called just anyhow: they would end or stop the server, or have two
// servers' data differ from then on.
var tame = map[string][]string{
	"SHUTDOWN": {"!SHUTDOWN FOO", "!SHUTDOWN ABORT", "!SHUTDOWN ABORT NOW", "!SHUTDOWN SAVE NOSAVE"},
	"SAVE":     {"!SAVE x"}, "BGSAVE": {"!BGSAVE FOO", "!BGSAVE SCHEDULE x"}, "BGREWRITEAOF": {"!BGREWRITEAOF x"}, "PFSELFTEST": {"!PFSELFTEST x"},
	"DEBUG": {"!DEBUG", "!DEBUG NOSUCH"}, "MONITOR": {"!MONITOR x"}, "SYNC": {"!SYNC x"}, "PSYNC": {"!PSYNC x"}, "REPLCONF": {"!REPLCONF x"},
	"SCRIPT DEBUG": {"!SCRIPT DEBUG x"}, "MIGRATE": {"!MIGRATE 127.0.0.1 1 $a 0 10", "!MIGRATE 127.0.0.1 x $k 0 10", "!MIGRATE 127.0.0.1 1 $k 0 10", "!MIGRATE a", "!MIGRATE 127.0.0.1 1 $w 0 10 FOO"},
	"REPLICAOF": {"!REPLICAOF NO ONE", "!REPLICAOF a", "!REPLICAOF a x"}, "SLAVEOF": {"!SLAVEOF no one", "!SLAVEOF a b c", "!SLAVEOF a x"},
	"CLIENT KILL": {"CLIENT KILL 1.2.3.4:5", "CLIENT KILL ID 999999999999|x|-1", "CLIENT KILL TYPE nosuch", "CLIENT KILL ADDR 1.2.3.4:5 SKIPME yes|no|x", "CLIENT KILL USER nosuch",
		"CLIENT KILL LADDR x FOO y"},
	"CLIENT PAUSE": {"!CLIENT PAUSE x", "!CLIENT PAUSE 1 ALL|WRITE|FOO", "!CLIENT PAUSE -1"}, "WAIT": {"!WAIT 0 0|1|x", "!WAIT 1 1|20", "!WAIT -1 0", "!WAIT 0", "!WAIT x 0"},
	"CONFIG SET":  {"CONFIG SET maxmemory-samples 5|0|x", "CONFIG SET nosuch 1", "CONFIG SET maxmemory-policy bad", "CONFIG SET maxmemory-samples 5 maxmemory-samples 6", "CONFIG SET $w $w"},
	"CONFIG GET":  {"CONFIG GET 'maxmemory*|hz|'x*|'nosuch*", "CONFIG GET hz hz 'save*"},
	"ACL SETUSER": {"ACL SETUSER u1 on|off|>p|'~*|+@all|-get|nosuch|nopass*", "ACL SETUSER u1 reset", "ACL SETUSER $m $w"}, "ACL DELUSER": {"ACL DELUSER u1|u2|nosuch|default"},
	// From 7.2 on its error has an unknown argument as it is, line ends included, and the direct connection loses its place.
	"FUNCTION FLUSH": {"FUNCTION FLUSH FOO", "!FUNCTION FLUSH SYNC ASYNC"}, // a good one crashes Redis 8.2.3 now and then
	"CLIENT SETNAME": {"CLIENT SETNAME $m|ünï"},                            // from 7.2 on Redis takes any name that has a zero byte in front of what it would refuse
	"FUNCTION LIST":  {"!FUNCTION LIST ?LIBRARYNAME,$m ?WITHCODE", "!FUNCTION LIST LIBRARYNAME", "!FUNCTION LIST $n"},
	"ACL LOG":        {"ACL LOG RESET", "ACL LOG $i"}, "LOLWUT": {"!LOLWUT", "!LOLWUT VERSION 5 1 1 1", "!LOLWUT VERSION 6 1 1", "!LOLWUT VERSION x"},
	"SPOP":        {"SPOP $a ?$i", "!SPOP $e 100000", "!SPOP $e -1|0|x", "!SPOP $s|$h 100000"},
	"SRANDMEMBER": {"SRANDMEMBER $a ?$i", "!SRANDMEMBER lone -3", "!SRANDMEMBER $s|$h 1", "!SRANDMEMBER $e x|0"},
	"HRANDFIELD":  {"HRANDFIELD $a ?$i", "!HRANDFIELD one -3 WITHVALUES", "!HRANDFIELD $s 1", "!HRANDFIELD $h x|0 WITHVALUES"},
	"ZRANDMEMBER": {"ZRANDMEMBER $a ?$i", "!ZRANDMEMBER solo -3 WITHSCORES", "!ZRANDMEMBER $s 1", "!ZRANDMEMBER $z x|0 WITHSCORES"},
	"SCAN":        {"!SCAN 0 COUNT 100000 ?TYPE,list|set|nosuch", "!SCAN 0 MATCH 'str:* COUNT 100000", "!SCAN x", "!SCAN 0 FOO", "!SCAN 0 COUNT 0|x|-1"},
	"SSCAN":       {"!SSCAN $e 0 COUNT 100000 ?MATCH,'m*", "!SSCAN $e x", "!SSCAN $e 0 FOO", "!SSCAN $s 0", "!SSCAN $e"},
	"ZSCAN":       {"!ZSCAN $z|$e 0 COUNT 100000 ?MATCH,'m*", "!ZSCAN $z x", "!ZSCAN $z 0 FOO", "!ZSCAN $z 0 COUNT 0|x|-1", "!ZSCAN $z"},
	"LCS":         {"LCS c1 c2 ?LEN", "LCS c1 c2 IDX ?MINMATCHLEN,$n ?WITHMATCHLEN", "LCS $l c1", "!LCS c1 c2 LEN IDX"},
	// Two servers order what ALPHA finds equal, as all that has no weight, by their hash tables: no LIMIT and no STORE with that.
	"SORT": {
		"SORT $l ?BY,nosort ?ALPHA ?ASC|DESC ?LIMIT,$i,$n ?GET,'str:* ?GET,# ?STORE,$l", "SORT $z BY nosort ?ALPHA ?ASC|DESC ?LIMIT,$i,$n ?GET,# ?STORE,$l",
		"SORT $l|$z BY 'w_* ?ASC|DESC ?LIMIT,$i,$n ?GET,'str:* ?GET,# ?STORE,$l", "SORT $l|$z BY 'w_* ALPHA ?DESC",
		"SORT $z ?ALPHA ?ASC|DESC ?LIMIT,$i,$n ?STORE,$l", "SORT $e ALPHA ?STORE,$l",
	},
	"SORT_RO": {"SORT_RO $l|$z ?BY,'w_* ?DESC ?LIMIT,$i,$n ?GET,#", "SORT_RO $l|$z BY 'w_* ALPHA ?DESC", "SORT_RO $l|$z ALPHA ?DESC ?LIMIT,$i,$n ?GET,#"},
}

// documented is a command as the documentation has it, and now and then somehow wrong.
func (g *generator) documented(d documented) []string {
	if shapes := tame[d.name()]; shapes != nil {
		return g.shaped(g.pick(shapes...))
	}
	args := slices.Clone(d.words)
	if d.subs {
		args = append(args, g.pick("NOSUCH", "help", "HELPX", g.short(), g.pick(odd...)))
		return args[:1+g.rnd.IntN(2)]
	}
	chance := g.rnd.IntN(4) // of an optional argument, in three
	for _, a := range d.args {
		args = append(args, g.argument(d, a, chance)...)
	}
	if name := d.name(); name == "COMMAND GETKEYS" || name == "COMMAND GETKEYSANDFLAGS" {
		args = append(slices.Clone(d.words), g.next()...)
	}
	g.countKeys(args)
	return g.mistake(d, args)
}

const numkeys = "\x00numkeys" // stands for a count until the keys are known

// argument is what stands for one node of a tree; of the optional ones within it chance in three are there.
func (g *generator) argument(d documented, a argument, chance int) (args []string) {
	if a.is("optional") && g.rnd.IntN(3) >= chance {
		return nil
	}
	times := 1
	if a.is("multiple") {
		times += g.rnd.IntN(3)
	}
	for i := range times {
		if a.token != "" && a.kind != "pure-token" && (i == 0 || a.is("multiple_token")) {
			args = append(args, a.token)
		}
		switch a.kind {
		case "pure-token":
			args = append(args, g.token(a.token))
		case "oneof":
			args = append(args, g.argument(d, a.args[g.rnd.IntN(len(a.args))], 3)...)
		case "block":
			for _, part := range a.args {
				args = append(args, g.argument(d, part, chance)...)
			}
		default:
			args = append(args, g.leaf(d, a))
		}
	}
	return args
}

// token is a keyword, at times in lower case. The ID "*" would be the server's clock.
func (g *generator) token(token string) string {
	switch {
	case token == "*":
		return g.word("$id")
	case g.rnd.IntN(4) == 0:
		return strings.ToLower(token)
	}
	return token
}

func (g *generator) leaf(d documented, a argument) string {
	switch {
	case a.kind == "key":
		return g.word(cmp.Or(keysOfGroup[d.group], "$k"))
	case a.name == "numkeys":
		return numkeys
	case a.token == "BLOCK":
		return g.pick("1", "20", "-1", "x")
	case slices.Contains([]string{"start", "end", "stop", "min", "max"}, a.name):
		return g.word(cmp.Or(bounds[d.group], "$i"))
	case byName[a.name] != "":
		return g.word(byName[a.name])
	}
	switch a.kind {
	case "integer":
		return g.word("$i|$N|$n")
	case "double":
		return g.word("$f")
	case "unix-time":
		return g.word("$at")
	}
	if d.group == "string" && g.rnd.IntN(100) == 0 {
		return g.big()
	}
	return g.value()
}

var aKey = regexp.MustCompile(`^[a-z]+:[0-9]$`)

// countKeys puts the number of keys that follow in its place, mostly.
func (g *generator) countKeys(args []string) {
	for i := range args {
		if args[i] != numkeys {
			continue
		}
		n := slices.IndexFunc(args[i+1:], func(a string) bool { return !aKey.MatchString(a) })
		if n < 0 {
			n = len(args) - i - 1
		}
		args[i] = strconv.Itoa(n)
		if g.rnd.IntN(8) == 0 {
			args[i] = g.word("$i")
		}
	}
}

// mistake changes every other command.
func (g *generator) mistake(d documented, args []string) []string {
	least := max(d.arity, -d.arity)
	switch g.rnd.IntN(20) {
	case 0:
		return args[:max(1, min(len(args), least-1))]
	case 1:
		return args[:min(len(args), least)]
	case 2:
		return append(args, "x")
	case 3:
		return append(args, strings.Fields(strings.Repeat("x ", 100))...)
	case 4:
		args[0] = strings.ToLower(args[0])
		return args
	}
	first := len(d.words)
	if len(args) == first || usesTime(d.args) || slices.Contains(d.flags, "blocking") {
		return args
	}
	at := func() int { return first + g.rnd.IntN(len(args)-first) }
	switch g.rnd.IntN(10) {
	case 0, 1, 2:
		args[at()] = g.pick(odd...)
	case 3:
		i, j := at(), at()
		args[i], args[j] = args[j], args[i]
	case 4: // an option twice
		args = append(args, args[at():]...)
	}
	return args
}

func usesTime(args []argument) bool {
	return slices.ContainsFunc(args, func(a argument) bool { return slices.Contains(timed, a.name) || usesTime(a.args) })
}
