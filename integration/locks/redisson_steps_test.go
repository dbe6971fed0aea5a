package locks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// rwStep is one command of a connection, by its letter, and what it is answered.
//
// who: a connection of the first proxy, "2a" one of the second, "redis" one past every proxy, "" the stage itself.
// call: a command, its words parted by blanks; ">command" sends it only; "~command" is repeated until it is answered so.
// "LOCKINFO key" is answered as the kind and the holders, by the names of their connections. Of a connection also: "<" reads a
// reply, "silent" has none come within a moment, "close" and "reset" hang up; of the stage: "sleep ms", "kill n" (a proxy),
// "stop redis", "restart redis".
// want: the reply; one that ends in a blank is only its beginning; "lo..hi" is a number within. A BLOCK that comes back
// empty-handed must have waited for as long as it says.
type rwStep struct{ who, call, want string }

const (
	ok, yes, no, null = "+OK\r\n", ":1\r\n", ":0\r\n", "$-1\r\n"
	pong              = "+PONG\r\n"
	deadlock          = "-DEADLOCK "
	rwLost            = "-LOCKLOST "
	rwNotHeld         = "-NOTHELD "
)

// moment is how long a stage listens for what must not come.
const moment = 100 * time.Millisecond

// stage is where steps are played: a Redis, and proxies as they are named.
type stage struct {
	t        *testing.T
	redis    *testredis.Server
	settings []string
	proxies  map[string]*harness.Proxy
	wires    map[string]*harness.Wire
	names    map[string]string // of connections, by the proxy and its number for them
}

func newStage(t *testing.T, settings ...string) *stage {
	return &stage{t: t, redis: testredis.Start(t), settings: settings, proxies: map[string]*harness.Proxy{}, wires: map[string]*harness.Wire{}, names: map[string]string{}}
}

// playSteps plays them on a stage of their own. Many are about short leases, which end while the machine stalls.
func playSteps(t *testing.T, steps []rwStep, settings ...string) {
	t.Helper()
	harness.Undisturbed(t, func() (wrong string) {
		st := newStage(t, settings...)
		for i, s := range steps {
			if s.who == "" {
				st.act(s.call)
			} else if got := st.answer(s); !meets(got, s.want) {
				return fmt.Sprintf("step %d, %s by %s: %q, want %q", i+1, s.call, s.who, got, s.want)
			}
		}
		return ""
	})
}

// act does what no connection does.
func (st *stage) act(call string) {
	st.t.Helper()
	word, rest, _ := strings.Cut(call, " ")
	switch {
	case word == "sleep":
		d, err := time.ParseDuration(rest + "ms")
		if err != nil {
			st.t.Fatal(err)
		}
		time.Sleep(d)
	case word == "kill":
		st.proxy(rest).Kill()
	case call == "stop redis":
		st.redis.Kill()
	case call == "restart redis":
		st.redis.Restart()
	default:
		st.t.Fatalf("what is %q?", call)
	}
}

// answer is what a connection is answered, "" if by nothing, as it should be.
func (st *stage) answer(s rwStep) (got string) {
	st.t.Helper()
	w, began := st.wire(s.who), time.Now()
	switch {
	case s.call == "close":
		w.Close()
		return ""
	case s.call == "reset":
		w.Reset()
		return ""
	case s.call == "silent":
		if !w.Silent(moment) {
			return w.Read()
		}
		return ""
	case s.call == "<":
		return w.Read()
	case s.call[0] == '>':
		w.Send(strings.Fields(s.call[1:])...)
		return ""
	}
	words := strings.Fields(strings.TrimPrefix(s.call, "~"))
	if s.call[0] == '~' {
		harness.Eventually(st.t, s.call+": "+s.want, func() bool { got = w.Do(words...); return meets(got, s.want) })
		return got
	}
	got = w.Do(words...)
	if i := slices.Index(words, "BLOCK"); i > 0 && got == null {
		if ms, _ := strconv.Atoi(words[i+1]); time.Since(began) < time.Duration(ms)*time.Millisecond || time.Since(began) > time.Duration(ms)*time.Millisecond+harness.Patience {
			return fmt.Sprintf("%s after %v", got, time.Since(began))
		}
	}
	if words[0] == "LOCKINFO" && got[0] == '*' {
		return st.holders(got, st.number(s.who))
	}
	return got
}

func meets(got, want string) bool {
	if lo, hi, isRange := strings.Cut(want, ".."); isRange {
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(got, ":"), "\r\n"))
		low, _ := strconv.Atoi(lo)
		high, _ := strconv.Atoi(hi)
		return err == nil && low <= n && n <= high
	}
	return got == want || strings.HasSuffix(want, " ") && strings.HasPrefix(got, want)
}

// number is the proxy of a connection: what its name begins with, "1" unless that is a digit.
func (st *stage) number(who string) string {
	if who[0] >= '0' && who[0] <= '9' {
		return who[:1]
	}
	return "1"
}

func (st *stage) proxy(number string) *harness.Proxy {
	p := st.proxies[number]
	if p == nil {
		p = harness.StartProxy(st.t, st.redis.URL(), st.settings...)
		p.AwaitProbe(1) // some count scripts
		st.proxies[number] = p
	}
	return p
}

func (st *stage) wire(who string) *harness.Wire {
	w := st.wires[who]
	switch {
	case w != nil:
		return w
	case who == "redis":
		w = harness.Dial(st.t, st.redis.Addr())
	default:
		n := st.number(who)
		w = harness.Dial(st.t, st.proxy(n).Addr())
		st.names[n+"/"+fmt.Sprint(clientID(st.t, w))] = who
	}
	st.wires[who] = w
	return w
}

// holders is the kind of a lock and its holders, by the names of their connections; one on another proxy by its owner.
func (st *stage) holders(reply, proxy string) string {
	m := harness.Object(st.t, harness.Decode(st.t, reply))
	var holders []string
	for _, h := range harness.Objects(st.t, m["holders"]) {
		name, known := st.names[proxy+"/"+fmt.Sprint(h["client-id"])]
		if !known {
			name = fmt.Sprint(h["owner"])
		}
		if implicitOwner.MatchString(name) {
			name = "elsewhere"
		}
		if kind := h["kind"]; kind != nil {
			name += fmt.Sprint(":", kind)
		}
		holders = append(holders, fmt.Sprintf("%s=%v", name, h["holds"]))
	}
	slices.Sort(holders)
	return strings.TrimSpace(fmt.Sprint(m["kind"]) + " " + strings.Join(holders, " "))
}
