package dropin

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// leavesState are commands that change the connection, or end it, or have more than one reply: each has one of its own.
var leavesState = strings.Fields(`MULTI EXEC DISCARD WATCH UNWATCH SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE
	CLIENT|REPLY CLIENT|TRACKING CLIENT|CACHING HELLO AUTH QUIT RESET`)

func isAmong(args, names []string) bool {
	name := strings.ToUpper(args[0])
	return slices.Contains(names, name) || len(args) > 1 && slices.Contains(names, name+"|"+strings.ToUpper(args[1]))
}

// duel is one client's two connections, and what they were asked.
type duel struct {
	t               *testing.T
	p               *pair
	proto           int
	direct, through *harness.Wire
	asked           [][]string
}

func (p *pair) duel(t *testing.T, proto int) *duel {
	d := &duel{t: t, p: p, proto: proto}
	d.direct, d.through = p.dials(t, proto)
	return d
}

// ask sends one command to both.
func (d *duel) ask(args []string) (want, got string) {
	d.asked = append(d.asked, args)
	if !isAmong(args, leavesState) {
		return d.direct.Do(args...), d.through.Do(args...)
	}
	for try := 1; ; try++ {
		direct, through := d.p.dials(d.t, d.proto)
		want, got = untilReset(direct, args), untilReset(through, args)
		direct.Close()
		through.Close()
		if try == tries || !cutOff(map[string][]string{"": {want}}, map[string][]string{"": {got}}) {
			return want, got
		}
		d.t.Logf("said again, since the proxy was cut off from Redis: %q: %q", args, got)
	}
}

// untilReset sends a command, PING and RESET, which answers in every state, and returns all that comes until then.
func untilReset(w *harness.Wire, args []string) string {
	w.T.Helper()
	if _, err := io.WriteString(w.C, harness.EncodeAll([][]string{args, {"PING"}, {"RESET"}})); err != nil {
		w.T.Fatal(err)
	}
	w.T.Helper()
	var all strings.Builder
	for {
		frame, err := w.TryRead(2 * harness.Patience)
		all.WriteString(frame)
		if err == io.EOF {
			return all.String() + hungUp
		}
		if err != nil {
			w.T.Fatalf("%q: %v", args, err)
		}
		if frame == "+RESET\r\n" {
			return all.String()
		}
	}
}

// differs says whether, on empty servers and after the commands before it, the replies to a command differ.
func (d *duel) differs(before [][]string, last []string) bool {
	fresh := d.p.duel(d.t, d.proto)
	defer fresh.direct.Close()
	defer fresh.through.Close()
	for _, s := range []string{"FLUSHALL", "FUNCTION FLUSH", "SCRIPT FLUSH", "ACL DELUSER u1"} {
		for _, server := range []interface{ Addr() string }{d.p.direct, d.p.behind} {
			w := harness.Dial(d.t, server.Addr())
			w.Do(strings.Fields(s)...)
			w.Close()
		}
	}
	for _, args := range before {
		fresh.ask(args)
	}
	want, got := fresh.ask(last)
	return !alike(last, want, got)
}

// mismatch shows the last command's replies, and the shortest commands it finds that end with a difference. The data
// differ from there on: the test is over.
func (d *duel) mismatch(want, got string) {
	d.t.Helper()
	n := len(d.asked) - 1
	last := d.asked[n]
	d.t.Errorf("command %d %s\n  redis     %s\n  lockproxy %s", n, harness.Quoted(last), harness.Quoted(want), harness.Quoted(got))
	before := d.asked[:n]
	if !d.differs(before, last) {
		d.t.Fatal("repeated from the start it does not differ")
	}
	before = shrink(before, 150, func(before [][]string) bool { return d.differs(before, last) })
	args := shrink(last[1:], 50, func(args []string) bool { return d.differs(before, append(last[:1:1], args...)) })
	d.t.Fatalf("the same with fewer commands: %s\n  then %s", harness.Quoted(before), harness.Quoted(append(last[:1:1], args...)))
}

// shrink leaves out of list what it can, in ever smaller pieces, so that fails still says true; it calls it at most so
// many times.
func shrink[T any](list []T, calls int, fails func([]T) bool) []T {
	for size := len(list); size > 0; size /= 2 {
		for at := 0; at < len(list) && calls > 0; {
			without := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if calls--; fails(without) {
				list = without
			} else {
				at += size
			}
		}
	}
	return list
}

func (g *generator) takeDumps(t *testing.T, w *harness.Wire) {
	t.Helper()
	g.dumps = nil
	for _, c := range []string{"SET d abc", "RPUSH d 1 b c", "ZADD d 1 a 2 b", "HSET d f v g w", "SADD d 1 2 3"} {
		w.Do(strings.Fields(c)...)
		g.dumps = append(g.dumps, parseNode(w.Do("DUMP", "d")).text)
		w.Do("DEL", "d")
	}
}

// Every command and subcommand the server lists, often, over data that templates make between them.
func TestDropinEveryCommand(t *testing.T) {
	t.Parallel()
	rounds := 3
	if harness.Long() {
		rounds = 16
	}
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), true)
		p := startPair(t)
		admin := harness.Dial(t, p.direct.Addr())
		all := documentedCommands(t, admin)
		g.takeDumps(t, admin)
		d := &duel{t: t, p: p, proto: proto}
		d.direct, d.through = p.dialsWarm(t, proto)
		groups, kinds := map[string]int{}, map[byte]int{}
		once := func(group string, args []string) {
			want, got := d.ask(args)
			if !alike(args, want, got) {
				d.mismatch(want, got)
			}
			groups[group]++
			kinds[(want + "-")[0]]++
		}
		for range rounds {
			for _, i := range g.rnd.Perm(len(all)) {
				g.large = true
				once(all[i].group, g.documented(all[i]))
				g.large = false // TestDropinRandomCommands has the large ones
				once("(templates)", g.next())
			}
		}
		p.mustEqual(t)
		t.Logf("%d commands and subcommands, %d calls; replies by kind: %s", len(all), len(d.asked), counts(kinds))
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			t.Logf("  %-13s %d", group, groups[group])
		}
		if made := len(d.asked) - groups["(templates)"]; made < 300*rounds {
			t.Errorf("%d calls made of the documentation", made)
		}
	})
}
