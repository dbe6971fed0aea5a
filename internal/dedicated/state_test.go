package dedicated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// commands are commands by a letter, with what they do.
var commands = map[byte]Reply{
	'M': {Cmd: &commandtable.Command{Name: "multi"}, Kind: commandtable.ConnMulti},
	'E': {Cmd: &commandtable.Command{Name: "exec"}, Kind: commandtable.ConnExec},
	'D': {Cmd: &commandtable.Command{Name: "discard"}, Kind: commandtable.ConnDiscard},
	'W': {Cmd: &commandtable.Command{Name: "watch"}, Kind: commandtable.ConnWatch, Args: 2},
	'U': {Cmd: &commandtable.Command{Name: "unwatch"}, Kind: commandtable.ConnUnwatch},
	'O': {Cmd: &commandtable.Command{Name: "monitor"}, Kind: commandtable.ConnMonitor},
	'S': {Cmd: &commandtable.Command{Name: "select"}, Effect: Select(3)},
	'H': {Cmd: &commandtable.Command{Name: "hello"}, Effect: Protocol(3)},
	'N': {Cmd: &commandtable.Command{Name: "client|setname"}, Effect: Setting{Of: client.SettingName, Value: "me"}},
	'T': {Cmd: &commandtable.Command{Name: "client|tracking"}, Kind: commandtable.ConnTracking, Effect: Tracking{On: true, To: Redirect{7, 70}}},
	't': {Cmd: &commandtable.Command{Name: "client|tracking"}, Kind: commandtable.ConnTracking, Effect: Tracking{}},
	'B': {Cmd: &commandtable.Command{Name: "subscribe"}, Kind: commandtable.ConnSubscribe, Args: 2},
	'b': {Cmd: &commandtable.Command{Name: "unsubscribe"}, Kind: commandtable.ConnSubscribe},
	'G': {Cmd: &commandtable.Command{Name: "get"}},

	// Those of this proxy's own, and those whose replies the client does not get as they are.
	'o': {Own: true},
	'q': {InMulti: true},
	'x': {Kind: commandtable.ConnExec, InMulti: true},
	'i': {Instead: "ERR not here"},
	'r': {Cmd: &commandtable.Command{Name: "blpop"}, Kind: commandtable.ConnBlock, Refusal: new([]byte)},
	'F': {Kind: commandtable.ConnExec, Fenced: true, Got: new([]byte)},
}

// talk is a conversation without a connection, for tests.
type talk struct {
	conversation
	told []string // what the client gets
}

func talkIn(proto int) *talk {
	c := new(talk)
	c.state = State{proto: proto, subs: subscriptions{all: map[Subscription]struct{}{}}}
	return c
}

// run has all steps done. >x is a command that is sent, x+OK one that is sent and has that reply. Everything else comes
// from Redis: (subscribe:a:1 confirms a subscription, [message:a:x is an array, and _ stands for a space.
func (c *talk) run(steps string) {
	for _, step := range strings.Fields(steps) {
		frame := strings.ReplaceAll(step, "_", " ")
		switch first := step[0]; {
		case first == '>':
			c.send(step[1])
			continue
		case first >= 'A':
			if first != '[' && first != '_' {
				c.send(first)
				frame = frame[1:]
			}
		}
		c.comes(frame)
	}
}

func (c *talk) send(letter byte) {
	e := commands[letter]
	c.state.sent(&e)
	c.pending.add(&e)
}

// comes has a frame come, whole.
func (c *talk) comes(short string) {
	frame := []byte(short + "\r\n")
	words := strings.Split(short[1:], ":")
	kind := byte('*')
	if c.state.proto == 3 {
		kind = '>'
	}
	switch short[0] {
	case '(':
		frame = fmt.Appendf(nil, "%c3\r\n%s%s:%s\r\n", kind, bulk(words[0]), bulk(words[1]), words[2])
	case '[':
		frame = fmt.Appendf(nil, "%c3\r\n%s%s%s", kind, bulk(words[0]), bulk(words[1]), bulk(words[2]))
	}
	v := c.judge(frame)
	switch {
	case v.into != nil:
		c.told = append(c.told, "kept")
	case v.instead != nil:
		c.told = append(c.told, strings.TrimSpace(string(v.instead)))
	case !v.drop:
		c.told = append(c.told, strings.ReplaceAll(short, " ", "_"))
	}
	o := c.take(v.kind, frame)
	if o.answered != nil {
		c.told = append(c.told, ".")
		c.pending.pop(0)
	}
	if o.unasked {
		c.told = append(c.told, "?")
	}
}

