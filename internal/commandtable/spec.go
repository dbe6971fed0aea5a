package commandtable

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// CommandSpec is what Redis' COMMAND says of a command, beside what this proxy goes by on one node. It does not change.
type CommandSpec struct {
	Flags, Tips       []string
	first, last, step int // of keys, in the words of a call; first 0: none there
	specs             []keySpec
	movable           bool // first, last and step do not tell all
	sorts             bool // SORT, whose specification leaves out what it stores into
	sortsOnly         bool // SORT_RO, whose specification leaves open what else it reads, and which stores nothing
}

// keySpec is one of Redis' key specifications: where the search begins, and what is found from there.
type keySpec struct {
	index   int    // the word it begins at, when
	keyword string // is empty; else behind this word, looked for from
	from    int    // on; negative: from the end backwards

	keynum          bool // the number of keys is in the call
	last, limit     int  // of a range
	number, firstAt int  // of keynum: where the number is, and the first key, from the beginning
	step            int
	unknown         bool // Redis cannot say where they are, or not of all
}

// readCommandSpec reads an entry of COMMAND; nil: there is not enough of it.
func readCommandSpec(name string, entry resp.Reply) *CommandSpec {
	if len(entry.Elems) < 6 {
		return nil
	}
	flags := texts(entry.Elems[2])
	t := &CommandSpec{Flags: flags, first: entry.Elems[3].Int(), last: entry.Elems[4].Int(), step: max(entry.Elems[5].Int(), 1),
		movable: slices.Contains(flags, "movablekeys"), sorts: name == "sort", sortsOnly: name == "sort_ro"}
	if len(entry.Elems) < 9 { // before Redis 7
		return t
	}
	t.Tips = texts(entry.Elems[7])
	for _, e := range entry.Elems[8].Elems {
		t.specs = append(t.specs, readSpec(e))
	}
	return t
}

func readSpec(e resp.Reply) (k keySpec) {
	begin, find := field(e, "begin_search"), field(e, "find_keys")
	k.unknown = slices.Contains(texts(field(e, "flags")), "incomplete")
	how := field(begin, "spec")
	switch string(field(begin, "type").Text) {
	case "index":
		k.index = field(how, "index").Int()
	case "keyword":
		k.keyword, k.from = string(field(how, "keyword").Text), field(how, "startfrom").Int()
	default:
		k.unknown = true
	}
	how = field(find, "spec")
	switch string(field(find, "type").Text) {
	case "range":
		k.last, k.step, k.limit = field(how, "lastkey").Int(), field(how, "keystep").Int(), field(how, "limit").Int()
	case "keynum":
		k.keynum = true
		k.number, k.firstAt, k.step = field(how, "keynumidx").Int(), field(how, "firstkey").Int(), field(how, "keystep").Int()
	default:
		k.unknown = true
	}
	if k.step < 1 {
		k.unknown = true
	}
	return k
}

// Keys appends to dst which words of a call are keys. Not known: only Redis can tell, by COMMAND GETKEYS. A call that
// does not fit has no keys: it may be sent to any node, which says what is wrong with it.
func (t *CommandSpec) Keys(args [][]byte, dst []int) (keys []int, known bool) {
	switch {
	case t.sorts:
		return sortKeys(args, dst), true
	case t.sortsOnly:
		return span(dst, 1, min(1, len(args)-1), 1), true
	case len(t.specs) == 0 && t.movable:
		return dst, false
	case len(t.specs) == 0:
		last := t.last
		if last < 0 {
			last += len(args)
		}
		if last >= len(args) {
			return dst, true
		}
		return span(dst, t.first, last, t.step), true
	}
	none := dst
	for i := range t.specs {
		k := &t.specs[i]
		if k.unknown {
			return none, false
		}
		at, there := k.firstKey(args)
		if !there {
			continue
		}
		from, to, fits := k.reach(args, at)
		if !fits {
			return none, true
		}
		dst = span(dst, from, to, k.step)
	}
	return dst, true
}

// firstKey is the word the keys are reckoned from; false: the call has none of these.
func (k *keySpec) firstKey(args [][]byte) (at int, there bool) {
	if k.keyword == "" {
		return k.index, true
	}
	from, step := k.from, 1
	if from < 0 {
		from, step = len(args)+from, -1
	}
	for i := from; i > 0 && i < len(args); i += step {
		if is(args[i], k.keyword) {
			return i + 1, true
		}
	}
	return 0, false
}

// reach is the first and the last key; false: the call does not fit.
func (k *keySpec) reach(args [][]byte, at int) (from, to int, fits bool) {
	from = at
	switch {
	case k.keynum:
		n := leading(wordAt(args, at+k.number))
		if n < 0 || n > len(args) {
			return 0, 0, false
		}
		from = at + k.firstAt
		to = from + (n-1)*k.step
	case k.last >= 0:
		to = at + k.last
	case k.limit > 1:
		to = at + (len(args)-at)/k.limit + k.last
	default:
		to = len(args) + k.last
	}
	return from, to, to < len(args)
}

// wordAt is a word of a call; nil: the call has none there.
func wordAt(args [][]byte, i int) []byte {
	if i < 0 || i >= len(args) {
		return nil
	}
	return args[i]
}

// leading is the number a word begins with, as C's atoi has it, by which Redis goes; -1 when it is none above zero.
func leading(word []byte) int {
	word = bytes.TrimLeft(word, " \t\n\v\f\r")
	word = bytes.TrimPrefix(word, []byte("+"))
	digits := len(word) - len(bytes.TrimLeft(word, "0123456789"))
	n, err := strconv.Atoi(string(word[:min(digits, 9)]))
	if err != nil {
		return -1
	}
	return n
}

// span appends from, from+step … up to last. From below 1 is no key: what Redis, or what calls itself so, tells is not
// trusted.
func span(dst []int, from, last, step int) []int {
	for ; 0 < from && from <= last; from += step { // a step that is far too long makes from a number below zero
		dst = append(dst, from)
	}
	return dst
}

// sortKeys are those of SORT: the key, and the one it stores into, the last STORE counting.
func sortKeys(args [][]byte, dst []int) []int {
	if len(args) < 2 {
		return dst
	}
	store := 0
	for i := 2; i < len(args); i++ {
		switch {
		case is(args[i], "LIMIT"):
			i += 2
		case is(args[i], "GET"), is(args[i], "BY"):
			i++
		case is(args[i], "STORE") && i+1 < len(args):
			i++
			store = i
		}
	}
	if dst = append(dst, 1); store > 0 {
		dst = append(dst, store)
	}
	return dst
}

// Named finds in a call the keys that COMMAND GETKEYS has named, in their order.
func Named(reply []byte, args [][]byte, dst []int) []int {
	at := 1
	for element := range resp.Elements(reply) {
		key, _ := resp.Outline(element)
		for i := at; i < len(args); i++ {
			if bytes.Equal(args[i], key.Text) {
				dst, at = append(dst, i), i+1
				break
			}
		}
	}
	return dst
}

// field is what stands behind a name in a map, or in an array that stands for one.
func field(r resp.Reply, name string) resp.Reply {
	for i := 0; i+1 < len(r.Elems); i += 2 {
		if string(r.Elems[i].Text) == name {
			return r.Elems[i+1]
		}
	}
	return resp.Reply{}
}

func texts(r resp.Reply) (all []string) {
	for _, e := range r.Elems {
		all = append(all, string(e.Text))
	}
	return all
}
