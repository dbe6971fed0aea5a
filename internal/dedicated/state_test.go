package dedicated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// said are commands by a letter, with what they do.
var said = map[byte]Reply{
	'M': {Cmd: &commandtable.Command{Name: "multi"}, Kind: commandtable.ConnMulti},
	'E': {Cmd: &commandtable.Command{Name: "exec"}, Kind: commandtable.ConnExec},
	'D': {Cmd: &commandtable.Command{Name: "discard"}, Kind: commandtable.ConnDiscard},
	'W': {Cmd: &commandtable.Command{Name: "watch"}, Kind: commandtable.ConnWatch, Args: 2},
	'U': {Cmd: &commandtable.Command{Name: "unwatch"}, Kind: commandtable.ConnUnwatch},
	'O': {Cmd: &commandtable.Command{Name: "monitor"}, Kind: commandtable.ConnMonitor},
	'S': {Cmd: &commandtable.Command{Name: "select"}, Effect: Effect{Selects: true, DB: 3}},
	'H': {Cmd: &commandtable.Command{Name: "hello"}, Effect: Effect{Proto: 3}},
	'C': {Cmd: &commandtable.Command{Name: "client|caching"}, Effect: Effect{Caching: "yes"}},
	'T': {Cmd: &commandtable.Command{Name: "client|tracking"}, Kind: commandtable.ConnTracking, Effect: Effect{Tracks: true, On: true, To: Redirect{7, 70}}},
	't': {Cmd: &commandtable.Command{Name: "client|tracking"}, Kind: commandtable.ConnTracking, Effect: Effect{Tracks: true}},
	'G': {Cmd: &commandtable.Command{Name: "get"}},
}

// What Redis keeps for a connection follows from its replies: a letter is a command, behind it stands its reply.
func TestState(t *testing.T) {
	t.Parallel()
	for steps, want := range map[string]string{
		"":                           "db=0 proto=2 none",
		"M+OK":                       "multi queued=0 db=0 proto=2",
		"M+OK G+QUEUED G+QUEUED":     "multi queued=2 db=0 proto=2",
		"M-ERR":                      "db=0 proto=2 none",
		"M+OK M-ERR_nested":          "multi queued=0 db=0 proto=2",
		"M+OK D+OK":                  "db=0 proto=2 none",
		"M+OK E*0":                   "db=0 proto=2 none",
		"M+OK E*-1":                  "db=0 proto=2 none",
		"M+OK E-EXECABORT_x":         "db=0 proto=2 none",
		"M+OK E-MOVED_1_a:1":         "db=0 proto=2 none",
		"M+OK E-NOPERM_x":            "multi queued=0 db=0 proto=2",
		"E-ERR_EXEC_without_MULTI":   "db=0 proto=2 none",
		"W+OK":                       "watch=2 db=0 proto=2",
		"W+OK W+OK":                  "watch=4 db=0 proto=2",
		"W-ERR":                      "db=0 proto=2 none",
		"W+OK U+OK":                  "db=0 proto=2 none",
		"W+OK M+OK E*-1":             "db=0 proto=2 none",
		"W+OK M+OK D+OK":             "db=0 proto=2 none",
		"W+OK M+OK U+QUEUED":         "multi queued=1 watch=2 db=0 proto=2",
		"W+OK E-ERR_without":         "watch=2 db=0 proto=2",
		"S+OK":                       "db=3 proto=2 none",
		"S-ERR":                      "db=0 proto=2 none",
		"M+OK S+QUEUED":              "multi queued=1 db=0 proto=2",
		"H%7":                        "db=0 proto=3 none",
		"H-NOPROTO":                  "db=0 proto=2 none",
		"O+OK":                       "monitor db=0 proto=2",
		"T+OK":                       "tracking=7 db=0 proto=2",
		"T-ERR":                      "db=0 proto=2 none",
		"T+OK t+OK":                  "db=0 proto=2 none",
		"C+OK":                       "caching db=0 proto=2 none",
		"C+OK G$1":                   "db=0 proto=2 none",
		"M+OK C+QUEUED":              "multi queued=1 db=0 proto=2",
		"(subscribe 1":               "subs=1/0/0 db=0 proto=2 mute",
		"(subscribe 1 (psubscribe 2": "subs=1/1/0 db=0 proto=2 mute",
		"(ssubscribe 1":              "subs=0/0/1 db=0 proto=2 mute",
		"(subscribe 1 (psubscribe 2 (unsubscribe 1":                 "subs=0/1/0 db=0 proto=2 mute",
		"(subscribe 1 (psubscribe 2 (punsubscribe 1 (unsubscribe 0": "db=0 proto=2 none",
		"H%7 (subscribe 1": "subs=1/0/0 db=0 proto=3",
	} {
		state := State{proto: 2, kept: Restorable{wanted: true}}
		words := strings.Fields(steps)
		for i := 0; i < len(words); i++ {
			if verb, confirms := strings.CutPrefix(words[i], "("); confirms {
				i++
				state.confirmed([]byte(fmt.Sprintf("*3\r\n%s%s:%s\r\n", bulk(verb), bulk("a"), words[i])))
				continue
			}
			e := said[words[i][0]]
			state.answered(&e, []byte(strings.ReplaceAll(words[i][1:], "_", " ")+"\r\n"))
		}
		if got := state.text(); got != want {
			t.Errorf("%s: %s, want %s", steps, got, want)
		}
	}
}

