package scripts_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestHandoffIsReleaseAndAcquire: a hand-off does what the release and then the acquires would have done, whatever it finds. If it grants
// nothing and the lock is free, it publishes.
func TestHandoffIsReleaseAndAcquire(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	conn, heard := s.Dial(t), listener(t, s)
	ask := func(owner string, count, place any) []any {
		return []any{owner, count, 7200000, soon, "", place, "PUBLISH", "", 0}
	}
	rwAsk := func(owner, side string, reads any, writes int) []any {
		return []any{owner, side, reads, writes, 7200000, soon, "", "{k}", "", 0, "PUBLISH"}
	}
	plainStep := handing{scripts.Handoff, scripts.Release, scripts.Acquire, plain("k"), channel, 4, []any{"nobody", 0, soon, "", "PUBLISH", ""}}
	rwStep := handing{scripts.RWHandoff, scripts.RWRelease, scripts.RWAcquire, rwKeys, rwChannel, 6,
		[]any{"nobody", "write", 0, 0, soon, "", "PUBLISH", "{k}", ""}}
	for name, way := range map[string]struct {
		handing
		give []any
		asks [][]any
	}{
		"connections":              {plainStep, []any{"me", 0, soon, "", "PUBLISH", ""}, [][]any{ask("next", 1, "")}},
		"too late":                 {plainStep, []any{"me", 0, late, "", "PUBLISH", ""}, [][]any{ask("next", 1, "")}},
		"connections in the queue": {plainStep, []any{"me", 0, soon, "", "PUBLISH", ""}, [][]any{ask("next", 1, 0)}},
		"it keeps the lock":        {plainStep, []any{"me", 1, soon, "", "PUBLISH", ""}, [][]any{ask("next", 1, "")}},
		"named owners":             {plainStep, []any{"me", 0, soon, "", "PUBLISH", ""}, [][]any{ask("next", "lengthen", "")}},
		"a named owner again":      {plainStep, []any{"me", 0, soon, "", "PUBLISH", ""}, [][]any{ask("me", "lengthen", "")}},
		"a reader to a writer":     {rwStep, []any{"me", "both", 0, 0, soon, "", "PUBLISH", "{k}", ""}, [][]any{rwAsk("next", "write", 0, 1)}},
		"a writer, too late":       {rwStep, []any{"me", "both", 0, 0, late, "", "PUBLISH", "{k}", ""}, [][]any{rwAsk("next", "write", 0, 1)}},
		"to readers": {rwStep, []any{"me", "both", 0, 0, soon, "", "PUBLISH", "{k}", ""},
			[][]any{rwAsk("next", "read", 1, 0), rwAsk("one", "read", 1, 0), rwAsk("job", "read", "lengthen", 0)}},
		"to a writer and another": {rwStep, []any{"me", "write", "", "", soon, "", "PUBLISH", "{k}", ""},
			[][]any{rwAsk("next", "write", 0, 1), rwAsk("one", "write", 0, 1), rwAsk("next", "write", 0, 2)}},
	} {
		granted := 0
		for state, before := range lockStates {
			outcome := func(do func() string) string {
				prepare(t, conn, before)
				reply := do()
				return clocks.ReplaceAllString(reply+" "+strings.Join(heard(conn), ","), "long") + " " + everything(t, conn)
			}
			whole := outcome(func() string {
				reply := eval(t, conn, way.handoff, way.keys, slices.Concat([]any{way.channel, "", "PUBLISH", "proxy"}, way.give, slices.Concat(way.asks...))...)
				if strings.HasPrefix(reply, "[1 0 1 1 ") {
					granted++
				}
				return reply
			})
			parts := outcome(func() string { return way.byParts(t, conn, way.give, way.asks) })
			if whole != parts {
				t.Errorf("%s, %s:\nhand-off %s\nby parts %s", name, state, whole, parts)
			}
		}
		if late := strings.Contains(name, "late"); late == (granted > 0) && name != "it keeps the lock" {
			t.Errorf("%s: %d grants", name, granted)
		}
	}
}

// handing is a hand-off, and the steps that it is made of.
type handing struct {
	handoff, release, acquire *scripts.Script
	keys                      []string
	channel                   string
	publishes                 int   // which of the release's ARGV says how to publish
	wake                      []any // a release that only publishes, as the lock is free
}