// What Redis keeps for a connection follows from its replies.
func TestState(t *testing.T) {
	t.Parallel()
	for steps, want := range map[string]string{
		"":                         "db=0 proto=2 none",
		"M+OK":                     "multi queued=0 db=0 proto=2",
		"M+OK G+QUEUED G+QUEUED":   "multi queued=2 db=0 proto=2",
		"M+OK G-ERR_no G+QUEUED":   "aborted queued=1 db=0 proto=2",
		"M-ERR":                    "db=0 proto=2 none",
		"M+OK M-ERR_nested":        "multi queued=0 db=0 proto=2",
		"M+OK D+OK":                "db=0 proto=2 none",
		"M+OK E*0":                 "db=0 proto=2 none",
		"M+OK E*-1":                "db=0 proto=2 none",
		"M+OK E-EXECABORT_x":       "db=0 proto=2 none",
		"M+OK E-MOVED_1_a:1":       "db=0 proto=2 none",
		"M+OK E-NOPERM_x":          "multi queued=0 db=0 proto=2",
		"E-ERR_EXEC_without_MULTI": "db=0 proto=2 none",
		"W+OK":                     "watch=2 db=0 proto=2",
		"W+OK W+OK":                "watch=4 db=0 proto=2",
		"W-ERR":                    "db=0 proto=2 none",
		"W+OK U+OK":                "db=0 proto=2 none",
		"W+OK M+OK E*-1":           "db=0 proto=2 none",
		"W+OK M+OK D+OK":           "db=0 proto=2 none",
		"W+OK M+OK U+QUEUED":       "multi queued=1 watch=2 db=0 proto=2",
		"W+OK E-ERR_without":       "watch=2 db=0 proto=2",
		"S+OK":                     "db=3 proto=2 none",
		"S-ERR":                    "db=0 proto=2 none",
		"M+OK S+QUEUED":            "multi queued=1 db=0 proto=2",
		"H%7":                      "db=0 proto=3 none",
		"H-NOPROTO":                "db=0 proto=2 none",
		"O+OK":                     "monitor db=0 proto=2",
		"T+OK":                     "tracking=7 db=0 proto=2",
		"T-ERR":                    "db=0 proto=2 none",
		"T+OK t+OK":                "db=0 proto=2 none",
		"(subscribe:a:1":           "db=0 proto=2 none", // nobody has asked: it looks like one
		">B (subscribe:a:1":        "subs=1/0/0 db=0 proto=2",
		"H%7 (subscribe:a:1":       "subs=1/0/0 db=0 proto=3",
		">B (subscribe:a:1 (psubscribe:p:2 (unsubscribe:a:1":                  "subs=0/1/0 db=0 proto=2",
		">B (subscribe:a:1 (psubscribe:p:2 (punsubscribe:p:1 (unsubscribe::0": "db=0 proto=2 none",
		">B (subscribe:a:1 (ssubscribe:s:1":                                   "subs=1/0/1 db=0 proto=2",

		// EXEC's reply: what its commands did is done as their replies come.
		"M+OK S+QUEUED N+QUEUED E*2":                                   "executing left=2 db=0 proto=2",
		"M+OK S+QUEUED N+QUEUED E*2 +OK":                               "executing left=1 db=3 proto=2",
		"M+OK S+QUEUED N+QUEUED E*2 +OK +OK":                           "db=3 proto=2 none named=me",
		"M+OK S+QUEUED N+QUEUED E*2 -ERR_no -ERR_no":                   "db=0 proto=2 none",
		"M+OK N+QUEUED E*-1":                                           "db=0 proto=2 none",
		"M+OK T+QUEUED E*1 +OK":                                        "tracking=7 db=0 proto=2",
		"M+OK B+QUEUED S+QUEUED E*2 (subscribe:a:1":                    "executing left=2 subs=1/0/0 db=0 proto=2",
		"M+OK B+QUEUED S+QUEUED E*2 (subscribe:a:1 +OK":                "executing left=1 subs=1/0/0 db=0 proto=2", // refused for its second name
		"M+OK B+QUEUED S+QUEUED E*2 (subscribe:a:1 (subscribe:b:2 +OK": "subs=2/0/0 db=3 proto=2",
		"M+OK B+QUEUED b+QUEUED E*2 (subscribe:a:1 (subscribe:b:2 (unsubscribe:a:1 (unsubscribe:b:0": "db=0 proto=2 none",
		"M+OK B+QUEUED S+QUEUED E*2 -NOPERM_x +OK":                                                   "db=3 proto=2 none",
	} {
		c := talkIn(2)
		c.run(steps)
		if got := c.state.text(); got != want {
			t.Errorf("%s: %s, want %s", steps, got, want)
		}
	}
}

