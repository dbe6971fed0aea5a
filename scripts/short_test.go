package scripts

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
)

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
	"held, registered":             {{"HSET", "k", "me", 1}, {"PEXPIRE", "k", 3600000}, {"SET", "w", "mine", "PX", 3600000}},
	"held, another's name":         {{"HSET", "k", "me", 1}, {"PEXPIRE", "k", 3600000}, {"SET", "w", "another", "PX", 3600000}},
	"held, ended elsewhere":        {{"HSET", "k", "me", 1}, {"PEXPIRE", "k", 3600000}, {"SET", "w", "", "PX", 3600000}},
	"held twice, registered":       {{"HSET", "k", "me", 2}, {"PEXPIRE", "k", 36000000}, {"SET", "w", "mine", "PX", 36000000}},
	"free, registered":             {{"SET", "w", "mine", "PX", 36000000}},
	"a registration of a list":     {{"HSET", "k", "me", 1}, {"RPUSH", "w", "mine"}},
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
	"mine, registered, one waits":  waiting("next", 7, []any{"HSET", "k", "me", 1}, []any{"SET", "w", "mine", "PX", 3600000}),
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
var clocks = regexp.MustCompile(`\d{8,}|3[56]\d{5}`)

// TestShortWays: what stands before a script for the common case does what the script would have done without it: the same reply, the
// same keys, the same messages, whatever it finds.
func TestShortWays(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	conn, heard := s.Dial(t), listener(t, s)
	later := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	past := strconv.FormatInt(time.Now().Add(-time.Second).UnixMicro(), 10) // just so: a not-after is given less a second
	const queue = "redisson_lock_queue:{k}"
	const hold, rw = "{k}:me:rwlock_timeout", "redisson_rwlock:{k}"
	acquired := func(n int64) string {
		switch {
		case n == 0:
			return "[1 1 7200000 0 0]"
		case n > 0:
			return fmt.Sprintf("[1 %d 7200000 0 1]", n)
		}
		return fmt.Sprintf("[0 0 %d 0]", -16-n)
	}
	released := func(n int64) string {
		if n > 1 {
			return fmt.Sprintf("[0 %d]", n-1)
		}
		return "[1 0]"
	}
	plainAcquire := func(a []any) []any {
		switch plain := a[4] == "PUBLISH"; {
		case a[3] == "N" && plain:
			return a[:3]
		case a[3] == "N":
			return []any{a[0], a[1], a[2], a[4]}
		case a[3] == "" && plain:
			return a[:4]
		case a[3] == "NE" && plain:
			return []any{a[0], a[1], a[2], a[3], a[8], a[7]}
		case len(a) == 7 && plain && a[5] != "":
			return []any{a[0], a[1], a[2], a[5]}
		}
		return a
	}
	plainRelease := func(a []any) []any {
		switch {
		case a[3] == "" && a[1] == "PUBLISH":
			return []any{a[0], a[2]}
		case a[3] == "":
			return a[:3]
		}
		return a
	}
	rwAcquire := func(a []any) []any {
		switch a[3] {
		case "NM":
			return a[:3]
		case "M":
			return a[:4]
		}
		return a
	}
	rwRelease := func(a []any) []any {
		if a[3] == "" {
			return []any{a[0], a[1], a[2], a[5], a[6]}
		}
		return a
	}
	renewal := func(a []any) []any { return slices.Delete(slices.Clone(a), 2, 3) }
	renewed := func(n int64) string { return fmt.Sprintf("[%d]", n) }
	for _, way := range []struct {
		script *Script
		short  string
		whole  func(int64) string // what its short reply stands for
		brief  func([]any) []any  // the ARGV that are sent
		keys   []any
		args   [][]any
	}{
		{Acquire, lua("acquire_short fair_short"), acquired, plainAcquire, []any{"k", queue}, [][]any{
			{"7200000", "me", later, "", "PUBLISH"}, {"7200000", "me", later, "N", "PUBLISH"}, {"7200000", "me", past, "N", "PUBLISH"},
			{"7200000", "me", past, "", "PUBLISH"}, {"7200000", "me", later, "N", "BOTH"}, {"7200000", "me", later, "", "SPUBLISH"}, {"7200000", "me", later, "O", "PUBLISH"}, {"7200000", "me", later, "NE", "PUBLISH", "", "0", "300000", "7"},
			{"7200000", "me", later, "NE", "PUBLISH", "", "0", "300000", "0"}, {"7200000", "me", later, "NE", "BOTH", "", "0", "300000", "7"},
			{"7200000", "me", past, "NE", "PUBLISH", "", "0", "300000", "7"}, {"7200000", "me", past, "NE", "PUBLISH", "", "0", "300000", "0"},
		}},
		{Acquire, lua("acquire_short fair_short"), acquired, plainAcquire, []any{"k", queue, "w"}, [][]any{
			{"7200000", "me", later, "OW", "PUBLISH", "mine", "0"}, {"7200000", "me", past, "OW", "PUBLISH", "mine", "0"},
			{"7200000", "me", later, "OD", "PUBLISH", "-mine", "0"}, {"7200000", "me", later, "OD", "PUBLISH", "", "0"},
		}},
		{Release, lua("release_short"), released, plainRelease, []any{"k", queue}, [][]any{
			{"me", "PUBLISH", later, ""}, {"me", "SPUBLISH", later, ""}, {"me", "BOTH", later, ""}, {"me", "PUBLISH", past, ""}, {"me", "PUBLISH", later, "A"},
		}},
		{Release, lua("release_short"), released, plainRelease, []any{"k", queue, "w"}, [][]any{
			{"me", "PUBLISH", later, "AW", "mine"}, {"me", "BOTH", later, "AW", "mine"}, {"me", "PUBLISH", past, "AW", "mine"},
			{"me", "PUBLISH", later, "AW", ""}, {"me", "PUBLISH", later, "AWX", "mine"},
		}},
		{ReadAcquire, lua("read_acquire_short"), acquired, rwAcquire, []any{"k", hold}, [][]any{
			{"7200000", "me", later, "", "", "0", "me:write", "{k}"}, {"7200000", "me", later, "NM", "", "0", "me:write", "{k}"},
			{"7200000", "me", later, "M", "", "0", "me:write", "{k}"}, {"7200000", "me", later, "N", "", "0", "me:write", "{k}"},
			{"7200000", "me", past, "NM", "", "0", "me:write", "{k}"}, {"7200000", "me", later, "NMO", "", "0", "me:write", "{k}"},
		}},
		{ReadRelease, lua("read_release_short"), released, rwRelease, []any{"k", hold, rw}, [][]any{
			{"me", "PUBLISH", later, "", "", "me:write", "{k}"}, {"me", "BOTH", later, "", "", "me:write", "{k}"},
			{"me", "PUBLISH", past, "", "", "me:write", "{k}"}, {"me", "PUBLISH", later, "A", "", "me:write", "{k}"},
		}},
		{WriteAcquire, lua("write_acquire_short"), acquired, rwAcquire, []any{"k"}, [][]any{
			{"7200000", "me:write", later, "", "", "0", "me", "{k}"}, {"7200000", "me:write", later, "NM", "", "0", "me", "{k}"},
			{"7200000", "me:write", later, "M", "", "0", "me", "{k}"}, {"7200000", "me:write", later, "N", "", "0", "me", "{k}"},
			{"7200000", "me:write", past, "NM", "", "0", "me", "{k}"}, {"7200000", "me:write", later, "NMO", "", "0", "me", "{k}"},
		}},
		{WriteRelease, lua("write_release_short"), released, rwRelease, []any{"k", rw}, [][]any{
			{"me:write", "PUBLISH", later, "", "", "me", "{k}"}, {"me:write", "BOTH", later, "", "", "me", "{k}"},
			{"me:write", "PUBLISH", past, "", "", "me", "{k}"}, {"me:write", "PUBLISH", later, "A", "", "me", "{k}"},
		}},
		{ReadRenew, lua("read_renew_short"), renewed, renewal, []any{"k", hold}, [][]any{
			{"7200000", later, "-", "me"}, {"7200000", past, "-", "me"}, {"0", later, "-", "me"}, {"72000000", later, "-", "me"},
		}},
		{Renew, lua("renew_short"), renewed, renewal, []any{"k", "w"}, [][]any{
			{"7200000", later, "W", "me", "mine"}, {"7200000", past, "W", "me", "mine"}, {"7200000", later, "W", "me", "other"}, {"0", later, "W", "me", "mine"},
		}},
		{Renew, lua("renew_short"), renewed, renewal, []any{"k"}, [][]any{
			{"7200000", later, "-", "me"}, {"7200000", later, "-", "me:write"}, {"7200000", past, "-", "me"}, {"0", later, "-", "me"},
		}},
	} {
		before, after, found := strings.Cut(way.script.Source, way.short)
		if !found || way.short == "" {
			t.Fatalf("%s has no short way", way.script.Name)
		}
		general := before + after
		taken := 0
		for name, state := range lockStates {
			for _, args := range way.args {
				if name == "a string" && slices.Contains(args, any(past)) {
					continue // it may be told that it is too late, or of the wrong type
				}
				outcome := func(source string, sent []any) string {
					prepare(t, conn, state)
					reply, err := conn.Do("EVAL", slices.Concat([]any{source, len(way.keys)}, way.keys, sent)...)
					line, _, _ := strings.Cut(fmt.Sprint(err), " script:")
					if err != nil {
						reply = nil // it is the error
					}
					text := fmt.Sprint(reply, line)
					if n, short := reply.(int64); short {
						taken++
						text = way.whole(n) + line
						if len(args) == 9 && n < -9 {
							text = strings.Replace(text, " 0]", fmt.Sprintf(" %s]", args[8]), 1) // it keeps its place
						}
						if n == Late || n < -9 && slices.Contains(args, any(past)) {
							text = "late" // what is refused changes nothing, and is refused however late it is
						}
					}
					if strings.HasPrefix(text, "[-2") {
						text = "late"
					}
					text = clocks.ReplaceAllString(text, "long")
					return text + " " + strings.Join(heard(conn), ",") + " " + everything(t, conn)
				}
				sent := args
				if way.brief != nil {
					sent = way.brief(args)
				}
				if got, want := outcome(way.script.Source, sent), outcome(general, args); got != want {
					t.Errorf("%s %q, %s:\n got %s\nwant %s", way.script.Name, args, name, got, want)
				}
			}
		}
		if taken < 2 {
			t.Errorf("%s went its short way %d times", way.script.Name, taken)
		}
	}
}

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
