package session

import (
	"bytes"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// dedicatedState is what Redis keeps for a connection, as far as its replies have told.
type dedicatedState struct {
	multi                      bool
	queued                     int            // commands in the transaction
	inside                     map[int]effect // of those, on the connection, by their place
	exec                       *execution     // while EXEC's reply is passed on, if that matters
	watch, tracking, monitor   bool
	watched                    int      // arguments of WATCH, since watch
	bcast                      bool     // of tracking
	redirect                   redirect // of tracking
	channels, patterns, shards int
	stray                      bool // frames are to come behind EXEC's reply: see execution
	proto, db                  int
	pauses                     time.Duration // a pause of writes that nobody has noted yet
	settings                   []setting     // made in a transaction, not yet known to the session
	kept                       restorable    // what is made again when the connection is lost, but for MONITOR
	caching                    string        // what CLIENT CACHING has just said of the next command
}

// effect is what a command does to the connection if Redis answers OK, or confirms.
type effect struct {
	subs       *pendingReply // one of the SUBSCRIBE family
	selects    bool
	db         int
	pauses     time.Duration // writes, from now on
	setting    setting
	tracks, on bool
	bcast      bool     // of tracking
	to         redirect // of tracking
	call       string   // of tracking: the whole of it, as it was sent
	proto      int      // HELLO's
	caching    string   // CLIENT CACHING's
}

func (t *dedicatedState) subscribed() int { return t.channels + t.patterns + t.shards }

// none says that the connection is as if nobody had used it.
func (t *dedicatedState) none() bool {
	return !t.multi && !t.watch && !t.tracking && !t.monitor && t.subscribed() == 0 && !t.stray
}

// pendingReply is a command whose reply is pending.
type pendingReply struct {
	cmd     *commandtable.Command
	kind    commandtable.ConnKind
	args    int      // of a subscription: channels named
	names   []string // those, on a connection for subscriptions
	effect  effect
	quiet   bool // CLIENT REPLY: its reply is not wanted
	own     bool // asked by this proxy, not by the client: its reply is not wanted either
	shuts   bool // SHUTDOWN: Redis has writes wait meanwhile
	blocks  bool
	waits   time.Duration // for how long, if it blocks; 0: for ever
	begun   bool
	left    int       // confirmations still to come, once begun
	instead string    // this error is given instead of Redis' reply
	got     *gathered // its reply goes here
	refusal *gathered // its reply goes here if it is an error
	queues  bool      // a redirect is answered QUEUED: see transaction
	lost    error     // the connection ended first
	head    string    // of EXEC's reply to FENCED, when the command was run; else ""
	ran     bool      // it was: got is nil, and what follows the head is the client's
}

// answered takes the reply to e. It is whole if needsWhole said so, else only its beginning.
func (t *dedicatedState) answered(e *pendingReply, reply []byte) {
	ok := reply[0] == '+'
	if !t.multi && (e.cmd == nil || !strings.HasPrefix(e.cmd.Name, "client|")) {
		t.caching = ""
	}
	if t.multi && bytes.Equal(reply, queuedReply) {
		if e.effect != (effect{}) {
			if t.inside == nil {
				t.inside = make(map[int]effect)
			}
			t.inside[t.queued] = e.effect
		}
		t.queued++
		return
	}
	switch e.kind {
	case commandtable.ConnMulti:
		if ok {
			t.multi, t.queued, t.inside = true, 0, nil
		}
	case commandtable.ConnExec:
		if reply[0] != '-' || aborted(reply) {
			t.executed()
			t.multi, t.watch, t.inside = false, false, nil
		}
	case commandtable.ConnDiscard:
		if ok {
			t.multi, t.watch, t.inside = false, false, nil
		}
	case commandtable.ConnWatch:
		if ok && !t.watch {
			t.watch, t.watched = true, 0
		}
		if ok {
			t.watched += e.args
		}
	case commandtable.ConnUnwatch:
		t.watch = t.watch && !ok
	case commandtable.ConnMonitor:
		t.monitor = t.monitor || ok
	}
	if ok {
		t.apply(e.effect)
	}
	if e.effect.proto != 0 && reply[0] != '-' {
		t.proto = e.effect.proto
	}
}

// aborted tells the errors of EXEC that end the transaction from those that leave all as it was.
func aborted(reply []byte) bool {
	return bytes.HasPrefix(reply, []byte("-EXECABORT")) || isRedirect(reply) || bytes.HasPrefix(reply, []byte("-CROSSSLOT")) || bytes.Contains(reply, []byte("EXEC aborted"))
}

// apply is for a command that was answered OK.
func (t *dedicatedState) apply(e effect) {
	if e.selects {
		t.db = e.db
	}
	if e.pauses != 0 {
		t.pauses = e.pauses
	}
	if e.setting.of != noSetting {
		t.settings = append(t.settings, e.setting)
	}
	if e.caching != "" {
		t.caching = e.caching
	}
	if e.tracks {
		t.tracking, t.bcast = e.on, e.on && e.bcast
		if e.on {
			t.redirect = e.to
		}
		t.kept.tracks(e)
	}
}

// confirmation tells the frame that confirms a subscription, or its end, from others, by its beginning.
func confirmation(frame []byte) (verb string, yes bool) {
	switch verb = firstText(frame); verb {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		return verb, true
	}
	return verb, false
}

// confirmed takes such a frame, which ends in the number of subscriptions: sharded ones, or all others together.
func (t *dedicatedState) confirmed(frame []byte) {
	verb, yes := confirmation(frame)
	at := bytes.LastIndexByte(frame, ':')
	if !yes || at < 0 {
		return
	}
	n := atoi(bytes.TrimSpace(frame[at+1:]))
	t.kept.confirmed(verb, frame)
	switch strings.TrimSuffix(strings.TrimPrefix(verb, "un"), "scribe") {
	case "sub":
		t.channels = n - t.patterns
	case "psub", "punsub":
		t.patterns = n - t.channels
	default:
		t.shards = n
	}
}

// confirmationsOf is how many confirmations e gets: one a channel it names, or one a channel there is.
func (t *dedicatedState) confirmationsOf(e *pendingReply) int {
	if e.args > 0 {
		return e.args
	}
	n := t.channels
	switch e.cmd.Name {
	case "punsubscribe":
		n = t.patterns
	case "sunsubscribe":
		n = t.shards
	}
	return max(n, 1)
}

// firstText is the first element of an array or push when it is a short string, else "".
func firstText(frame []byte) string {
	_, rest, ok := bytes.Cut(frame, []byte("\r\n"))
	if !ok || len(rest) == 0 || rest[0] != '$' {
		return ""
	}
	_, rest, ok = bytes.Cut(rest, []byte("\r\n"))
	if !ok {
		return ""
	}
	text, _, ok := bytes.Cut(rest, []byte("\r\n"))
	if !ok || len(text) > commandtable.LongestName {
		return ""
	}
	return string(text)
}

// isMessage tells what subscribers are sent in RESP2.
func isMessage(verb string) bool {
	return verb == "message" || verb == "pmessage" || verb == "smessage"
}

// monitorLine tells MONITOR's lines from replies: +1700000000.123456 [0 127.0.0.1:1] "get" "k".
func monitorLine(frame []byte) bool {
	seconds, rest, ok := bytes.Cut(frame[1:], []byte("."))
	if !ok || len(seconds) == 0 || len(rest) < 8 {
		return false
	}
	for _, c := range append(seconds[:len(seconds):len(seconds)], rest[:6]...) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return rest[6] == ' ' && rest[7] == '['
}
