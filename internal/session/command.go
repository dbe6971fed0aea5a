package session

import (
	"path"
	"strings"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Redis' replies to COMMAND and its subcommands, with the lock verbs added. The embedded store answers all of them
// with its whole table, so each of these can work from the table too.

// asked runs the command as it came. It answers an error itself, and then says so.
func (s *Session) asked(args [][]byte) (r resp.Reply, ok bool) {
	answer, err := s.askRaw(resp.Command(args))
	if err == nil {
		if _, bad := resp.ErrorLine(answer); !bad {
			if r, ok = resp.ParseReply(answer); ok {
				return r, true
			}
		}
	}
	s.relay(answer, err)
	return r, false
}

// isTable says whether a reply is COMMAND's whole table, whatever was asked.
func (s *Session) isTable(r resp.Reply) bool {
	return s.srv.o.Embedded && len(r.Elems) > 0 && r.Elems[0].IsList()
}

// commandAll is COMMAND, and whatever subcommand is not known here.
func (s *Session) commandAll(args [][]byte) {
	r, ok := s.asked(args)
	if !ok {
		return
	}
	if len(args) > 1 {
		s.batch.out = append(s.batch.out, r.Raw...)
		return
	}
	s.batch.out = s.appendTable(s.batch.out, r)
}

func (s *Session) appendTable(out []byte, r resp.Reply) []byte {
	verbs := commands.Verbs()
	out = resp.AppendArray(out, len(r.Elems)+len(verbs))
	for _, e := range r.Elems {
		out = append(out, e.Raw...)
	}
	for _, v := range verbs {
		out = v.AppendEntry(out, s.ident.Proto)
	}
	return out
}

func (s *Session) commandCount(args [][]byte) {
	r, ok := s.asked(args)
	if !ok {
		return
	}
	n := len(r.Elems)
	if !s.isTable(r) {
		n = resp.Digits(r.Text)
	}
	s.batch.out = resp.AppendInt(s.batch.out, int64(n+len(commands.Verbs())))
}

// commandInfo is COMMAND INFO [name …].
func (s *Session) commandInfo(args [][]byte) {
	r, ok := s.asked(args)
	if !ok {
		return
	}
	if len(args) == 2 {
		s.batch.out = s.appendTable(s.batch.out, r)
		return
	}
	table := s.isTable(r) && (len(r.Elems) != len(args)-2 || !sameNames(r, args[2:]))
	out := resp.AppendArray(s.batch.out, len(args)-2)
	for i, name := range args[2:] {
		if v := commands.Lookup(name); v != nil {
			out = v.AppendEntry(out, s.ident.Proto)
			continue
		}
		switch e := entryOf(r, name); {
		case !table && i < len(r.Elems):
			out = append(out, r.Elems[i].Raw...)
		case e != nil:
			out = append(out, e.Raw...)
		default:
			out = resp.AppendNull(out, s.ident.Proto)
		}
	}
	s.batch.out = out
}

// sameNames says whether the reply's entries are those asked for, one for one.
func sameNames(r resp.Reply, names [][]byte) bool {
	for i, name := range names {
		if e := r.Elems[i]; !e.Null && (len(e.Elems) == 0 || !strings.EqualFold(string(e.Elems[0].Text), string(name))) {
			return false
		}
	}
	return true
}

// entryOf finds a command's entry in the whole table.
func entryOf(table resp.Reply, name []byte) *resp.Reply {
	for i, e := range table.Elems {
		if len(e.Elems) > 0 && strings.EqualFold(string(e.Elems[0].Text), string(name)) {
			return &table.Elems[i]
		}
	}
	return nil
}

// commandDocs is COMMAND DOCS [name …]. The embedded store has no documentation: its commands are then listed
// without, so that redis-cli completes their names and hints the verbs.
func (s *Session) commandDocs(args [][]byte) {
	r, ok := s.asked(args)
	if !ok {
		return
	}
	var pairs [][]byte
	wanted := func(name string) bool {
		for _, a := range args[2:] {
			if strings.EqualFold(string(a), name) {
				return true
			}
		}
		return len(args) == 2
	}
	if s.isTable(r) {
		for _, e := range r.Elems {
			if len(e.Elems) > 0 && wanted(string(e.Elems[0].Text)) {
				pairs = append(pairs, s.bareDoc(string(e.Elems[0].Text)))
			}
		}
	} else {
		for i := 0; i+1 < len(r.Elems); i += 2 {
			pairs = append(pairs, append(append([]byte(nil), r.Elems[i].Raw...), r.Elems[i+1].Raw...))
		}
	}
	for _, v := range commands.Verbs() {
		if wanted(v.Name) {
			pairs = append(pairs, v.AppendDoc(nil, s.ident.Proto))
		}
	}
	out := resp.AppendMap(s.batch.out, s.ident.Proto, len(pairs))
	for _, p := range pairs {
		out = append(out, p...)
	}
	s.batch.out = out
}

func (s *Session) bareDoc(name string) []byte {
	out := resp.AppendBulkString(nil, strings.ToLower(name))
	out = resp.AppendMap(out, s.ident.Proto, 3)
	for _, field := range [][2]string{{"summary", ""}, {"since", "1.0.0"}, {"group", "generic"}} {
		out = resp.AppendBulkString(out, field[0])
		out = resp.AppendBulkString(out, field[1])
	}
	return out
}

// commandList is COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN value]; of the filters a lock verb fits PATTERN only.
func (s *Session) commandList(args [][]byte) {
	r, ok := s.asked(args)
	if !ok {
		return
	}
	fits := func(string) bool { return len(args) == 2 }
	if len(args) == 5 && strings.EqualFold(string(args[3]), "PATTERN") {
		pattern := strings.ToLower(string(args[4]))
		fits = func(name string) bool {
			match, err := path.Match(pattern, name)
			return err == nil && match
		}
	}
	var names [][]byte
	for _, e := range r.Elems {
		if !s.isTable(r) {
			names = append(names, e.Raw)
		} else if name := strings.ToLower(string(e.Elems[0].Text)); fits(name) {
			names = append(names, resp.AppendBulkString(nil, name))
		}
	}
	for _, v := range commands.Verbs() {
		if name := strings.ToLower(v.Name); fits(name) {
			names = append(names, resp.AppendBulkString(nil, name))
		}
	}
	s.batch.out = appendList(s.batch.out, names)
}

// commandGetKeys is COMMAND GETKEYS, and GETKEYSANDFLAGS, of a lock verb; of other commands Redis' answer.
func (s *Session) commandGetKeys(args [][]byte) {
	var v *commands.Verb
	if len(args) > 2 {
		v = commands.Lookup(args[2])
	}
	if v == nil {
		s.relay(s.askRaw(resp.Command(args)))
		return
	}
	if err := s.refused(); err != nil {
		s.fail(err)
		return
	}
	if v.Wraps && commandtable.ArityFits(v.Arity, len(args)-2) {
		s.fencedKeys(v, args)
		return
	}
	if !commandtable.ArityFits(v.Arity, len(args)-2) {
		s.error("ERR Invalid number of arguments specified for command")
		return
	}
	keys := v.Keys(args[2:])
	switch {
	case !v.Keyed():
		s.error(noKeys)
		return
	case len(keys) == 0:
		s.error("ERR Invalid arguments specified for command")
		return
	}
	withFlags := strings.EqualFold(string(args[1]), "GETKEYSANDFLAGS")
	out := resp.AppendArray(s.batch.out, len(keys))
	for _, key := range keys {
		if !withFlags {
			out = resp.AppendBulk(out, key)
			continue
		}
		out = resp.AppendArray(out, 2)
		out = resp.AppendBulk(out, key)
		out = resp.AppendArray(out, 3)
		for _, flag := range []string{"RW", "access", "update"} {
			out = resp.AppendSimple(out, flag)
		}
	}
	s.batch.out = out
}

// appendList appends elements, each a whole frame, as an array.
func appendList(out []byte, elems [][]byte) []byte {
	out = resp.AppendArray(out, len(elems))
	for _, e := range elems {
		out = append(out, e...)
	}
	return out
}
