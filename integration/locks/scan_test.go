package locks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

const (
	thread  = "0f8fad5b-d9cb-469f-a165-70867728950e:52" // of a Redisson
	another = "7c9e6679-7425-40de-944b-e07fc1f90ae7:1"
)

// scan goes through all of LOCKLIST SCAN, and returns what each call found. No call may find much more than it was to look at.
func scan(t testing.TB, w *harness.Wire, options ...string) (all []map[string]any) {
	t.Helper()
	for cursor, calls := "0", 0; ; calls++ {
		reply, _ := harness.Decode(t, w.Do(append([]string{"LOCKLIST", "SCAN", cursor}, options...)...)).([]any)
		if len(reply) != 2 || calls > 20000 {
			t.Fatalf("call %d of LOCKLIST SCAN: %v", calls, reply)
		}
		found := harness.Objects(t, reply[1])
		if len(found) > 1100 {
			t.Errorf("one call found %d locks", len(found))
		}
		all = append(all, found...)
		if cursor, _ = reply[0].(string); cursor == "0" {
			return all
		}
	}
}

// names are those of the locks, each once.
func names(found []map[string]any) (all []string) {
	for _, one := range found {
		all = append(all, one["key"].(string))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// expectNames compares names without printing thousands of them.
func expectNames(t testing.TB, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if slices.Equal(got, want) {
		return
	}
	t.Errorf("%d locks found, want %d", len(got), len(want))
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%.60q is no lock", name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%.60q was not found", name)
		}
	}
}

// redissons are commands that leave what n locks of Redisson leave, plain ones and read locks, with their names.
func redissons(n int) (commands [][]string, names []string) {
	for i := range n {
		name := fmt.Sprintf("job:%d", i)
		names = append(names, name)
		if i%2 == 0 {
			commands = append(commands, []string{"HSET", name, thread, strconv.Itoa(1 + i%3)}, []string{"PEXPIRE", name, "600000"})
			continue
		}
		commands = append(commands, []string{"HSET", name, "mode", "read", thread, "1"}, []string{"PEXPIRE", name, "600000"},
			[]string{"SET", "{" + name + "}:" + thread + ":rwlock_timeout:1", "1", "PX", "600000"})
	}
	return commands, names
}

// notLocks are commands that leave keys which look like locks, but for one thing.
func notLocks() (commands [][]string) {
	lasts := func(key string, words ...string) {
		commands = append(commands, append([]string{words[0], key}, words[1:]...), []string{"PEXPIRE", key, "600000"})
	}
	lasts("data:string", "SET", "1")
	lasts("data:list", "RPUSH", thread)
	lasts("data:set", "SADD", thread)
	lasts("data:zset", "ZADD", "1", thread)
	lasts("data:fields", "HSET", thread, "1", another, "1")
	lasts("data:mode", "HSET", "mode", "paper", thread, "1")
	lasts("data:text", "HSET", "name", "x")
	lasts("data:counter", "HSET", "visits", "5")
	lasts("data:none", "HSET", thread, "0")
	lasts("data:long", "HSET", strings.Repeat("o", 300), "1")
	lasts("data:ended", "HSET", "mode", "read", thread, "1") // its reader's key is gone
	lasts("data:"+strings.Repeat("n", 4096), "HSET", thread, "1")
	lasts("lockproxy_fair:{x}", "HSET", thread, "1")
	commands = append(commands, []string{"HSET", "data:lasting", thread, "1"})
	for _, huge := range []string{"data:huge", "data:huge:mode"} {
		words := []string{huge}
		for i := range 20000 {
			words = append(words, "field:"+strconv.Itoa(i), "1")
		}
		if strings.HasSuffix(huge, "mode") {
			words = append(words, "mode", "read")
		}
		lasts(huge, append([]string{"HSET"}, words[1:]...)...)
	}
	return commands
}

// hostile names: of bytes that are no text, of those that end lines, of those that patterns and pages mean something by, of none.
var hostile = []string{"\x00\xff\xfe", "a\r\n+OK\r\n", "*?[x]\\", "<script>alert(1)</script>", "\u202egnp", " ", ""}

func everywhere(t *testing.T, f func(t *testing.T, p *harness.Proxy)) {
	t.Run("redis", func(t *testing.T) { f(t, harness.StartProxy(t, testredis.Start(t).URL())) })
	t.Run("sentinel", func(t *testing.T) {
		f(t, harness.StartProxy(t, testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1}).URL()))
	})
	t.Run("cluster", func(t *testing.T) { f(t, harness.StartClusterProxy(t, testredis.StartCluster(t, 3, 0))) })
}

