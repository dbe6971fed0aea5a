package dedicated

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// State is what Redis keeps for a connection, as far as its replies have told.
type State struct {
	transaction
	watch     bool
	watched   int // arguments of WATCH, since watch
	tracking  tracking
	subs      subscribed
	monitor   bool
	proto, db int
	pauses    time.Duration    // a pause of writes that nobody has noted yet
	settings  []client.Setting // made in a transaction, not yet known to the client's session
	kept      Restorable       // what is made again when the connection is lost, but for MONITOR
}

// transaction is between MULTI and the end of EXEC's reply.
type transaction struct {
	multi   bool
	queued  int        // commands in it
	inside  effects    // of those, on the connection
	refused []byte     // the last redirect that was answered QUEUED
	wrong   bool       // Redis has refused to queue something: EXEC aborts it
	exec    *execution // while EXEC's reply is passed on, if that matters
	stray   bool       // frames are to come behind EXEC's reply: see execution
}

// effects are those of queued commands.
type effects struct {
	at    map[int]Effect // by the command's place
	bytes int            // kept for them, about
	name  *string        // the last that the client was given; nil: none
}

// sent notes the name that a command which is to be queued gives the client.
func (s *effects) sent(e *Effect) {
	if e.Setting.Of == client.SettingName {
		name := e.Setting.Value
		s.name = &name
	}
}

func (s *effects) add(place int, e Effect) {
	if s.at == nil {
		s.at = make(map[int]Effect)
	}
	s.at[place] = e
	s.bytes += effectBytes + e.bytes()
}

// tracking is CLIENT TRACKING.
type tracking struct {
	on, bcast bool
	redirect  Redirect
	caching   string // what CLIENT CACHING has just said of the next command
}

// subscribed counts subscriptions.
type subscribed struct{ channels, patterns, shards int }

// Redirect is whom CLIENT TRACKING … REDIRECT has named: our number of that client, and that of its connection at Redis.
type Redirect struct{ Client, Redis int64 }

// Effect is what a command does to the connection if Redis answers OK, or confirms.
type Effect struct {
	subs       *Reply // the call, if it is one of the SUBSCRIBE family
	Selects    bool
	DB         int
	Pauses     time.Duration // writes, from now on
	Setting    client.Setting
	Tracks, On bool
	BCast      bool     // of tracking
	To         Redirect // of tracking
	Call       string   // of tracking: the whole command, as it was sent
	Proto      int      // HELLO's
	Caching    string   // CLIENT CACHING's
}

// bytes is what its words take.
func (e *Effect) bytes() int { return len(e.Setting.Value) + len(e.Call) + len(e.Caching) }

func (t *State) subscribed() int { return t.subs.channels + t.subs.patterns + t.subs.shards }

// mute says that most commands are refused, as to a subscriber in RESP2.
func (t *State) mute() bool { return t.proto == 2 && t.subscribed() > 0 }

// none says that the connection is as if nobody had used it.
func (t *State) none() bool {
	return !t.multi && !t.watch && !t.tracking.on && !t.monitor && t.subscribed() == 0 && !t.stray
}

// answered takes the reply to e. It is whole if needsWhole said so, else only its beginning.
func (t *State) answered(e *Reply, reply []byte) {
	ok := reply[0] == '+'
	if !t.multi && (e.Cmd == nil || !strings.HasPrefix(e.Cmd.Name, "client|")) {
		t.tracking.caching = ""
	}
	if t.multi && bytes.Equal(reply, queuedReply) {
		if e.Effect != (Effect{}) {
			t.inside.add(t.queued, e.Effect)
		}
		t.queued++
		return
	}
	switch e.Kind {
	case commandtable.ConnMulti:
		if ok {
			t.multi, t.queued, t.inside, t.refused, t.wrong = true, 0, effects{}, nil, false
		}
	case commandtable.ConnExec:
		if reply[0] != '-' || Aborted(reply) {
			t.executed()
			t.multi, t.watch, t.inside = false, false, effects{}
		}
	case commandtable.ConnDiscard:
		if ok {
			t.multi, t.watch, t.inside = false, false, effects{}
		}
	case commandtable.ConnWatch:
		if ok && !t.watch {
			t.watch, t.watched = true, 0
		}
		if ok {
			t.watched += e.Args
		}
	case commandtable.ConnUnwatch:
		t.watch = t.watch && !ok
	case commandtable.ConnMonitor:
		t.monitor = t.monitor || ok
	case commandtable.ConnNone:
		t.wrong = t.wrong || t.multi && reply[0] == '-'
	}
	if ok {
		t.apply(e.Effect)
	}
	if e.Effect.Proto != 0 && reply[0] != '-' {
		t.proto = e.Effect.Proto
	}
}

// apply is for a command that was answered OK.
func (t *State) apply(e Effect) {
	if e.Selects {
		t.db = e.DB
	}
	if e.Pauses != 0 {
		t.pauses = e.Pauses
	}
	if e.Setting.Of != client.NoSetting {
		t.settings = append(t.settings, e.Setting)
	}
	if e.Caching != "" {
		t.tracking.caching = e.Caching
	}
	if e.Tracks {
		t.tracking.on, t.tracking.bcast = e.On, e.On && e.BCast
		if e.On {
			t.tracking.redirect = e.To
		}
		t.kept.tracks(e)
	}
}

// message says whether a frame within EXEC's reply, or behind it, is a message to the client: in RESP2 an array that says so, of
// what the client has subscribed to, since a reply may look like that, too.
func (t *State) message(frame []byte) bool {
	verb, confirms := confirmation(frame)
	switch {
	case frame[0] == '>':
		return !confirms
	case frame[0] != '*' || t.proto != 2 || !isMessage(verb):
		return false
	}
	kind := messages[verb]
	for sub := range t.kept.subs {
		if sub.Kind == kind && secondText(frame, sub.Name) {
			return true
		}
	}
	return false
}

// confirmed takes a confirmation, which ends in the number of subscriptions: sharded ones, or all others together.
func (t *State) confirmed(frame []byte) {
	verb, yes := confirmation(frame)
	at := bytes.LastIndexByte(frame, ':')
	if !yes || at < 0 {
		return
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(frame[at+1:])))
	if err != nil {
		return
	}
	t.kept.confirmed(frame)
	switch strings.TrimSuffix(strings.TrimPrefix(verb, "un"), "scribe") {
	case "sub":
		t.subs.channels = n - t.subs.patterns
	case "psub", "punsub":
		t.subs.patterns = n - t.subs.channels
	default:
		t.subs.shards = n
	}
}

// confirmationsOf returns how many confirmations e gets: one for each channel that it names, or if it names none, one
// for each that is subscribed, but at least one.
func (t *State) confirmationsOf(e *Reply) int {
	if e.Args > 0 {
		return e.Args
	}
	n := t.subs.channels
	switch e.Cmd.Name {
	case "punsubscribe":
		n = t.subs.patterns
	case "sunsubscribe":
		n = t.subs.shards
	}
	return max(n, 1)
}