// What a client that holds a lock would miss without its connection, and not be told of.
func TestHears(t *testing.T) {
	t.Parallel()
	for steps, want := range map[string]bool{
		"": false, "M+OK W+OK": false, "W+OK": false, "O+OK": true, "T+OK": true, "T+OK t+OK": false,
		">B (subscribe:a:1": true, ">B (subscribe:a:1 (unsubscribe:a:0": false, "M+OK T+QUEUED": false, "M+OK T+QUEUED E*1 +OK": true,
	} {
		c := talkIn(2)
		if c.run(steps); c.state.hears() != want {
			t.Errorf("%s: %v", steps, !want)
		}
	}
}

// text is the state in words.
func (s *State) text() string {
	var words []string
	say := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(s.transaction.phase == queueing, "multi queued=%d", s.transaction.queued)
	say(s.transaction.phase == aborted, "aborted queued=%d", s.transaction.queued)
	say(s.executing(), "executing left=%d", s.transaction.left)
	say(s.watched > 0, "watch=%d", s.watched)
	say(s.tracking.On, "tracking=%d", s.tracking.To.Client)
	say(s.monitor, "monitor")
	say(s.subs.total() > 0, "subs=%d/%d/%d", s.subs.number[OfChannel], s.subs.number[OfPattern], s.subs.number[OfShard])
	say(true, "db=%d proto=%d", s.db, s.proto)
	say(s.none(), "none")
	for _, set := range s.settings {
		say(true, "named=%s", set.Value)
	}
	return strings.Join(words, " ")
}

// When a connection is lost under a client that stays, each command without a reply gets an error or OK, and what
// follows goes by that.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	for steps, want := range map[string]string{
		">G":                    "-E: db=0 proto=2 none",
		">M >G":                 "+OK -E: multi queued=0 db=0 proto=2",
		">M >M":                 "+OK -E: multi queued=0 db=0 proto=2",
		">M >G >E":              "+OK -E -E: db=0 proto=2 none",
		">M >G >D >G":           "+OK -E +OK -E: db=0 proto=2 none",
		"M+OK G+QUEUED >E":      "-E: db=0 proto=2 none",
		"M+OK G+QUEUED >G":      "-E: multi queued=0 db=0 proto=2",
		"M+OK S+QUEUED E*1 >G":  "-E -E: db=0 proto=2 none",
		">W >M":                 "-E +OK: multi queued=0 watch=2 db=0 proto=2",
		">W >U":                 "-E -E: db=0 proto=2 none",
		">W >M >U":              "-E +OK -E: multi queued=0 watch=2 db=0 proto=2",
		">o >G":                 "-E: db=0 proto=2 none",
		">F >G":                 "-E: db=0 proto=2 none",
		">F *1 >G":              "-E -E: db=0 proto=2 none",
		"H%7 T+OK >G":           "-E: tracking=7 db=0 proto=3",
		">B (subscribe:a:1 >G":  "-E -E: subs=1/0/0 db=0 proto=2",
		"M+OK T+QUEUED E*1 +OK": ": tracking=7 db=0 proto=2",
	} {
		c := talkIn(2)
		c.run(steps)
		told := strings.Fields(string(c.lost("E")))
		if got := strings.Join(told, " ") + ": " + c.state.text(); got != want {
			t.Errorf("%s: %s, want %s", steps, got, want)
		}
	}
}

// CLIENT TRACKING OFF ends all tracking, also when it says BCAST, which Redis takes.
func TestTrackingOffWithBCast(t *testing.T) {
	t.Parallel()
	c := talkIn(2)
	for _, call := range []Tracking{{On: true, BCast: true}, {BCast: true}} {
		c.state.answered(&Reply{Effect: call}, []byte("+OK\r\n"))
	}
	if c.state.tracking != (Tracking{}) {
		t.Errorf("after CLIENT TRACKING OFF BCAST: %+v", c.state.tracking)
	}
}
