package commands

import (
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// addition is a command that Redis does not have, as COMMAND tells of it.
type addition interface {
	fullName() string
	AppendEntry(out []byte, proto int) []byte // its element of COMMAND and COMMAND INFO
	AppendDoc(out []byte, proto int) []byte   // its pair of COMMAND DOCS
	subs() []addition                         // those listed within its own
}

// additions are all of them but subcommands.
func additions() (all []addition) {
	for _, v := range sortedVerbs() {
		all = append(all, v)
	}
	return append(all, operators{})
}

// additionsByName are all of them, subcommands too, by their full names in lower case.
func additionsByName() map[string]addition {
	all := map[string]addition{}
	for _, a := range additions() {
		for _, d := range append([]addition{a}, a.subs()...) {
			all[strings.ToLower(d.fullName())] = d
		}
	}
	return all
}

func (v *Verb) fullName() string { return v.Name }

func (v *Verb) subs() []addition { return nil }

// AppendEntry appends the verb's element of COMMAND and COMMAND INFO, in the ten fields of Redis 7.
func (v *Verb) AppendEntry(out []byte, proto int) []byte {
	first := int64(0)
	if v.keys == oneKey { // clients without key specs are told by movablekeys to ask
		first = 1
	}
	out = appendEntryHead(out, proto, v.Name, v.Arity, first, v.Flags, v.categories())
	out = v.appendKeySpecs(out, proto)
	return resp.AppendArray(out, 0) // subcommands
}

// appendEntryHead appends an element of COMMAND up to its tips, of which there are none. first is where its only key is, 0: nowhere.
func appendEntryHead(out []byte, proto int, name string, arity int, first int64, flags, categories []string) []byte {
	out = resp.AppendArray(out, 10)
	out = resp.AppendBulkString(out, name)
	out = resp.AppendInt(out, int64(arity))
	out = appendWords(out, proto, flags)
	out = resp.AppendInt(out, first)
	out = resp.AppendInt(out, first)
	out = resp.AppendInt(out, first) // the step to the next one
	out = appendWords(out, proto, categories)
	return resp.AppendArray(out, 0)
}

func appendWords(out []byte, proto int, words []string) []byte {
	out = resp.AppendSet(out, proto, len(words))
	for _, w := range words {
		out = resp.AppendSimple(out, w)
	}
	return out
}

func (v *Verb) categories() []string {
	out := []string{"@keyspace"}
	for _, f := range v.Flags {
		switch f {
		case "write":
			out = append(out, "@write")
		case "readonly":
			out = append(out, "@read")
		case "blocking", "admin":
			out = append(out, "@"+f)
		}
	}
	return append(out, "@slow")
}

// appendKeySpecs says where the keys are, for clients that route by them.
func (v *Verb) appendKeySpecs(out []byte, proto int) []byte {
	if v.keys == noKey {
		return resp.AppendArray(out, 0)
	}
	specs := 1
	if v.Wraps {
		specs++
	}
	out = resp.AppendArray(out, specs)
	out = appendSpecHead(out, proto, v.keyFlags())
	out = appendSpec(out, proto, "index", []string{"index"}, []int64{1})
	out = resp.AppendBulkString(out, "find_keys")
	if v.keys == countedKeys {
		out = appendSpec(out, proto, "keynum", []string{"keynumidx", "firstkey", "keystep"}, []int64{0, 1, 1})
	} else {
		out = appendSpec(out, proto, "range", []string{"lastkey", "keystep", "limit"}, []int64{0, 1, 0})
	}
	if v.Wraps { // COMMAND GETKEYS knows more
		out = appendSpecHead(out, proto, []string{"RW", "access", "update", "incomplete"})
		out = appendSpec(out, proto, "unknown", nil, nil)
		out = resp.AppendBulkString(out, "find_keys")
		out = appendSpec(out, proto, "unknown", nil, nil)
	}
	return out
}

// keyFlags say what the verb does with its keys.
func (v *Verb) keyFlags() []string {
	if v.Flags[0] == "readonly" || v.Wraps {
		return []string{"RO", "access"}
	}
	return []string{"RW", "access", "update"}
}

func appendSpecHead(out []byte, proto int, flags []string) []byte {
	out = resp.AppendMap(out, proto, 3)
	out = resp.AppendBulkString(out, "flags")
	out = appendWords(out, proto, flags)
	return resp.AppendBulkString(out, "begin_search")
}

func appendSpec(out []byte, proto int, kind string, names []string, values []int64) []byte {
	out = resp.AppendMap(out, proto, 2)
	out = resp.AppendBulkString(out, "type")
	out = resp.AppendBulkString(out, kind)
	out = resp.AppendBulkString(out, "spec")
	out = resp.AppendMap(out, proto, len(names))
	for i, name := range names {
		out = resp.AppendBulkString(out, name)
		out = resp.AppendInt(out, values[i])
	}
	return out
}

// AppendDoc appends the verb's pair of COMMAND DOCS: its name and a map with summary, since, group and arguments.
func (v *Verb) AppendDoc(out []byte, proto int) []byte {
	m := mapping{out: resp.AppendBulkString(out, v.Name), proto: proto}
	choices := v.choices()
	args := len(choices) + len(v.keys.words())
	if v.Wraps {
		args += 2
	}
	fields := 3
	if args > 0 {
		fields++
	}
	m.out = resp.AppendMap(m.out, proto, fields)
	m.text("summary", v.Summary)
	m.text("since", v.Since)
	m.text("group", v.Group)
	if args == 0 {
		return m.out
	}
	m.key("arguments")
	m.out = resp.AppendArray(m.out, args)
	m.keyArguments(v.keys)
	for _, choice := range choices {
		m.choice(choice)
	}
	if v.Wraps {
		m.command()
	}
	return m.out
}

// keyArguments appends the arguments that say the keys.
func (m *mapping) keyArguments(place keyPlace) {
	fields := 3
	switch place {
	case noKey:
		return
	case countedKeys:
		m.out = resp.AppendMap(m.out, m.proto, 2)
		m.text("name", "numkeys")
		m.text("type", "integer")
		fields++
	}
	m.out = resp.AppendMap(m.out, m.proto, fields)
	m.text("name", "key")
	m.text("type", "key")
	m.number("key_spec_index", 0)
	if place == countedKeys {
		m.key("flags")
		m.out = resp.AppendArray(m.out, 1)
		m.out = resp.AppendSimple(m.out, "multiple")
	}
}

// command appends the arguments that are another command.
func (m *mapping) command() {
	m.out = resp.AppendMap(m.out, m.proto, 2)
	m.text("name", "command")
	m.text("type", "string")
	m.out = resp.AppendMap(m.out, m.proto, 3)
	m.text("name", "arg")
	m.text("type", "string")
	m.key("flags")
	m.out = resp.AppendArray(m.out, 2)
	m.out = resp.AppendSimple(m.out, "optional")
	m.out = resp.AppendSimple(m.out, "multiple")
}

// choices are the verb's options, those that exclude one another together.
func (v *Verb) choices() [][]Option {
	var out [][]Option
	for _, o := range v.Options {
		if o.former {
			continue
		}
		if last := len(out) - 1; last >= 0 && o.group != "" && out[last][0].group == o.group {
			out[last] = append(out[last], o)
			continue
		}
		out = append(out, []Option{o})
	}
	return out
}

// choice appends one optional argument, or the choice between several.
func (m *mapping) choice(options []Option) {
	if len(options) == 1 {
		m.option(options[0], true)
		return
	}
	m.out = resp.AppendMap(m.out, m.proto, 4)
	m.text("name", options[0].group)
	m.text("type", "oneof")
	m.optional()
	m.key("arguments")
	m.out = resp.AppendArray(m.out, len(options))
	for _, o := range options {
		m.option(o, false)
	}
}

func (m *mapping) option(o Option, optional bool) {
	fields := 3
	if optional {
		fields++
	}
	m.out = resp.AppendMap(m.out, m.proto, fields)
	if o.kind == noValue {
		m.text("name", strings.ToLower(o.Keyword))
		m.text("type", "pure-token")
	} else {
		m.text("name", o.Value)
		kind := "integer"
		if o.kind == ownerName || o.kind == text {
			kind = "string"
		}
		m.text("type", kind)
	}
	m.text("token", o.Keyword)
	if optional {
		m.optional()
	}
}

func (m *mapping) optional() {
	m.key("flags")
	m.out = resp.AppendArray(m.out, 1)
	m.out = resp.AppendSimple(m.out, "optional")
}
