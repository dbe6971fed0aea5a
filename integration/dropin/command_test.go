package dropin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// verbs are lockproxy's own, as COMMAND lists them.
var verbs = []string{"fairlock", "fenced", "lock", "lockinfo", "locklist", "multilock", "multiunlock", "renew", "rlock", "unlock", "wlock", "lockproxy"}

var infoField = regexp.MustCompile(`(?m)^(# \w+|[a-z0-9_.-]+:)`)

// INFO is Redis' with one section more, in both protocols and for every choice of sections.
func TestDropinInfo(t *testing.T) {
	t.Parallel()
	redisServer := testredis.Start(t)
	p := harness.StartProxy(t, redisServer.URL())
	p.AwaitProbe(1) // INFO keyspace shows it
	harness.Protocols(t, func(t *testing.T, proto int) {
		direct, through := (&pair{direct: redisServer, proxy: p}).dials(t, proto)
		for line, ours := range map[string]bool{
			"INFO": true, "info all": true, "INFO everything": true, "INFO default": true, "INFO lockproxy": true, "INFO SERVER LockProxy": true,
			"INFO server": false, "INFO replication keyspace": false, "INFO nosuch": false, "INFO commandstats": false,
		} {
			want, got := direct.Do(strings.Fields(line)...), through.Do(strings.Fields(line)...)
			if want[0] != got[0] || proto == 3 && !strings.HasPrefix(got[strings.Index(got, "\n"):], "\ntxt:") {
				t.Errorf("%s: a frame of kind %q, Redis' is %q", line, got[:8], want[:8])
			}
			got, section, has := strings.Cut(got, "# Lockproxy\r\n")
			if has != ours {
				t.Errorf("%s: Lockproxy section %v, want %v", line, has, ours)
			}
			if ours && !strings.Contains(section, "lockproxy_locks_held:0\r\n") {
				t.Errorf("%s: section %q", line, section)
			}
			if strings.Contains(line, "commandstats") || strings.Contains(line, "every") || strings.Contains(line, "all") {
				continue // statistics by command: what the proxy itself has asked is there too
			}
			wantFields, gotFields := fieldNames(want), fieldNames(got)
			if !slices.Equal(wantFields, gotFields) {
				t.Errorf("%s: fields %v, want %v", line, gotFields, wantFields)
			}
		}
	})
}

// fieldNames are INFO's sections and fields; errors are counted under names that come up as they happen.
func fieldNames(info string) []string {
	return slices.DeleteFunc(infoField.FindAllString(info, -1), func(name string) bool { return strings.HasPrefix(name, "errorstat") })
}

// COMMAND and its subcommands are Redis' with the lock verbs and LOCKPROXY added.
func TestDropinCommand(t *testing.T) {
	t.Parallel()
	redisServer := testredis.Start(t)
	p := harness.StartProxy(t, redisServer.URL())
	harness.Protocols(t, func(t *testing.T, proto int) {
		direct, through := (&pair{direct: redisServer, proxy: p}).dials(t, proto)
		added := func(command string) []string {
			t.Helper()
			_, want := harness.Split(direct.Do(strings.Fields(command)...))
			_, got := harness.Split(through.Do(strings.Fields(command)...))
			redis := map[string]bool{}
			for _, entry := range want {
				redis[anyOrder(entry)] = true
			}
			more := slices.DeleteFunc(slices.Clone(got), func(entry string) bool { return redis[anyOrder(entry)] })
			if len(got) != len(want)+len(more) {
				t.Errorf("%s: %d entries, of which %d are not Redis' %d", command, len(got), len(more), len(want))
			}
			return more
		}
		if got := added("COMMAND"); len(got) != len(verbs) || !strings.Contains(got[slices.Index(verbs, "lock")], "$4\r\nlock\r\n:-2\r\n") {
			t.Errorf("COMMAND: %q", got)
		}
		if got := added("COMMAND INFO"); len(got) != len(verbs) {
			t.Errorf("COMMAND INFO: %q", got)
		}
		if got := added("COMMAND DOCS"); len(got) != 2*len(verbs) || !strings.Contains(got[2*slices.Index(verbs, "lock")+1], "BLOCK") {
			t.Errorf("COMMAND DOCS: %q", got)
		}
		if got := added("COMMAND LIST"); !slices.Equal(got, harness.Bulks(verbs...)) {
			t.Errorf("COMMAND LIST: %q", got)
		}
		if got := added("COMMAND LIST FILTERBY PATTERN lock[il]*"); !slices.Equal(got, harness.Bulks("lockinfo", "locklist")) {
			t.Errorf("COMMAND LIST by pattern: %q", got)
		}
		if got := added("COMMAND LIST FILTERBY PATTERN lockl[hi]s[t"); !slices.Equal(got, harness.Bulks("locklist")) {
			t.Errorf("COMMAND LIST by a pattern that is not closed: %q", got)
		}
		if got := added("COMMAND LIST FILTERBY ACLCAT geo"); len(got) != 0 {
			t.Errorf("COMMAND LIST by category: %q", got)
		}
		var count, redisCount int
		counts := direct.Do("COMMAND", "COUNT") + through.Do("COMMAND", "COUNT")
		if _, err := fmt.Sscanf(counts, ":%d\r\n:%d\r\n", &redisCount, &count); err != nil || count != redisCount+len(verbs) {
			t.Errorf("COMMAND COUNT: %d, Redis' %d (%v)", count, redisCount, err)
		}
		getKeys(t, direct, through)
	})
}

