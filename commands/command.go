package commands

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Redis' replies to COMMAND and its subcommands, with the lock verbs and LOCKPROXY added. The embedded store answers all of them with its whole table,
// so each of these can work from the table too.

// asked runs the command as it came; not ok: out has the error there is instead.
func asked(c Client, args [][]byte, out []byte) (r resp.Reply, _ []byte, ok bool) {
	answer, err := c.Ask(args...)
	if err == nil {
		if _, bad := resp.ErrorLine(answer); !bad {
			if r, ok = resp.ParseReply(answer); ok {
				return r, out, true
			}
		}
	}
	return r, relay(c, answer, err, out), false
}

// commandReply runs the command as it came, and adds to what Redis replied.
func commandReply(c Client, args [][]byte, out []byte, add func(r CommandReply, out []byte) []byte) []byte {
	r, out, ok := asked(c, args, out)
	if !ok {
		return out
	}
	return add(CommandReply{Reply: r, Proto: c.Proto(), Table: c.Proxy().Embedded && len(r.Elems) > 0 && r.Elems[0].IsList()}, out)
}

// commandAll is COMMAND, and whatever subcommand is not known here.
func commandAll(c Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte {
		if len(args) > 1 {
			return append(out, r.Raw...)
		}
		return r.appendAll(out)
	})
}

func commandCount(c Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, CommandReply.appendCount)
}

func commandInfo(c Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte { return r.appendInfo(out, args) })
}

func commandDocs(c Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte { return r.appendDocs(out, args) })
}

func commandList(c Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte { return r.appendList(out, args) })
}

// commandGetKeys is COMMAND GETKEYS, and GETKEYSANDFLAGS, of a lock verb; of other commands Redis' answer.
func commandGetKeys(c Client, args [][]byte, out []byte) []byte {
	var v *Verb
	if len(args) > 2 {
		v = Lookup(args[2])
	}
	if v == nil && (len(args) < 3 || !same(args[2], strings.ToUpper(operatorCommand))) {
		reply, err := c.Ask(args...)
		return relay(c, reply, err, out)
	}
	if err := c.Admitted(); err != nil {
		return c.Fail(out, err)
	}
	switch {
	case v == nil:
		return resp.AppendError(out, noKeys)
	case !commandtable.ArityFits(v.Arity, len(args)-2):
		return resp.AppendError(out, badCall)
	case v.Wraps:
		return v.innerKeys(c, args, out)
	}
	return v.appendKeys(out, c.Proto(), args)
}

// badCall is what COMMAND GETKEYS says of a call with too few words, or too many.
const badCall = "ERR Invalid number of arguments specified for command"

// innerKeys is COMMAND GETKEYS, or GETKEYSANDFLAGS, of FENCED: the lock, and what Redis says of the command within.
func (v *Verb) innerKeys(c Client, args [][]byte, out []byte) []byte {
	inner := v.inner(args[2:])
	if len(inner) == 0 {
		return resp.AppendError(out, badCall)
	}
	if len(inner) == 1 { // Redis wants an argument
		inner = append(inner[:1:1], nil)
	}
	answer, err := c.Ask(append([][]byte{args[0], args[1]}, inner...)...)
	line, bad := resp.ErrorLine(answer)
	r, ok := resp.ParseReply(answer)
	if err != nil || bad && line != noKeys || !bad && !ok {
		return relay(c, answer, err, out)
	}
	return v.appendInnerKeys(out, c.Proto(), args, r)
}

// CommandReply is Redis' reply to COMMAND, or to one of its subcommands, to which what Redis does not have is to be added.
type CommandReply struct {
	resp.Reply
	Proto int  // the client's
	Table bool // it is COMMAND's whole table, whatever was asked, as the embedded store answers
}

// appendAll appends the reply to COMMAND.
func (r CommandReply) appendAll(out []byte) []byte {
	out = resp.AppendArray(out, len(r.Elems)+countAdded())
	for _, e := range r.Elems {
		out = append(out, e.Raw...)
	}
	for _, a := range additions() {
		if !a.isSub() {
			out = appendValue(out, r.Proto, a.entry())
		}
	}
	return out
}

// countAdded is how many commands there are that Redis does not have.
func countAdded() int { return len(verbs) + 1 } // LOCKPROXY

// appendCount appends the reply to COMMAND COUNT.
func (r CommandReply) appendCount(out []byte) []byte {
	n := len(r.Elems)
	if !r.Table {
		n = r.Int()
	}
	return resp.AppendInt(out, int64(n+countAdded()))
}

