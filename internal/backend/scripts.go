package backend

import (
	"bytes"
	"iter"
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
		switch kind := c.Script; {
		case kind == commandtable.NoScript:
		case !kind.Runs():
			known = false
		default:
			runs = true
			if key = m.Key(kind, b.word(i, 1)); known {
				known = m.IsQuick(key)
			}
		}
		b.keys = append(b.keys, key)
	}
	return runs, known
}

func (b *Batch) flushes() bool {
	return slices.ContainsFunc(b.cmds, func(c *commandtable.Command) bool { return c.Script == commandtable.FlushesScripts })
}

// answers are the replies to the commands of the run, that begin at start, and end there counted from it.
func (b *Batch) answers(start int, ends []int) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		from := start
		for i, end := range ends {
			answer := b.Bytes[from : start+end]
			if from = start + end; !yield(i, answer) {
				return
			}
		}
	}
}

// lostReply is what a client is told whose connection was lost before the reply.
const lostReply = "-" + client.LostLine + "\r\n"

// learnScripts notes what the run's replies tell: which scripts are quick, the bodies of those Redis has taken, and
// that it has forgotten all. A body is believed only when Redis ran or loaded it for this very client without an error:
// a script that the client was not allowed to run must not become known by its hash.
func (b *Batch) learnScripts(m *scriptcache.Cache, start int, ends []int, quick bool, seen uint64) {
	if ends == nil && b.flushes() {
		m.Clear()
	}
	for i, answer := range b.answers(start, ends) {
		kind := b.cmds[i].Script
		if answer[0] == '-' || answer[0] == '!' {
			if string(answer) == lostReply && kind == commandtable.FlushesScripts {
				m.Clear()
			}
			continue
		}
		switch kind {
		case commandtable.RunsBody:
			m.Remember(b.word(i, 1), b.keys[i], seen)
		case commandtable.LoadsScript:
			m.Remember(b.word(i, 2), 0, seen)
		case commandtable.FlushesScripts:
			m.Clear()
			seen = m.Version()
		}
		if quick && kind.Runs() {
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
// none. Where the client's own words say NOSCRIPT it may be the script that said so.
func (b *Batch) noScripts(start int, ends []int) (shas []string) {
	for i, answer := range b.answers(start, ends) {
		sha := b.word(i, 1)
		switch {
		case b.cmds[i].Script != commandtable.RunsSHA, len(sha) != 40:
			continue
		case !bytes.HasPrefix(answer, []byte(noScriptReply)), bytes.Contains(b.run[i], []byte("NOSCRIPT")):
			continue
		}
		if shas == nil {
			shas = make([]string, len(ends))
		}
		shas[i] = strings.ToLower(string(sha))
	}
	return shas
}

// sentAgain chooses the commands of a run that are sent again, by the state of each one's script: those whose script
// has been loaded again, unless something behind them has run in their slot. slotOf is the slot of a command's keys;
// false: it has none, or several.
func sentAgain(states []scriptcache.State, slotOf func(i int) (slot int, one bool)) (again []int) {
	behind := map[int]bool{} // slots in which something ran
	for i, state := range slices.Backward(states) {
		slot, one := slotOf(i)
		switch state {
		case scriptcache.Unknown: // it ran, perhaps
			if !one {
				slices.Reverse(again)
				return again
			}
			behind[slot] = true
		case scriptcache.Loaded:
			if one && !behind[slot] {
				again = append(again, i)
			}
		}
	}
	slices.Reverse(again)
	return again
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
