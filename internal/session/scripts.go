package session

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// forwardScripts sends a run that has scripts in it. Redis does not read from the connection that runs a script, and
// answers all others -BUSY once that takes too long: so the run never shares a connection with ordinary commands, and
// with other scripts only if its own are all known to be quick.
func (s *Session) forwardScripts(big bool) {
	b, m := s.batch, s.srv.scripts
	runs, known := b.findScripts(m)
	seen := m.Version()
	if b.flushes() {
		m.FlushBegins()
		defer m.FlushEnds()
	}
	start := len(b.out)
	b.gone = false
	send := func() time.Duration { return s.pipes.way.sendScripts(big, runs, known) }
	quick := send() < scriptcache.QuickTime
	if !quick {
		m.ForgetQuick(b.keys)
	}
	if known && quick && !b.holds(start, noScriptReply) {
		return
	}
	ends := b.cutReplies(start)
	s.learnScripts(start, ends, quick, seen)
	if ends != nil {
		s.reload(start, ends, seen, send)
	}
}

// sendScripts sends the run over the connection that suits it, and says how long Redis took.
func (u *single) sendScripts(big, runs, known bool) time.Duration {
	switch {
	case runs && !big:
		return u.forwardLane(known)
	case big:
		return timed(u.forwardBig)
	default:
		return timed(u.forwardShared)
	}
}

// sendScripts implements way.
func (u *clustered) sendScripts(big, runs, known bool) time.Duration {
	if runs && !big {
		return u.forwardLane(known)
	}
	return u.forwardWith(u.executor(), big)
}

func timed(run func()) time.Duration {
	began := time.Now()
	run()
	return time.Since(began)
}

// findScripts finds the keys of the run's scripts. runs: it runs some; known: all of these are known to be quick, and
// there is nothing else about scripts in the run.
func (b *batch) findScripts(m *scriptcache.Cache) (runs, known bool) {
	b.keys, known = b.keys[:0], true
	for i, c := range b.cmds {
		var key scriptcache.Key
		switch {
		case c == nil || c.Script == commandtable.NoScript:
		case !c.Script.Runs():
			known = false
		default:
			runs = true
			if key = m.Key(c.Script, argument(b.run[i], 1)); known {
				known = m.IsQuick(key)
			}
		}
		b.keys = append(b.keys, key)
	}
	return runs, known
}

func (b *batch) flushes() bool {
	for _, c := range b.cmds {
		if c != nil && c.Script == commandtable.FlushesScripts {
			return true
		}
	}
	return false
}

// holds says whether the run's replies, from start on, may have one that begins so.
func (b *batch) holds(start int, text string) bool {
	return !b.gone && bytes.Contains(b.out[start:], []byte(text))
}

// cutReplies finds where each of the run's replies ends, counted from start; nil when not all are there.
func (b *batch) cutReplies(start int) (ends []int) {
	if b.gone {
		return nil
	}
	var scan resp.Scanner
	for pos := start; pos < len(b.out); {
		n, done, err := scan.Scan(b.out[pos:])
		if err != nil || !done {
			return nil
		}
		pos += n
		ends = append(ends, pos-start)
	}
	if len(ends) != len(b.run) {
		return nil
	}
	return ends
}

// learnScripts notes what the run's replies tell: which scripts are quick, the bodies of those Redis has taken, and
// that it has forgotten all. A body is believed only when Redis ran or loaded it for this very client without an error:
// one it was not let run must not come in by its hash.
func (s *Session) learnScripts(start int, ends []int, quick bool, seen uint64) {
	b, m := s.batch, s.srv.scripts
	if ends == nil {
		if b.flushes() {
			m.Clear()
		}
		return
	}
	from := 0
	for i, c := range b.cmds {
		answer := b.out[start+from : start+ends[i]]
		from = ends[i]
		if c == nil || c.Script == commandtable.NoScript {
			continue
		}
		if answer[0] == '-' || answer[0] == '!' {
			if c.Script == commandtable.FlushesScripts && string(answer) == "-"+lostLine+"\r\n" {
				m.Clear()
			}
			continue
		}
		switch c.Script {
		case commandtable.RunsBody:
			m.Remember(argument(b.run[i], 1), b.keys[i], seen)
		case commandtable.LoadsScript:
			m.Remember(argument(b.run[i], 2), 0, seen)
		case commandtable.FlushesScripts:
			m.Clear()
			seen = m.Version()
		}
		if quick && c.Script.Runs() {
			m.AddQuick(b.keys[i])
		}
	}
}

// argument is the i-th argument of a command as it goes over the wire, nil when there is none; 0 is its name.
func argument(raw []byte, i int) []byte {
	_, rest, _ := bytes.Cut(raw, []byte("\r\n"))
	for ; ; i-- {
		if len(rest) == 0 || rest[0] != '$' {
			return nil
		}
		n, end := 0, 1
		for ; end < len(rest) && rest[end] != '\r'; end++ {
			n = n*10 + int(rest[end]-'0')
		}
		from := end + 2
		if n < 0 || from+n+2 > len(rest) {
			return nil
		}
		if i == 0 {
			return rest[from : from+n]
		}
		rest = rest[from+n+2:]
	}
}