// appendInfo appends the reply to COMMAND INFO [name …].
func (r CommandReply) appendInfo(out []byte, args [][]byte) []byte {
	if len(args) == 2 {
		return r.appendAll(out)
	}
	table := r.Table && (len(r.Elems) != len(args)-2 || !sameNames(r.Reply, args[2:]))
	entries := map[string]resp.Reply{}
	for i := 0; i < len(r.Elems) && (table || len(r.Elems) < len(args)-2); i++ {
		if e := r.Elems[i]; len(e.Elems) > 0 {
			if name := lower(e.Elems[0].Text); entries[name].Raw == nil {
				entries[name] = e
			}
		}
	}
	out = resp.AppendArray(out, len(args)-2)
	for i, name := range args[2:] {
		name := lower(name)
		if at := slices.IndexFunc(additions(), func(a addition) bool { return a.name == name }); at >= 0 {
			out = appendValue(out, r.Proto, additions()[at].entry())
			continue
		}
		switch e, listed := entries[name]; {
		case !table && i < len(r.Elems):
			out = append(out, r.Elems[i].Raw...)
		case listed:
			out = append(out, e.Raw...)
		default:
			out = resp.AppendNull(out, r.Proto)
		}
	}
	return out
}

// lower is the name of a command in lower case.
func lower(name []byte) string { return strings.ToLower(string(name)) }

// sameNames says whether the reply's entries are those asked for, one for one.
func sameNames(r resp.Reply, names [][]byte) bool {
	for i, name := range names {
		if e := r.Elems[i]; !e.Null && (len(e.Elems) == 0 || !strings.EqualFold(string(e.Elems[0].Text), string(name))) {
			return false
		}
	}
	return true
}

// appendDocs appends the reply to COMMAND DOCS [name …]. The embedded store has no documentation: its commands are then listed
// without, so that redis-cli completes their names and hints the verbs.
func (r CommandReply) appendDocs(out []byte, args [][]byte) []byte {
	var pairs [][]byte
	asked := make(map[string]bool, len(args)-2)
	for _, name := range args[2:] {
		asked[lower(name)] = true
	}
	wanted := func(name string) bool { return len(args) == 2 || asked[strings.ToLower(name)] }
	if r.Table {
		for _, e := range r.Elems {
			if len(e.Elems) > 0 && wanted(string(e.Elems[0].Text)) {
				pairs = append(pairs, bareDoc(r.Proto, string(e.Elems[0].Text)))
			}
		}
	} else {
		for i := 0; i+1 < len(r.Elems); i += 2 {
			pairs = append(pairs, append(append([]byte(nil), r.Elems[i].Raw...), r.Elems[i+1].Raw...))
		}
	}
	for _, a := range additions() {
		if wanted(a.name) && (!a.isSub() || len(args) > 2) {
			pairs = append(pairs, a.appendDoc(nil, r.Proto))
		}
	}
	out = resp.AppendMap(out, r.Proto, len(pairs))
	for _, p := range pairs {
		out = append(out, p...)
	}
	return out
}

func bareDoc(proto int, name string) []byte {
	return appendValue(resp.AppendBulkString(nil, strings.ToLower(name)), proto, fields{{"summary", ""}, {"since", "1.0.0"}, {"group", "generic"}})
}

// appendList appends the reply to COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN value]; of the filters what is added fits PATTERN only.
func (r CommandReply) appendList(out []byte, args [][]byte) []byte {
	fits := func(string) bool { return len(args) == 2 }
	if len(args) == 5 && strings.EqualFold(string(args[3]), "PATTERN") {
		pattern := strings.ToLower(string(args[4]))
		fits = func(name string) bool { return lock.Glob(pattern, name) }
	}
	var names [][]byte
	for _, e := range r.Elems {
		if !r.Table {
			names = append(names, e.Raw)
		} else if name := strings.ToLower(string(e.Elems[0].Text)); fits(name) {
			names = append(names, resp.AppendBulkString(nil, name))
		}
	}
	for _, a := range additions() {
		if fits(a.name) {
			names = append(names, resp.AppendBulkString(nil, a.name))
		}
	}
	out = resp.AppendArray(out, len(names))
	for _, name := range names {
		out = append(out, name...)
	}
	return out
}

// appendKeys appends the reply to COMMAND GETKEYS, or GETKEYSANDFLAGS, of a call of the verb.
func (v *Verb) appendKeys(out []byte, proto int, args [][]byte) []byte {
	keys := v.Keys(args[2:])
	switch {
	case !v.keyed():
		return resp.AppendError(out, noKeys)
	case len(keys) == 0:
		return resp.AppendError(out, "ERR Invalid arguments specified for command")
	}
	out = resp.AppendArray(out, len(keys))
	for _, key := range keys {
		out = v.appendKey(out, proto, args, key)
	}
	return out
}

// appendKey appends one key of these replies.
func (v *Verb) appendKey(out []byte, proto int, args [][]byte, key []byte) []byte {
	if strings.EqualFold(string(args[1]), "GETKEYSANDFLAGS") {
		return appendValue(resp.AppendBulk(resp.AppendArray(out, 2), key), proto, v.keyFlags())
	}
	return resp.AppendBulk(out, key)
}

// appendInnerKeys is appendKeys of a verb that wraps a command, of which keys are what Redis says.
func (v *Verb) appendInnerKeys(out []byte, proto int, args [][]byte, keys resp.Reply) []byte {
	out = v.appendKey(resp.AppendArray(out, 1+len(keys.Elems)), proto, args, args[3])
	for _, e := range keys.Elems {
		out = append(out, e.Raw...)
	}
	return out
}
