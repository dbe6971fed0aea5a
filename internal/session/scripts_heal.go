package session

import (
	"bytes"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// heal loads again what Redis has lost, by a restart or a failover, and the proxy has seen: scripts to which EVALSHA
// was answered NOSCRIPT. Commands so answered have not run, so those of them that nothing ran behind are sent again,
// in their order, once. All other replies stand: a NOSCRIPT before a command that did run is the client's to deal with.
func (s *Session) heal(start int, ends []int, seen uint64, send func() time.Duration) {
	b := s.batch
	shas, wanted := b.noScripts(start, ends)
	if len(wanted) == 0 {
		return
	}
	if s.srv.o.Cluster != nil {
		s.sendAgain(start, ends, s.healNodes(shas, seen), send)
		return
	}
	known := s.srv.reload(s.srv.o.Node, "", wanted, seen)
	first, worth := len(shas), false
	for first > 0 && known[shas[first-1]] != mayHaveRun {
		first--
		worth = worth || known[shas[first]] == loadedAgain
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

// fate is what is known of a script to which NOSCRIPT was answered.
type fate byte

const (
	mayHaveRun  fate = iota // it is there, or nobody knows: the script itself may have said NOSCRIPT
	notThere                // Redis does not have it
	loadedAgain             // and did not, until now
)

// reload has a node, known as where, load scripts it has lost, as the service account: the client has been let run them,
// or it would have been told NOPERM. seen is from before the client's commands were sent. Scripts that nobody has shown
// are not asked for.
func (s *Server) reload(node *upstream.Node, where string, shas []string, seen uint64) map[string]fate {
	m := s.memory
	m.loading.Lock()
	defer m.loading.Unlock()
	fates := make(map[string]fate, len(shas))
	bodies := make(map[string]string)
	ask := []string{"SCRIPT", "EXISTS"}
	for _, sha := range shas {
		if _, twice := fates[sha]; twice {
			continue
		}
		fates[sha] = mayHaveRun
		b, known := m.body(sha)
		switch {
		case known && b.again[where] > seen: // for another client, since
			fates[sha] = loadedAgain
		case known:
			bodies[sha] = b.text
			fallthrough
		default:
			ask = append(ask, sha)
		}
	}
	if len(bodies) == 0 {
		return fates
	}
	service := s.o.Service
	service.DB, service.Proto = 0, 2
	p, err := node.Open(s.ctx, service)
	if err != nil {
		return fates
	}
	defer p.Release()
	there, err := askOver(p, ask...)
	r, ok := resp.ParseReply(there)
	if err != nil || !ok || len(r.Elems) != len(ask)-2 {
		return fates
	}
	for i, sha := range ask[2:] {
		if string(r.Elems[i].Text) != "0" {
			continue
		}
		fates[sha] = notThere
		if body, known := bodies[sha]; known {
			if answer, err := askOver(p, "SCRIPT", "LOAD", body); err == nil && bytes.Contains(answer, []byte(sha)) {
				m.loaded(sha, where)
				telemetry.ScriptsReloaded.Add(1)
				fates[sha] = loadedAgain
			}
		}
	}
	return fates
}

func askOver(p *upstream.Pipe, args ...string) ([]byte, error) {
	var got gathered
	err := p.Ask(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, args...)}, Sink: &got}, questionTime)
	return got, err
}