// byParts does what a hand-off is made of, and returns what the hand-off would.
func (h handing) byParts(t *testing.T, conn redis.Conn, give []any, asks [][]any) string {
	t.Helper()
	quiet := slices.Clone(give)
	quiet[h.publishes] = ""
	reply := eval(t, conn, h.release, h.keys, quiet...)
	if _, err := strconv.Atoi(reply); err != nil {
		return reply
	}
	free := reply != "-2" && ask(t, conn, "EXISTS", "k").(int64) == 0
	if reply == "1" && !free && give[1] == "write" { // the owner reads on, and others may read beside it now
		ask(t, conn, "PUBLISH", h.channel, "1")
	}
	out, nothing := "["+reply+" 0", true
	for _, one := range asks {
		got := ""
		if free {
			if got = eval(t, conn, h.acquire, h.keys, one...); !strings.HasPrefix(got, "[1 ") {
				free = false
				if nothing {
					eval(t, conn, h.release, h.keys, h.wake...)
				}
			}
			nothing = false
		}
		if !free {
			got = "[-9 -9 -9 -9 -9]"
		}
		out += " " + strings.Trim(got, "[]")
	}
	return out + "]"
}

// TestHandoffGivesOthersTheirTurn: if others wait and are to have a turn, nobody is granted the lock, and a message is sent: to the first proxy that has
// an entry, whose turn it is then, or on the lock's channel. Readers that share the lock send one, too.
func TestHandoffGivesOthersTheirTurn(t *testing.T) {
	s := testredis.Start(t)
	proxy := redis.PubSubConn{Conn: s.Dial(t)}
	if err := proxy.Subscribe(rwChannel, rwChannel+":us"); err != nil {
		t.Fatal(err)
	}
	proxy.Receive()
	proxy.Receive()
	waits := false // another proxy does
	handoff := func(why, side string) string {
		flush(t, s)
		step(t, s, "WLOCK", "me", 60000)
		reads, writes := 1, 0
		if side == "write" {
			reads, writes = 0, 1
		}
		if waits {
			run(t, s, scripts.RWAcquire, rwKeys, "them", "write", 0, 1, 60000, soon, "", "{k}", "they", 0, "PUBLISH")
		}
		return run(t, s, scripts.RWHandoff, rwKeys, rwChannel, why, "PUBLISH", "us", "me", "both", 0, 0, soon, "", "PUBLISH", "{k}", "us",
			"next", side, reads, writes, 60000, soon, "", "{k}", "us", 0, "PUBLISH")
	}
	const given, turn = "[1 0 1 1 60000 0 0]", "[1 1 -9 -9 -9 -9 -9]"
	want(t, handoff("others", "write"), given) // nobody else listens
	heard := messages(t, s)
	want(t, handoff("", "write"), given)
	want(t, handoff("proxies", "write"), given)
	want(t, fmt.Sprint(heard()), "[]")
	want(t, handoff("others", "write"), turn)
	want(t, fmt.Sprint(heard())+contents(t, s), "[1]")
	want(t, handoff("share", "read"), given)
	want(t, fmt.Sprint(heard()), "[1]")

	they := redis.PubSubConn{Conn: s.Dial(t)}
	if err := they.Subscribe(rwChannel + ":they"); err != nil {
		t.Fatal(err)
	}
	they.Receive()
	waits = true
	for _, why := range []string{"proxies", "others"} {
		if reply := handoff(why, "write"); len(reply) < 30 || !strings.HasSuffix(reply, " -9 -9 -9 -9 -9]") {
			t.Error(why, reply)
		}
		if m, is := they.ReceiveWithTimeout(5 * time.Second).(redis.Message); !is || m.Channel != rwChannel+":they" {
			t.Error(why, m)
		}
		want(t, fmt.Sprintf("%s", s.Do(t, "ZRANGE", rwWakes, 0, -1)), "[us they]") // who was told is behind until it comes
	}
	want(t, handoff("", "write"), given)
	want(t, fmt.Sprintf("%s", s.Do(t, "ZRANGE", rwWakes, 0, -1)), "[they]")
}