// anyOrder is the same for entries that differ in order only: Redis' own changes from call to call, that of subcommands
// within an entry as well, when a hash table of its grows.
func anyOrder(entry string) string {
	lines := strings.Split(entry, "\r\n")
	slices.Sort(lines)
	return strings.Join(lines, "\r\n")
}

func getKeys(t *testing.T, direct, through *harness.Wire) {
	tooFew := direct.Do("COMMAND", "GETKEYS", "GET") // 7.0 has another error than its successors
	resp3, flags := strings.HasPrefix(direct.Do("HELLO"), "%"), regexp.MustCompile(`\*(\d\r\n\+R[OW]\r)`)
	for line, want := range map[string]string{
		"COMMAND GETKEYS LOCK a BLOCK 0":                "*1\r\n$1\r\na\r\n",
		"command getkeys unlock a":                      "*1\r\n$1\r\na\r\n",
		"COMMAND GETKEYS LOCKINFO x":                    "*1\r\n$1\r\nx\r\n",
		"COMMAND GETKEYSANDFLAGS LOCKINFO a":            "*1\r\n*2\r\n$1\r\na\r\n*2\r\n+RO\r\n+access\r\n",
		"COMMAND GETKEYSANDFLAGS RENEW a":               "*1\r\n*2\r\n$1\r\na\r\n*3\r\n+RW\r\n+access\r\n+update\r\n",
		"COMMAND GETKEYS FENCED a OWNER x MSET b 1 c 2": "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
		"COMMAND GETKEYS FENCED a WRITE EVAL s 1 b":     "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
		"COMMAND GETKEYS FENCED a PING x":               "*1\r\n$1\r\na\r\n",
		"COMMAND GETKEYS FENCED a OWNER x":              "-ERR Invalid number of arguments specified for command\r\n",
		"COMMAND GETKEYS FENCED a NOSUCH x":             "-ERR Invalid command specified\r\n",
		"COMMAND GETKEYSANDFLAGS FENCED a GET b":        "*2\r\n*2\r\n$1\r\na\r\n*2\r\n+RO\r\n+access\r\n*2\r\n$1\r\nb\r\n*2\r\n+RO\r\n+access\r\n",
		"COMMAND GETKEYS MULTILOCK 2 a b BLOCK 0":       "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
		"COMMAND GETKEYS multiunlock 1 a OWNER b":       "*1\r\n$1\r\na\r\n",
		"COMMAND GETKEYS MULTILOCK 0 a":                 "-ERR Invalid arguments specified for command\r\n",
		"COMMAND GETKEYS MULTILOCK 3 a b":               "-ERR Invalid arguments specified for command\r\n",
		"COMMAND GETKEYS MULTILOCK 1":                   "-ERR Invalid number of arguments specified for command\r\n",
		"COMMAND GETKEYSANDFLAGS MULTIUNLOCK 1 a":       "*1\r\n*2\r\n$1\r\na\r\n*3\r\n+RW\r\n+access\r\n+update\r\n",
		"COMMAND GETKEYS LOCKPROXY STATS":               "-ERR The command has no key arguments\r\n",
		"COMMAND GETKEYS SINTERCARD 3 a b":              "",
		"COMMAND GETKEYS GET a":                         "",
		"COMMAND GETKEYS NOSUCH a":                      "",
		"COMMAND GETKEYS MSET a 1 b 2":                  "",
		"COMMAND GETKEYS":                               "",
		"COMMAND GETKEYS LOCK":                          tooFew,
		"COMMAND GETKEYSANDFLAGS LMOVE a b ":            "",
	} {
		if want == "" {
			want = direct.Do(strings.Fields(line)...)
		} else if resp3 {
			want = flags.ReplaceAllString(want, "~$1")
		}
		if got := through.Do(strings.Fields(line)...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	_, entries := harness.Split(through.Do("COMMAND", "INFO", "get", "LOCK", "nosuch", "unlock"))
	_, redisEntries := harness.Split(direct.Do("COMMAND", "INFO", "get", "nosuch"))
	if len(entries) != 4 || entries[0] != redisEntries[0] || entries[2] != redisEntries[1] || !strings.Contains(entries[1], "$4\r\nlock\r\n") {
		t.Errorf("COMMAND INFO of four: %q", entries)
	}
	if _, fields := harness.Split(entries[1]); len(fields) != 10 {
		t.Errorf("the entry of LOCK: %q", fields)
	}
	for _, docs := range []string{"lock", "LOCK", "lockproxy"} {
		if _, doc := harness.Split(through.Do("COMMAND", "DOCS", docs)); len(doc) != 2 || !strings.Contains(doc[1], "summary") {
			t.Errorf("COMMAND DOCS %s: %q", docs, doc)
		}
	}
}