// text is the state in words.
func (t *State) text() string {
	var words []string
	say := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(t.multi, "multi queued=%d", t.queued)
	say(t.watch, "watch=%d", t.watched)
	say(t.tracking.on, "tracking=%d", t.tracking.redirect.Client)
	say(t.tracking.caching != "", "caching")
	say(t.monitor, "monitor")
	say(t.subscribed() > 0, "subs=%d/%d/%d", t.subs.channels, t.subs.patterns, t.subs.shards)
	say(true, "db=%d proto=%d", t.db, t.proto)
	say(t.mute(), "mute")
	say(t.none(), "none")
	return strings.Join(words, " ")
}

// What is made again of a connection that was lost: what is subscribed to still, and the calls of CLIENT TRACKING in force.
func TestRemains(t *testing.T) {
	t.Parallel()
	p := &Conn{state: State{proto: 2, kept: Restorable{wanted: true}}}
	if _, any := p.remains(); any {
		t.Error("nothing was there")
	}
	for _, frame := range []string{confirms("subscribe", "a", 1), confirms("subscribe", "b", 2), confirms("psubscribe", "p*", 3), confirms("unsubscribe", "a", 2)} {
		p.state.confirmed([]byte(frame))
	}
	for _, call := range []string{"one", "two"} {
		p.state.answered(&Reply{Effect: Effect{Tracks: true, On: true, BCast: true, Call: call}}, []byte("+OK\r\n"))
	}
	what, any := p.remains()
	var sent []string
	for _, c := range what.Calls(func(string) *commandtable.Command { return nil }) {
		sent = append(sent, string(c.Raw))
	}
	want := "one two *2\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n *2\r\n$10\r\npsubscribe\r\n$2\r\np*\r\n"
	if got := strings.Join(sent, " "); !any || !what.Mute || got != want {
		t.Errorf("any %v, mute %v: %q, want %q", any, what.Mute, got, want)
	}
	p.state.answered(&Reply{Effect: Effect{Tracks: true}}, []byte("+OK\r\n"))
	if calls := len(p.state.kept.tracking); calls != 0 {
		t.Errorf("%d calls are in force after CLIENT TRACKING OFF", calls)
	}
}

// Very many subscriptions are made again by several calls, each of which is answered in time.
func TestRemainsOfMany(t *testing.T) {
	t.Parallel()
	what := Remains{Restorable: Restorable{subs: map[Subscription]struct{}{}}}
	for i := range 2*RemadeAtOnce + 1 {
		what.subs[Subscription{OfPattern, fmt.Sprint("p", i)}] = struct{}{}
	}
	names := map[string]bool{}
	for _, c := range what.Calls(func(string) *commandtable.Command { return nil }) {
		r, _ := resp.ParseReply(c.Raw)
		if len(r.Elems) != 1+c.Args || c.Args > RemadeAtOnce || string(r.Elems[0].Text) != "psubscribe" {
			t.Errorf("a call of %d words is taken for one of %d names", len(r.Elems), c.Args)
		}
		for _, e := range r.Elems[1:] {
			names[string(e.Text)] = true
		}
	}
	if len(names) != len(what.subs) {
		t.Errorf("%d of %d are made again", len(names), len(what.subs))
	}
}