// lockStates are what a script may find under a lock's keys.
var lockStates = map[string][][]any{
	"free":                         nil,
	"held once":                    {{"HSET", "k", "me", 1}, {"PEXPIRE", "k", 36000000}},
	"held twice":                   {{"HSET", "k", "me", 2}, {"PEXPIRE", "k", 36000000}},
	"held by another":              {{"HSET", "k", "you", 1}, {"PEXPIRE", "k", 36000000}},
	"held by two":                  {{"HSET", "k", "you", 1, "me", 1}, {"PEXPIRE", "k", 36000000}},
	"no count":                     {{"HSET", "k", "me", "x"}},
	"a zero":                       {{"HSET", "k", "me", "01"}},
	"read by me":                   {{"HSET", "k", "mode", "read", "me", 1}},
	"written by me":                {{"HSET", "k", "mode", "write", "me:write", 1}},
	"a string":                     {{"SET", "k", "x"}},
	"an empty name":                {{"HSET", "k", "", 1}},
	"free, my turn":                {{"RPUSH", "redisson_lock_queue:{k}", "me", "you"}, {"ZADD", "redisson_lock_timeout:{k}", 9e12, "me", 9e12, "you"}},
	"free, another's turn":         {{"RPUSH", "redisson_lock_queue:{k}", "you", "me"}, {"ZADD", "redisson_lock_timeout:{k}", 9e12, "me", 9e12, "you"}},
	"free, the first is over":      {{"RPUSH", "redisson_lock_queue:{k}", "you", "me"}, {"ZADD", "redisson_lock_timeout:{k}", 1, "you", 9e12, "me"}},
	"held, somebody queues":        {{"HSET", "k", "me", 1}, {"RPUSH", "redisson_lock_queue:{k}", "you"}, {"ZADD", "redisson_lock_timeout:{k}", 9e12, "you"}},
	"held twice, somebody queues":  {{"HSET", "k", "me", 2}, {"RPUSH", "redisson_lock_queue:{k}", "you"}, {"ZADD", "redisson_lock_timeout:{k}", 9e12, "you"}},
	"a queue that is a string":     {{"SET", "redisson_lock_queue:{k}", "x"}},
	"read by me, and it lasts":     {{"HSET", "k", "mode", "read", "me", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"PEXPIRE", "k", 36000000}},
	"read by me, twice":            {{"HSET", "k", "mode", "read", "me", 2}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"SET", "{k}:me:rwlock_timeout:2", 1, "PX", 36000000}},
	"read by two":                  {{"HSET", "k", "mode", "read", "me", 1, "you", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"SET", "{k}:you:rwlock_timeout:1", 1, "PX", 72000000}, {"PEXPIRE", "k", 72000000}},
	"read by another":              {{"HSET", "k", "mode", "read", "you", 1}, {"SET", "{k}:you:rwlock_timeout:1", 1, "PX", 36000000}},
	"a dead reader beside me":      {{"HSET", "k", "mode", "read", "me", 1, "you", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}},
	"written by me, twice":         {{"HSET", "k", "mode", "write", "me:write", 2}, {"PEXPIRE", "k", 36000000}},
	"written and read by me":       {{"HSET", "k", "mode", "write", "me:write", 1, "me", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"PEXPIRE", "k", 36000000}},
	"written by another":           {{"HSET", "k", "mode", "write", "you:write", 1}, {"PEXPIRE", "k", 36000000}},
	"another mode":                 {{"HSET", "k", "mode", "x", "me", 1, "me:write", 1}},
	"read by me, for less":         {{"HSET", "k", "mode", "read", "me", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 3600000}, {"PEXPIRE", "k", 3600000}},
	"read twice, for less":         {{"HSET", "k", "mode", "read", "me", 2}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 1800000}, {"SET", "{k}:me:rwlock_timeout:2", 1, "PX", 3600000}, {"PEXPIRE", "k", 3600000}},
	"read twice, the first longer": {{"HSET", "k", "mode", "read", "me", 2}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"SET", "{k}:me:rwlock_timeout:2", 1, "PX", 3600000}, {"PEXPIRE", "k", 36000000}},
	"read twice, the first over":   {{"HSET", "k", "mode", "read", "me", 2}, {"SET", "{k}:me:rwlock_timeout:2", 1, "PX", 3600000}, {"PEXPIRE", "k", 36000000}},
	"read by three":                {{"HSET", "k", "mode", "read", "you", 1, "me", 1, "they", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"SET", "{k}:you:rwlock_timeout:1", 1, "PX", 7200000}, {"SET", "{k}:they:rwlock_timeout:1", 1, "PX", 18000000}, {"PEXPIRE", "k", 36000000}},
	"read beside two of another":   {{"HSET", "k", "mode", "read", "you", 2, "me", 1}, {"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}, {"SET", "{k}:you:rwlock_timeout:2", 1, "PX", 7200000}, {"PEXPIRE", "k", 36000000}},
	"written by me, for less":      {{"HSET", "k", "mode", "write", "me:write", 1}, {"PEXPIRE", "k", 3600000}},
	"held once, for less":          {{"HSET", "k", "me", 1}, {"PEXPIRE", "k", 3600000}},
	"another's, I wait":            waiting("me", 7, []any{"HSET", "k", "you", 1}, []any{"PEXPIRE", "k", 36000000}),
	"another's, I wait elsewhere":  waiting("me", 77, []any{"HSET", "k", "you", 1}, []any{"PEXPIRE", "k", 36000000}),
	"another's, I have no score":   waiting("me", 7, []any{"HSET", "k", "you", 1}, []any{"ZREM", "redisson_lock_timeout:{k}", "me"}),
	"another's, no queue":          waiting("me", 7, []any{"HSET", "k", "you", 1}, []any{"PEXPIRE", "k", 36000000}, []any{"DEL", "redisson_lock_queue:{k}"}),
	"mine, I wait":                 waiting("me", 7, []any{"HSET", "k", "me", 1}),
	"free, I wait alone":           waiting("me", 7),
	"free, I wait at a ghost's":    waiting("me", 7, []any{"HSET", "lockproxy_fair:{k}", "ghost", "6:0"}),
	"free, my time is over":        waiting("me", 7, []any{"HSET", "lockproxy_fair:{k}", "me", "7:0"}),
	"free, no hash of tickets":     waiting("me", 7, []any{"SET", "lockproxy_fair:{k}", "x"}),
	"mine, the next one waits":     waiting("next", 7, []any{"HSET", "k", "me", 1}),
	"mine, the next one is over":   waiting("next", 7, []any{"HSET", "k", "me", 1}, []any{"HSET", "lockproxy_fair:{k}", "next", "7:0"}),
	"mine, the next one's is over": waiting("next", 7, []any{"HSET", "k", "me", 1}, []any{"ZADD", "redisson_lock_timeout:{k}", 1, "next"}),
	"mine, the next has no score":  waiting("next", 7, []any{"HSET", "k", "me", 1}, []any{"ZREM", "redisson_lock_timeout:{k}", "next"}),
	"mine, the queue is a string":  {{"HSET", "k", "me", 1}, {"SET", "redisson_lock_queue:{k}", "x"}},
	"mine, two wait":               append(waiting("next", 7, []any{"HSET", "k", "me", 1}), waiting("you", 8)...),
	"what was left of a hold":      {{"SET", "{k}:me:rwlock_timeout:1", 1, "PX", 36000000}},
}

// waiting is an owner in the fair queue, beside something else.
func waiting(owner string, ticket int, beside ...[]any) [][]any {
	const timeouts, tickets = "redisson_lock_timeout:{k}", "lockproxy_fair:{k}"
	return append([][]any{
		{"RPUSH", "redisson_lock_queue:{k}", owner}, {"ZADD", timeouts, 9e12, owner},
		{"HSET", tickets, "", ticket, owner, fmt.Sprintf("%d:%d", ticket, int64(9e12))}, {"PEXPIRE", tickets, 60000},
	}, beside...)
}

// clocks are figures that depend on Redis' clock.
var clocks = regexp.MustCompile(`\d{7,}`)

// prepare has Redis be empty but for a state.
func prepare(t *testing.T, conn redis.Conn, state [][]any) {
	t.Helper()
	ask(t, conn, "FLUSHALL")
	for _, c := range state {
		ask(t, conn, c...)
	}
}

// ask is a server's Do on a connection that stays: some tests ask tens of thousands of times.
func ask(t *testing.T, conn redis.Conn, words ...any) any {
	t.Helper()
	reply, err := conn.Do(fmt.Sprint(words[0]), words[1:]...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// listener hears all messages; what it returns gives those that have come since it was called last.
func listener(t *testing.T, s *testredis.Server) func(redis.Conn) []string {
	t.Helper()
	c := s.Dial(t)
	receive := func() []string {
		words, err := redis.Strings(redis.ReceiveWithTimeout(c, time.Minute))
		if err != nil && !strings.Contains(err.Error(), "int64") { // a confirmation counts
			t.Fatal(err)
		}
		return words
	}
	c.Send("PSUBSCRIBE", "*")
	c.Send("SSUBSCRIBE", "redisson_lock__channel:{k}")
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	receive()
	receive()
	return func(conn redis.Conn) (all []string) {
		ask(t, conn, "PUBLISH", "end", "")
		for {
			words := receive()
			if words[len(words)-2] == "end" {
				slices.Sort(all) // the two kinds of channels come in either order
				return all
			}
			all = append(all, strings.Join(words, " "))
		}
	}
}

// queueKeys are the keys of a fair queue, in which there are times, and how they are read.
var queueKeys = map[string][]any{
	"redisson_lock_queue": {"LRANGE", 0, -1}, "redisson_lock_timeout": {"ZRANGE", 0, -1, "WITHSCORES"}, "lockproxy_fair": {"HGETALL"},
}

// everything is all that Redis has, with the minutes that it has it for.
func everything(t *testing.T, conn redis.Conn) string {
	t.Helper()
	keys, err := redis.Strings(ask(t, conn, "KEYS", "*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	for i, key := range keys {
		dump, _ := redis.Bytes(ask(t, conn, "DUMP", key), nil)
		for prefix, read := range queueKeys {
			if strings.HasPrefix(key, prefix) && ask(t, conn, "TYPE", key) != "string" {
				words, _ := redis.Strings(ask(t, conn, append([]any{read[0], key}, read[1:]...)...), nil)
				dump = []byte(clocks.ReplaceAllString(strings.Join(words, " "), "long"))
			}
		}
		ttl, _ := redis.Int64(ask(t, conn, "PTTL", key), nil)
		keys[i] = fmt.Sprintf("%s=%x for %d min", key, dump, (ttl+30000)/60000)
	}
	return strings.Join(keys, " ")
}
