package backend

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// forwardScripts sends a run that has scripts in it. Redis does not read from the connection that runs a script, and
// answers all others -BUSY once that takes too long: so the run never shares a connection with ordinary commands, and
// with other scripts only if its own are all known to be quick.
func (f *Forwarder) forwardScripts(b *Batch, over way) {
	m := f.Scripts
	runs, known := b.findScripts(m)
	seen := m.Version()
	if b.flushes() {
		m.FlushBegins()
		defer m.FlushEnds()
	}
	start := len(b.Bytes)
	b.Gone = false
	send := func() time.Duration {
		if runs && over == shared {
			return f.path.forwardScripts(b, known)
		}
		return timed(func() { f.path.forward(b, over) })
	}
	quick := send() < scriptcache.QuickTime
	if !quick {
		m.ForgetQuick(b.keys)
	}
	if known && quick && !b.holds(start, noScriptReply) {
		return
	}
	ends := b.cutReplies(start)
	b.learnScripts(m, start, ends, quick, seen)
	if ends == nil {
		return
	}
	if shas := b.noScripts(start, ends); shas != nil {
		f.path.reload(b, lostScripts{start: start, ends: ends, shas: shas, seen: seen}, send)
	}
}

func timed(run func()) time.Duration {
	began := time.Now()
	run()
	return time.Since(began)
}

// findScripts finds the keys of the run's scripts. runs: the run has scripts to run; known: all of these are known to
// be quick, and no other command about scripts is in the run.
func (b *Batch) findScripts(m *scriptcache.Cache) (runs, known bool) {
	b.keys, known = b.keys[:0], true
	for i, c := range b.cmds {
		var key scriptcache.Key
		switch {
		case c.Script == commandtable.NoScript:
		case !c.Script.Runs():
			known = false
		default:
			runs = true
			if key = m.Key(c.Script, b.word(i, 1)); known {
				known = m.IsQuick(key)
			}
		}
		b.keys = append(b.keys, key)
	}
	return runs, known
}

func (b *Batch) flushes() bool {
	return slices.ContainsFunc(b.cmds, func(c *commandtable.Command) bool {
		return c.Script == commandtable.FlushesScripts
	})
}

// learnScripts notes what the run's replies tell: which scripts are quick, the bodies of those Redis has taken, and
// that it has forgotten all. A body is believed only when Redis ran or loaded it for this very client without an error:
// a script that the client was not allowed to run must not become known by its hash.
func (b *Batch) learnScripts(m *scriptcache.Cache, start int, ends []int, quick bool, seen uint64) {
	if ends == nil {
		if b.flushes() {
			m.Clear()
		}
		return
	}
	from := 0
	for i, c := range b.cmds {
		answer := b.Bytes[start+from : start+ends[i]]
		from = ends[i]
		if c.Script == commandtable.NoScript {
			continue
		}
		if answer[0] == '-' || answer[0] == '!' {
			if c.Script == commandtable.FlushesScripts && string(answer) == "-"+client.LostLine+"\r\n" {
				m.Clear()
			}
			continue
		}
		switch c.Script {
		case commandtable.RunsBody:
			m.Remember(b.word(i, 1), b.keys[i], seen)
		case commandtable.LoadsScript:
			m.Remember(b.word(i, 2), 0, seen)
		case commandtable.FlushesScripts:
			m.Clear()
			seen = m.Version()
		}
		if quick && c.Script.Runs() {
			m.AddQuick(b.keys[i])
		}
	}
}

// word is the n-th word of the run's i-th command, nil when there is none; 0 is its name.
func (b *Batch) word(i, n int) []byte {
	if words := b.nodes.args[i]; n < len(words) {
		return words[n]
	}
	return nil
}

// noScriptReply begins Redis' error for a script that it does not have; a script may return such an error, too.
const noScriptReply = "-NOSCRIPT "

// lostScripts are the commands of a run that were answered NOSCRIPT, perhaps because Redis has lost scripts, in a
// restart or a failover, that the proxy has seen. They have not run. Those after which nothing ran are sent again, once
// and in their order, when their scripts have been loaded again. All other replies stand: a NOSCRIPT before a command
// that did run is for the client to deal with.
type lostScripts struct {
	start int      // where in Batch.Out the run's replies begin
	ends  []int    // where each of them ends, from there
	shas  []string // the SHA1 of each command that was answered NOSCRIPT, "" for others
	seen  uint64   // scriptcache.Cache.Version before the run was sent
}

// noScripts finds the commands that were answered NOSCRIPT: the SHA1 of each, "" for other commands; nil: there are
// none.
func (b *Batch) noScripts(start int, ends []int) (shas []string) {
	from := 0
	for i, c := range b.cmds {
		answer := b.Bytes[start+from : start+ends[i]]
		from = ends[i]
		if c.Script != commandtable.RunsSHA || !bytes.HasPrefix(answer, []byte(noScriptReply)) {
			continue
		}
		if bytes.Contains(b.run[i], []byte("NOSCRIPT")) { // it may be the script that said so, in the client's words
			continue
		}
		sha := b.word(i, 1)
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

// load loads scripts again at a node that has lost them; the cache knows the node as where.
func (c *Common) load(node *upstream.Node, where string, shas []string, seen uint64) map[string]scriptcache.State {
	open := func() (scriptcache.Ask, func(), error) {
		p, err := node.Open(c.Context, c.AsService())
		if err != nil {
			return nil, nil, err
		}
		ask := func(words ...string) ([]byte, error) {
			return p.Ask(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}}, QuestionTime)
		}
		return ask, p.Release, nil
	}
	return c.Scripts.Reload(open, where, shas, seen)
}
