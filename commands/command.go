package commands

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/glob"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Redis' replies to COMMAND and its subcommands, with the lock verbs and LOCKPROXY added.

// commandReply runs the command as it came, and adds to what Redis replied.
func commandReply(c *Client, args [][]byte, out []byte, add func(r CommandReply, out []byte) []byte) []byte {
	answer, err := c.askRedis(args...)
	if _, bad := resp.ErrorLine(answer); err != nil || bad || len(answer) == 0 || !c.MayHold(2*len(answer)) {
		return relay(c, answer, err, out)
	}
	return add(CommandReply{Raw: answer, Proto: c.proto(), may: c.MayHold}, out)
}

// commandAll is COMMAND, and whatever subcommand is not known here.
func commandAll(c *Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte {
		if len(args) > 1 {
			return append(out, r.Raw...)
		}
		return r.appendAll(out)
	})
}

func commandCount(c *Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, CommandReply.appendCount)
}

func commandInfo(c *Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte { return r.appendInfo(out, args) })
}

func commandDocs(c *Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte { return r.appendDocs(out, args) })
}

func commandList(c *Client, args [][]byte, out []byte) []byte {
	return commandReply(c, args, out, func(r CommandReply, out []byte) []byte { return r.appendList(out, args) })
}

// commandGetKeys is COMMAND GETKEYS, and GETKEYSANDFLAGS, of a lock verb; of other commands Redis' answer.
func commandGetKeys(c *Client, args [][]byte, out []byte) []byte {
	var v *Verb
	if len(args) > 2 {
		v = Lookup(args[2])
	}
	if v == nil && (len(args) < 3 || !same(args[2], strings.ToUpper(operatorCommand))) {
		reply, err := c.askRedis(args...)
		return relay(c, reply, err, out)
	}
	if err := c.Access.Admitted(); err != nil {
		return c.Failed(out, err)
	}
	switch {
	case v == nil:
		return resp.AppendError(out, noKeys)
	case !commandtable.ArityFits(v.Arity, len(args)-2):
		return resp.AppendError(out, badCall)
	case v.Wraps:
		return v.innerKeys(c, args, out)
	}
	return v.appendKeys(out, c.proto(), args)
}

// badCall is what COMMAND GETKEYS says of a call with too few words, or too many.
const badCall = "ERR Invalid number of arguments specified for command"

// innerKeys is COMMAND GETKEYS, or GETKEYSANDFLAGS, of FENCED: the lock, and what Redis says of the command within.
func (v *Verb) innerKeys(c *Client, args [][]byte, out []byte) []byte {
	inner := v.inner(args[2:])
	if len(inner) == 0 {
		return resp.AppendError(out, badCall)
	}
	if len(inner) == 1 { // Redis wants an argument
		inner = append(inner[:1:1], nil)
	}
	answer, err := c.askRedis(append([][]byte{args[0], args[1]}, inner...)...)
	line, bad := resp.ErrorLine(answer)
	r, ok := resp.Outline(answer)
	if err != nil || bad && line != noKeys || !bad && !ok {
		return relay(c, answer, err, out)
	}
	return v.appendInnerKeys(out, c.proto(), args, r)
}

// CommandReply is Redis' reply to COMMAND, or to one of its subcommands, to which what Redis does not have is to be
// added.
type CommandReply struct {
	Raw   []byte
	Proto int // the client's

	may func(n int) bool // says whether so many bytes may be held
}

// appendAll appends the reply to COMMAND.
func (r CommandReply) appendAll(out []byte) []byte {
	n, body, _ := resp.Open(r.Raw)
	out = append(resp.AppendArray(out, n+len(additions())), body...)
	for _, a := range additions() {
		out = appendValue(out, r.Proto, a.entry())
	}
	return out
}

// appendCount appends the reply to COMMAND COUNT.
func (r CommandReply) appendCount(out []byte) []byte {
	count, _ := resp.Outline(r.Raw)
	return resp.AppendInt(out, int64(count.Int()+len(additions())))
}

// appendInfo appends the reply to COMMAND INFO [name …].
func (r CommandReply) appendInfo(out []byte, args [][]byte) []byte {
	if len(args) == 2 {
		return r.appendAll(out)
	}
	names := args[2:]
	_, left, _ := resp.Open(r.Raw)
	out, counted := resp.AppendArray(out, len(names)), 0
	for _, name := range names {
		var e []byte
		name := lower(name)
		e, left = resp.Cut(left)
		at := slices.IndexFunc(additions(), func(a addition) bool { return a.name == name })
		switch {
		case at >= 0:
			out = appendValue(out, r.Proto, additions()[at].entry())
		case e != nil:
			out = append(out, e...)
		default:
			out = resp.AppendNull(out, r.Proto)
		}
		if len(out)-counted > countStep {
			if counted = len(out); !r.may(len(r.Raw) + counted) {
				return out
			}
		}
	}
	return out
}

// countStep is after how many bytes of an answer it is asked whether more may be held.
const countStep = 64 << 10

// lower is the name of a command in lower case.
func lower(name []byte) string { return strings.ToLower(string(name)) }

// appendDocs appends the reply to COMMAND DOCS [name …].
func (r CommandReply) appendDocs(out []byte, args [][]byte) []byte {
	asked := make(map[string]bool)
	for _, name := range args[2:] {
		asked[lower(name)] = true
	}
	var added [][]byte
	for _, a := range additions() {
		if len(args) == 2 || asked[a.name] {
			added = append(added, a.appendDoc(nil, r.Proto))
		}
	}
	n, body, _ := resp.Open(r.Raw)
	out = append(resp.AppendMap(out, r.Proto, n/2+len(added)), body...)
	for _, pair := range added {
		out = append(out, pair...)
	}
	return out
}

// appendList appends the reply to COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN value]; of the filters what is added
// fits PATTERN only.
func (r CommandReply) appendList(out []byte, args [][]byte) []byte {
	fits := func(string) bool { return len(args) == 2 }
	if len(args) == 5 && strings.EqualFold(string(args[3]), "PATTERN") {
		fits = glob.New(strings.ToLower(string(args[4]))).Matches
	}
	n, names, _ := resp.Open(r.Raw)
	var added []byte
	for _, a := range additions() {
		if fits(a.name) {
			n, added = n+1, resp.AppendBulkString(added, a.name)
		}
	}
	return append(append(resp.AppendArray(out, n), names...), added...)
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
	n, body, _ := resp.Open(keys.Raw)
	return append(v.appendKey(resp.AppendArray(out, 1+n), proto, args, args[3]), body...)
}
