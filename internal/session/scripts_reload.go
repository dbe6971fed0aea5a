package session

import (
	"bytes"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// noScriptReply is how Redis begins to say that it does not have a script; a script may say so too.
const noScriptReply = "-NOSCRIPT "

// reload loads again what Redis has lost, by a restart or a failover, and the proxy has seen: scripts to which EVALSHA
// was answered NOSCRIPT. Commands so answered have not run, so those of them that nothing ran behind are sent again,
// in their order, once. All other replies stand: a NOSCRIPT before a command that did run is the client's to deal with.
func (s *Session) reload(start int, ends []int, seen uint64, send func() time.Duration) {
	b := s.batch
	shas, wanted := b.noScripts(start, ends)
	if len(wanted) == 0 {
		return
	}
	if s.srv.o.Cluster != nil {
		s.sendAgain(start, ends, s.reloadNodes(shas, seen), send)
		return
	}
	known := s.srv.reload(s.srv.o.Node, "", wanted, seen)
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

// noScripts finds the commands that were answered NOSCRIPT: the SHA1 of each, "" for other commands, and all of them.
func (b *batch) noScripts(start int, ends []int) (shas, wanted []string) {
	shas = make([]string, len(ends))
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
		shas[i] = strings.ToLower(string(sha))
		wanted = append(wanted, shas[i])
	}
	return shas, wanted
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
			var got gathered
			err := p.Ask(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}, Sink: &got}, questionTime)
			return got, err
		}
		return ask, p.Release, nil
	}
	return s.scripts.Reload(open, where, shas, seen)
}

// scriptLane is a session's way to the quick lane, open from its first quick script on.
type scriptLane struct {
	pipe *upstream.Pipe
	lane *scriptcache.Lane
}

// leave gives the session's way to the quick lane back.
func (w *scriptLane) leave() {
	if w.pipe == nil {
		return
	}
	w.pipe.Release()
	w.lane.Leave()
	*w = scriptLane{}
}

// forwardLane sends a run that has scripts in it, and says how long Redis took. Where Redis is out of reach, or gives no
// further connection, the run goes the way of ordinary commands: it is no worse off then than on one connection.
func (s *Session) forwardLane(quick bool) time.Duration {
	main, err := s.pipe()
	if err != nil || !main.Connected() || s.mustLogIn() {
		return s.timed(main, err)
	}
	if quick && s.openLane() && !s.pipes.lane.lane.Stuck() {
		return s.forwardQuick()
	}
	id, free := s.srv.lanes.Take(s.ident)
	if free {
		defer s.srv.lanes.GiveBack(id)
		if p, err := s.srv.o.Node.Open(s.srv.ctx, id); err == nil {
			defer p.Release()
			return s.timed(p, nil)
		}
	} else if s.openLane() {
		return s.forwardQuick()
	}
	return s.timed(main, nil)
}

// mustLogIn says that Redis refuses the client's commands until it has authenticated: no further connection is made for them.
func (s *Session) mustLogIn() bool {
	return s.ident.User == "" && s.ident.Password == "" && (s.srv.access.mustAuth.Load() || s.refused() != nil)
}

func (s *Session) timed(p *upstream.Pipe, err error) time.Duration {
	began := time.Now()
	s.forwardOver(p, err)
	return time.Since(began)
}

// openLane opens the quick lane, and says whether it can be used.
func (s *Session) openLane() bool {
	if s.pipes.lane.pipe == nil {
		lane := s.srv.lanes.Join(s.ident)
		p, err := s.srv.o.Node.Open(s.srv.ctx, lane.ID())
		if err != nil {
			lane.Leave()
			return false
		}
		s.pipes.lane = scriptLane{pipe: p, lane: lane}
	}
	return s.pipes.lane.pipe.Connected()
}

// forwardQuick sends the run over the quick lane.
func (s *Session) forwardQuick() time.Duration {
	return s.pipes.lane.lane.Timed(func() { s.forwardOver(s.pipes.lane.pipe, nil) })
}