// LOCKLIST SCAN finds each lock that is in Redis, whoever has made it and whatever its name is, and nothing else.
func TestScanFindsLocks(t *testing.T) {
	t.Parallel()
	finds := func(t *testing.T, p *harness.Proxy) {
		w, asker := harness.Dial(t, p.Addr()), harness.Dial3(t, p.Addr())
		if got := scan(t, asker); len(got) != 0 {
			t.Errorf("an empty Redis has %v", got)
		}
		commands, want := redissons(10)
		for _, reply := range w.Pipeline(harness.EncodeAll(append(commands, notLocks()...)), len(commands)+len(notLocks())) {
			if reply[0] == '-' {
				t.Fatal(reply)
			}
		}
		for _, name := range append(hostile, strings.Repeat("n", 4096)) {
			if reply := w.Do("LOCK", name); strings.HasPrefix(reply, "+OK") {
				want = append(want, name)
			}
		}
		harness.Expect(t, w, "+OK\r\n", "LOCK", "mine", "OWNER", "job-7", "EX", "600")
		harness.Expect(t, w, "+OK\r\n", "WLOCK", "both")
		harness.Expect(t, w, "+OK\r\n", "RLOCK", "both")
		want = append(want, "mine", "both")
		found := scan(t, asker, "COUNT", "3")
		expectNames(t, names(found), want)
		expectNames(t, names(scan(t, asker)), want)
		expectNames(t, names(scan(t, asker, "count", "1000", "match", "job:[0-2]")), []string{"job:0", "job:1", "job:2"})
		expectNames(t, names(scan(t, asker, "MATCH", `\*\?\[*`)), []string{hostile[2]})

		of := map[string]map[string]any{}
		for _, one := range found {
			of[one["key"].(string)] = one
			one["waiting"] = fmt.Sprint(one["waiting"])
		}
		for _, key := range []string{"job:2", "job:1", "both", "mine"} {
			info := harness.Object(t, harness.Decode(t, asker.Do("LOCKINFO", key)))
			info["waiting"] = fmt.Sprint(info["waiting"])
			mine, theirs := harness.Objects(t, of[key]["holders"]), harness.Objects(t, info["holders"])
			for i := range mine {
				for name := range theirs[i] {
					if strings.HasSuffix(name, "-ms") || strings.HasSuffix(name, "ago") {
						delete(mine[i], name)
						delete(theirs[i], name)
					}
				}
				expectFields(t, mine[i], theirs[i])
			}
			want := map[string]any{"key": key, "db": int64(0), "ttl-ms": anyNumber}
			for name, value := range info {
				if name != "ttl-ms" {
					want[name] = value
				}
			}
			delete(want, "holders")
			delete(of[key], "holders")
			expectFields(t, of[key], want)
		}
	}
	everywhere(t, finds)
	t.Run("embedded", func(t *testing.T) { finds(t, harness.StartProxy(t, "")) })
}

// With ten thousand locks among as many other keys each call is as short as with ten. (The embedded store's SCAN has no steps.)
func TestScanFindsManyLocks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *harness.Proxy) {
		w := harness.Dial(t, p.Addr())
		commands, want := redissons(10000)
		for i := range 10000 {
			commands = append(commands, []string{"HSET", fmt.Sprintf("user:%d", i), "name", "x", "age", "7"})
		}
		w.Pipeline(harness.EncodeAll(commands), len(commands))
		expectNames(t, names(scan(t, w, "COUNT", "1000000")), want)
		expectNames(t, names(scan(t, w, "COUNT", "1000", "MATCH", "job:77*")), slices.DeleteFunc(want, func(name string) bool {
			return !strings.HasPrefix(name, "job:77")
		}))
	})
}

// Of a lock with many holders LOCKLIST SCAN shows some, and says how many more there are; LOCKINFO shows all.
func TestScanShowsSomeOfManyHolders(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	w := harness.Dial(t, harness.StartProxy(t, s.URL()).Addr())
	var commands [][]string
	for i := range 600 {
		owner := strings.TrimSuffix(thread, "52") + strconv.Itoa(i)
		commands = append(commands, []string{"HSET", "rw", "mode", "read", owner, "1"}, []string{"SET", "{rw}:" + owner + ":rwlock_timeout:1", "1", "PX", "600000"})
	}
	commands = append(commands, []string{"PEXPIRE", "rw", "600000"})
	w.Pipeline(harness.EncodeAll(commands), len(commands))
	found := scan(t, w)
	if len(found) != 1 {
		t.Fatalf("%d locks", len(found))
	}
	shown, more := len(harness.Objects(t, found[0]["holders"])), found[0]["more-holders"].(int64)
	if shown < 10 || shown > 40 || shown+int(more) != 600 && shown+int(more) != 601 { // the field mode is read, or it is not
		t.Errorf("%d holders and %d more", shown, more)
	}
	info := harness.Object(t, harness.Decode(t, w.Do("LOCKINFO", "rw")))
	if all := len(harness.Objects(t, info["holders"])); all != 600 || info["more-holders"] != nil {
		t.Errorf("LOCKINFO: %d holders and %v more", all, info["more-holders"])
	}
}

