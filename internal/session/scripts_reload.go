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
