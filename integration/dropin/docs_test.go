package dropin

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// documented is one command or subcommand as the server's COMMAND and COMMAND DOCS describe it.
type documented struct {
	words []string // XGROUP CREATE
	group string
	arity int // as in COMMAND: with the name, negative for "at least"
	flags []string
	args  []argument
	subs  bool // it has subcommands
}

// argument is a node of COMMAND DOCS' argument tree.
type argument struct {
	name, kind, token string
	flags             []string
	args              []argument
}

func (a argument) is(flag string) bool { return slices.Contains(a.flags, flag) }

func (d documented) name() string { return strings.Join(d.words, " ") }

// node is a reply of RESP2, taken apart.
type node struct {
	text  string
	elems []node
}

func parseNode(frame string) node {
	head, elements := harness.Split(frame)
	if elements == nil && !strings.HasPrefix(frame, "*") {
		if frame[0] == '$' {
			_, frame, _ = strings.Cut(frame, "\r\n")
			return node{text: strings.TrimSuffix(frame, "\r\n")}
		}
		return node{text: strings.TrimSuffix(head[1:], "\r\n")}
	}
	var n node
	for _, e := range elements {
		n.elems = append(n.elems, parseNode(e))
	}
	return n
}

// get is the value of a field in a flattened map.
func (n node) get(field string) node {
	for i := 0; i+1 < len(n.elems); i += 2 {
		if n.elems[i].text == field {
			return n.elems[i+1]
		}
	}
	return node{}
}

func (n node) texts() (texts []string) {
	for _, e := range n.elems {
		texts = append(texts, e.text)
	}
	return texts
}

// documentedCommands asks a server, over RESP2, for all commands and subcommands it has, in the order of their names.
func documentedCommands(t *testing.T, w *harness.Wire) []documented {
	t.Helper()
	docs := parseNode(w.Do("COMMAND", "DOCS"))
	var all []documented
	for _, entry := range parseNode(w.Do("COMMAND")).elems {
		all = append(all, describe(entry, docs)...)
	}
	slices.SortFunc(all, func(a, b documented) int { return strings.Compare(a.name(), b.name()) })
	return all
}

// describe puts an entry of COMMAND, and those of its subcommands, together with their documentation.
func describe(entry, docs node) []documented {
	const arity, flags, subcommands = 1, 2, 9 // places in an entry
	name := entry.elems[0].text
	doc := docs.get(name)
	n, _ := strconv.Atoi(entry.elems[arity].text) // always a number
	d := documented{
		words: strings.Split(strings.ToUpper(name), "|"), group: doc.get("group").text, arity: n,
		flags: entry.elems[flags].texts(), args: arguments(doc.get("arguments")),
	}
	all := []documented{}
	if len(entry.elems) > subcommands {
		for _, sub := range entry.elems[subcommands].elems {
			d.subs = true
			all = append(all, describe(sub, doc.get("subcommands"))...)
		}
	}
	return append(all, d)
}

func arguments(tree node) (args []argument) {
	for _, e := range tree.elems {
		args = append(args, argument{
			name: e.get("name").text, kind: e.get("type").text, token: e.get("token").text,
			flags: e.get("flags").texts(), args: arguments(e.get("arguments")),
		})
	}
	return args
}