// Redis decides who may scan, and whose keys are shown. The service account needs no right to scan for that.
func TestWhoMayScan(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, upstream string, servers []*testredis.Server, start func(upstream string) *harness.Proxy) {
		for _, s := range servers {
			for user, rules := range map[string][]any{
				"all": {"~*", "+@all"}, "some": {"~job:1*", "+@all"}, "none": {"~*", "+@all", "-scan"}, "blind": {"~*", "+@all", "-pttl"},
				"service": {"~*", "&*", "+@all", "-scan"},
			} {
				s.Do(t, append([]any{"ACL", "SETUSER", user, "on", ">p"}, rules...)...)
			}
		}
		p := start(strings.Replace(upstream, "://", "://service:p@", 1))
		as := func(user string) *harness.Wire {
			w := harness.Dial(t, p.Addr())
			harness.Expect(t, w, "+OK\r\n", "AUTH", user, "p")
			return w
		}
		w := as("all")
		commands, want := redissons(20)
		w.Pipeline(harness.EncodeAll(commands), len(commands))
		harness.Expect(t, w, "+OK\r\n", "LOCK", "held")
		before := keysOf(t, servers)
		expectNames(t, names(scan(t, w)), append(want, "held"))
		expectNames(t, names(scan(t, as("some"))), slices.DeleteFunc(want, func(name string) bool { return !strings.HasPrefix(name, "job:1") }))
		for user, command := range map[string]string{"none": "scan", "blind": "pttl", "service": "scan"} {
			if got := as(user).Do("LOCKLIST", "SCAN", "0", "COUNT", "1000"); !strings.HasPrefix(got, "-NOPERM") || !strings.Contains(got, "'"+command+"'") {
				t.Errorf("%s: %q", user, got)
			}
		}
		if after := keysOf(t, servers); !slices.Equal(before, after) {
			t.Errorf("the keys were %q and are %q", before, after)
		}
	}
	t.Run("redis", func(t *testing.T) {
		s := testredis.Start(t)
		run(t, s.URL(), []*testredis.Server{s}, func(upstream string) *harness.Proxy { return harness.StartProxy(t, upstream) })
	})
	t.Run("cluster", func(t *testing.T) {
		tc := testredis.StartCluster(t, 3, 0)
		run(t, harness.ClusterURL(tc), tc.Servers, func(upstream string) *harness.Proxy {
			p := harness.StartProxy(t, upstream)
			w := harness.Dial(t, p.Addr())
			w.Do("AUTH", "all", "p")
			for i := range 64 {
				w.Do("LOCK", "warm:"+strconv.Itoa(i))
				w.Do("UNLOCK", "warm:"+strconv.Itoa(i))
			}
			return p
		})
	})
}

func keysOf(t testing.TB, servers []*testredis.Server) (all []string) {
	for _, s := range servers {
		all = append(all, harness.Keys(t, s)...)
	}
	slices.Sort(all)
	return all
}

// A service account with a right to some names alone reads no others; they are passed over.
func TestScanPassesOverWhatTheServiceMayNotUse(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "service", "on", ">p", "~app:*", "~redisson_*", "~lockproxy_*", "~{*", "&*", "+@all")
	p := harness.StartProxy(t, strings.Replace(s.URL(), "://", "://service:p@", 1))
	w := harness.Dial(t, p.Addr())
	for _, key := range []string{"app:1", "other:1"} {
		s.Do(t, "HSET", key, thread, 1)
		s.Do(t, "PEXPIRE", key, 600000)
	}
	expectNames(t, names(scan(t, w)), []string{"app:1"})
}

// The words of a scan that is none are refused, and nothing is asked.
func TestScanGrammar(t *testing.T) {
	t.Parallel()
	w := harness.Dial(t, harness.StartProxy(t, "").Addr())
	for line, want := range map[string]string{
		"COUNT 5":                       "-ERR syntax error near 'COUNT'\r\n",
		"SCAN":                          "-ERR syntax error near 'SCAN': its value is missing\r\n",
		"SCAN 0 SCAN 0":                 "-ERR syntax error near 'SCAN'\r\n",
		"SCAN 0 OWNER me":               "-ERR syntax error near 'OWNER'\r\n",
		"OWNER me SCAN 0":               "-ERR syntax error near 'SCAN'\r\n",
		"SCAN 0 COUNT 0":                "-ERR value is not an integer or out of range near 'COUNT'\r\n",
		"SCAN 0 COUNT x":                "-ERR value is not an integer or out of range near 'COUNT'\r\n",
		"SCAN x":                        "-ERR invalid cursor\r\n",
		"SCAN 0 TYPE":                   "-ERR syntax error near 'TYPE'\r\n",
		"SCAN 0 COUNT 99999999 MATCH a": "*2\r\n$1\r\n0\r\n*0\r\n",
	} {
		harness.Expect(t, w, want, append([]string{"LOCKLIST"}, strings.Fields(line)...)...)
	}
	if got := w.Do("LOCKLIST", "SCAN", "0", "MATCH", strings.Repeat("a*", 600)); !strings.HasPrefix(got, "-ERR invalid pattern") {
		t.Errorf("a long pattern: %q", got)
	}
}
