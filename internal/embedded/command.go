package embedded

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// commandsFile has what Redis says in COMMAND, in RESP3, of each command that a client finds at a proxy before this
// store. A test in integration/dropin holds it to what is answered there, and writes it with -update.
//
//go:embed commands.resp
var commandsFile []byte

// entry is one command, or subcommand, of the file.
type entry struct {
	name  string // "client|kill"
	reply resp.Reply
	subs  []entry
}

// entries are the commands, in the order of the file.
var entries = sync.OnceValue(func() (all []entry) {
	for left := commandsFile; len(left) > 0; {
		var one []byte
		one, left = resp.Cut(left)
		r, _ := resp.ParseReply(one)
		all = append(all, readEntry(r))
	}
	return all
})

func readEntry(r resp.Reply) entry {
	e := entry{name: string(r.Elems[0].Text), reply: r}
	for _, sub := range r.Elems[9].Elems {
		e.subs = append(e.subs, readEntry(sub))
	}
	return e
}

// find returns the entry of a name in any letter case; nil: there is none.
func find(name string) *entry {
	within := entries()
	whole, _, isSub := strings.Cut(strings.ToLower(name), "|")
	for _, wanted := range []string{whole, strings.ToLower(name)} {
		at := slices.IndexFunc(within, func(e entry) bool { return e.name == wanted })
		if at < 0 {
			return nil
		}
		if !isSub || wanted != whole {
			return &within[at]
		}
		within = within[at].subs
	}
	return nil
}

// Command answers COMMAND and its subcommands.
func Command(p *server.Peer, args []string) {
	if len(args) == 0 {
		args = []string{"INFO"}
	}
	sub, rest := strings.ToUpper(args[0]), args[1:]
	switch {
	case sub == "INFO":
		writeEntries(p, rest)
	case sub == "COUNT" && len(rest) == 0:
		p.WriteInt(len(entries()))
	case sub == "LIST" && len(rest) == 0:
		writeNames(p)
	case sub == "DOCS":
		writeDocs(p, rest)
	case sub == "COUNT" || sub == "LIST":
		p.WriteError(fmt.Sprintf("ERR wrong number of arguments for 'command|%s' command", strings.ToLower(sub)))
	default:
		p.WriteError(fmt.Sprintf("ERR unknown subcommand '%s'. Try COMMAND HELP.", args[0]))
	}
}

// writeEntries answers COMMAND INFO [name …].
func writeEntries(p *server.Peer, names []string) {
	if len(names) == 0 {
		for _, e := range entries() {
			names = append(names, e.name)
		}
	}
	p.Block(func(w *server.Writer) {
		w.WriteLen(len(names))
		for _, name := range names {
			if e := find(name); e != nil {
				w.WriteRaw(string(inProtocol(nil, e.reply, p.Resp3)))
			} else {
				w.WriteRaw(nullArray(p.Resp3))
			}
		}
	})
}

func nullArray(resp3 bool) string {
	if resp3 {
		return "_\r\n"
	}
	return "*-1\r\n"
}

// inProtocol appends a reply that is in RESP3. In RESP2 maps and sets are arrays.
func inProtocol(out []byte, r resp.Reply, resp3 bool) []byte {
	if resp3 || !r.IsList() {
		return append(out, r.Raw...)
	}
	out = resp.AppendArray(out, len(r.Elems))
	for _, e := range r.Elems {
		out = inProtocol(out, e, resp3)
	}
	return out
}

// writeNames answers COMMAND LIST, without Redis' filters.
func writeNames(p *server.Peer) {
	var names []string
	for _, e := range entries() {
		names = append(names, e.name)
		for _, sub := range e.subs {
			names = append(names, sub.name)
		}
	}
	p.WriteStrings(names)
}

// writeDocs answers COMMAND DOCS [name …]. There is no documentation here, so redis-cli completes the names and has
// no hints.
func writeDocs(p *server.Peer, names []string) {
	var documented []string
	for _, e := range entries() {
		is := func(name string) bool { return strings.EqualFold(name, e.name) }
		if len(names) == 0 || slices.ContainsFunc(names, is) {
			documented = append(documented, e.name)
		}
	}
	p.Block(func(w *server.Writer) {
		w.WriteMapLen(len(documented))
		for _, name := range documented {
			w.WriteBulk(name)
			w.WriteMapLen(3)
			for _, word := range []string{"summary", "", "since", "1.0.0", "group", "generic"} {
				w.WriteBulk(word)
			}
		}
	})
}
