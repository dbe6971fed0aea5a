package commands

import (
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// addition is a command that Redis does not have, as COMMAND tells of it.
type addition struct {
	name              string // lower case
	arity             int
	flags, categories []string
	first             int    // where its only key is; 0: nowhere
	specs             list   // where its keys are, for clients that route by them
	doc               fields // of COMMAND DOCS
}

// entry is its element of COMMAND and COMMAND INFO, in the ten fields of Redis 7. It has no tips, and no subcommands.
func (a *addition) entry() list {
	return list{a.name, a.arity, set(a.flags), a.first, a.first, a.first, set(a.categories), list{}, a.specs, list{}}
}

// appendDoc appends its pair of COMMAND DOCS: its name and a map with summary, since, group, and arguments.
func (a *addition) appendDoc(out []byte, proto int) []byte {
	return appendValue(resp.AppendBulkString(out, a.name), proto, a.doc)
}

// additions are all of them. Nobody changes them.
var additions = sync.OnceValue(func() (all []addition) {
	for _, v := range sortedVerbs() {
		all = append(all, v.described())
	}
	return append(all, operatorsDescribed())
})

// described is the verb as COMMAND tells of it.
func (v *Verb) described() addition {
	a := addition{name: v.Name, arity: v.Arity, flags: v.Flags, categories: v.categories(), specs: v.keySpecs(),
		doc: described(v.Summary, v.Group)}
	if v.keys == oneKey { // clients without key specs are told by movablekeys to ask
		a.first = 1
	}
	arguments := v.keys.arguments()
	for _, choice := range v.choices() {
		arguments = append(arguments, argumentOf(choice))
	}
	if v.Wraps {
		arguments = append(arguments, fields{{"name", "command"}, {"type", "string"}},
			fields{{"name", "arg"}, {"type", "string"}, {"flags", list{simple("optional"), simple("multiple")}}})
	}
	if len(arguments) > 0 {
		a.doc = append(a.doc, field{"arguments", arguments})
	}
	return a
}

// described is what COMMAND DOCS says of all.
func described(summary, group string) fields {
	return fields{{"summary", summary}, {"since", since}, {"group", group}}
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

// keySpecs say where the keys are, for clients that route by them.
func (v *Verb) keySpecs() list {
	find := keySearch("range", field{"lastkey", 0}, field{"keystep", 1}, field{"limit", 0})
	switch v.keys {
	case noKey:
		return list{}
	case countedKeys:
		find = keySearch("keynum", field{"keynumidx", 0}, field{"firstkey", 1}, field{"keystep", 1})
	}
	all := list{keySpec(v.keyFlags(), keySearch("index", field{"index", 1}), find)}
	if v.Wraps { // COMMAND GETKEYS knows more
		all = append(all, keySpec(set{"RW", "access", "update", "incomplete"}, keySearch("unknown"),
			keySearch("unknown")))
	}
	return all
}

// keyFlags say what the verb does with its keys.
func (v *Verb) keyFlags() set {
	if v.Flags[0] == "readonly" || v.Wraps {
		return set{"RO", "access"}
	}
	return set{"RW", "access", "update"}
}

func keySpec(flags set, begin, find fields) fields {
	return fields{{"flags", flags}, {"begin_search", begin}, {"find_keys", find}}
}

func keySearch(kind string, spec ...field) fields {
	return fields{{"type", kind}, {"spec", fields(spec)}}
}

// arguments are those that say the keys.
func (p keyPosition) arguments() list {
	key := fields{{"name", "key"}, {"type", "key"}, {"key_spec_index", 0}}
	switch p {
	case oneKey:
		return list{key}
	case countedKeys:
		multiple := field{"flags", list{simple("multiple")}}
		return list{fields{{"name", "numkeys"}, {"type", "integer"}}, append(key, multiple)}
	}
	return nil
}

// choices are the verb's options, those that exclude one another together.
func (v *Verb) choices() [][]Option {
	var out [][]Option
	for _, o := range v.Options {
		if last := len(out) - 1; last >= 0 && o.group != "" && out[last][0].group == o.group {
			out[last] = append(out[last], o)
			continue
		}
		out = append(out, []Option{o})
	}
	return out
}

// optional is the flag of an argument that may be left out.
var optional = field{"flags", list{simple("optional")}}

// argumentOf is one optional argument, or the choice between several.
func argumentOf(options []Option) fields {
	if len(options) == 1 {
		return append(options[0].argument(), optional)
	}
	return fields{{"name", options[0].group}, {"type", "oneof"}, optional, {"arguments", argumentsOf(options)}}
}

func argumentsOf(options []Option) (all list) {
	for _, o := range options {
		all = append(all, o.argument())
	}
	return all
}

func (o Option) argument() fields {
	name, kind := o.Value, "integer"
	switch o.kind {
	case noValue:
		name, kind = strings.ToLower(o.Keyword), "pure-token"
	case ownerName, text:
		kind = "string"
	}
	return fields{{"name", name}, {"type", kind}, {"token", o.Keyword}}
}