// A client that was refused SCRIPT DEBUG may send its script all the same, as redis-cli --ldb does. In the debugger it would
// have been run on a fork of Redis, and thrown away: here it must not be run at all.

const notDebugged = "ERR SCRIPT DEBUG is not supported by lockproxy: this script was not run"

// notDebuggedRow stands for a script's command then.
var notDebuggedRow = &commandtable.Command{Name: "eval", Refusal: true, Barred: true, Here: true, Line: notDebugged}

// refuseDebug is SCRIPT DEBUG YES|SYNC|NO.
func (s *Session) refuseDebug(line string, args [][]byte) {
	if len(args) == 3 {
		s.settings.debugs = equalFold(args[2], "YES") || equalFold(args[2], "SYNC") || s.settings.debugs && !equalFold(args[2], "NO")
	}
	s.error(line)
}

// undebugged is c, or in place of a script what refuses it. Functions have no debugger: Redis runs them for real, too.
func (s *Session) undebugged(c *commandtable.Command, run answer) (*commandtable.Command, answer) {
	switch c.Script {
	case commandtable.RunsBody, commandtable.RunsSHA:
		return notDebuggedRow, func(s *Session, _ [][]byte) { s.error(notDebugged) }
	}
	return c, run
}

// noScriptReply is how Redis begins to say that it does not have a script; a script may say so too.
const noScriptReply = "-NOSCRIPT "

// reload loads again what Redis has lost, by a restart or a failover, and the proxy has seen: scripts to which EVALSHA
// was answered NOSCRIPT. Commands so answered have not run, so those of them that nothing ran behind are sent again,
// in their order, once. All other replies stand: a NOSCRIPT before a command that did run is the client's to deal with.
func (s *Session) reload(start int, ends []int, seen uint64, send func() time.Duration) {
	b := s.batch
	shas := b.noScripts(start, ends)
	if shas == nil {
		return
	}
	s.pipes.way.reload(start, ends, shas, seen, send)
}

func (u *single) reload(start int, ends []int, shas []string, seen uint64, send func() time.Duration) {
	s, b := u.s, u.s.batch
	wanted := slices.DeleteFunc(slices.Clone(shas), func(sha string) bool { return sha == "" })
	known := s.srv.reload(u.node, "", wanted, seen)
	first, worth := len(shas), false
	for first > 0 && known[shas[first-1]] != scriptcache.Unknown {
		first--
		worth = worth || known[shas[first]] == scriptcache.Loaded
	}
	if !worth || s.guard.Over() {
		return
	}
	from := start
	if first > 0 {
		from += ends[first-1]
	}
	b.out = b.out[:from]
	run, cmds := b.run, b.cmds
	b.run, b.cmds = run[first:], cmds[first:]
	send()
	b.run, b.cmds = run, cmds
}

// noScripts finds the commands that were answered NOSCRIPT: the SHA1 of each, "" for other commands; nil: there are none.
func (b *batch) noScripts(start int, ends []int) (shas []string) {
	from := 0
	for i, c := range b.cmds {
		answer := b.out[start+from : start+ends[i]]
		from = ends[i]
		if c == nil || c.Script != commandtable.RunsSHA || !bytes.HasPrefix(answer, []byte(noScriptReply)) {
			continue
		}
		if bytes.Contains(b.run[i], []byte("NOSCRIPT")) { // it may be the script that said so, in the client's words
			continue
		}
		sha := argument(b.run[i], 1)
		if len(sha) != 40 {
			continue
		}
		if shas == nil {
			shas = make([]string, len(ends))
		}
		shas[i] = strings.ToLower(string(sha))
	}
	return shas
}

// reload has a node, known as where, load scripts that it has lost.
func (s *Server) reload(node *upstream.Node, where string, shas []string, seen uint64) map[string]scriptcache.State {
	service := s.o.Service
	service.DB, service.Proto = 0, 2
	open := func() (scriptcache.Ask, func(), error) {
		p, err := node.Open(s.ctx, service)
		if err != nil {
			return nil, nil, err
		}
		ask := func(words ...string) ([]byte, error) {
			var got backend.Gathered
			err := p.Ask(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}, Sink: &got}, backend.QuestionTime)
			return got, err
		}
		return ask, p.Release, nil
	}
	return s.scripts.Reload(open, where, shas, seen)
}

// mustLogIn says that Redis refuses the client's commands until it has authenticated: no further connection is made for them.
func (s *Session) mustLogIn() bool {
	return s.ident.User == "" && s.ident.Password == "" && (s.srv.access.mustAuth.Load() || s.refused() != nil)
}
