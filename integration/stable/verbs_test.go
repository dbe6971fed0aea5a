package stable

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// syntax is an argument as COMMAND DOCS tells of it, in the words of docs/VERBS.md.
func syntax(argument map[string]any) string {
	text, _ := argument["token"].(string)
	var inner []string
	for _, one := range list(argument["arguments"]) {
		inner = append(inner, syntax(one.(map[string]any)))
	}
	switch argument["type"] {
	case "oneof":
		text = strings.Join(inner, "|")
	case "block":
		text = strings.Join(inner, " ")
	case "pure-token":
	default:
		text = strings.TrimSpace(text + " " + argument["name"].(string))
	}
	if flags := list(argument["flags"]); slices.Contains(flags, any("multiple")) {
		text += " …"
	} else if slices.Contains(flags, any("optional")) {
		text = "[" + text + "]"
	}
	return text
}

func list(value any) []any {
	all, _ := value.([]any)
	return all
}

// kind is what docs/VERSIONING.md promises of an error: its code.
var kind = regexp.MustCompile(`^-([A-Z]+) .*`)

// shape is what is promised of a reply: its types, the names of fields, and short words.
func shape(frame string) string {
	frame = kind.ReplaceAllString(strings.TrimSuffix(frame, "\r\n"), "-$1 …")
	if strings.HasPrefix(frame, ":") && len(frame) > 10 {
		return ":<number>" // a token
	}
	if head, elements := harness.Split(frame + "\r\n"); strings.HasPrefix(head, "*") && len(elements) > 0 {
		for i := range elements {
			elements[i] = shape(elements[i])
		}
		return "[" + strings.Join(elements, ", ") + "]"
	}
	return frame
}

// TestVerbs: the verbs with their options, as COMMAND DOCS tells clients of them, and the subcommands of LOCKPROXY.
func TestVerbs(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial3(t, p.Addr())
	var now []string
	for _, row := range commands.Rows() {
		if commands.Lookup([]byte(row.Name)) == nil {
			continue
		}
		doc := harness.Decode(t, w.Do("COMMAND", "DOCS", row.Name)).(map[string]any)[row.Name].(map[string]any)
		line := strings.ToUpper(row.Name)
		for _, argument := range list(doc["arguments"]) {
			line += " " + syntax(argument.(map[string]any))
		}
		now = append(now, line)
	}
	for _, line := range list(harness.Decode(t, w.Do("LOCKPROXY", "HELP")))[1:] {
		if text := line.(string); !strings.HasPrefix(text, " ") {
			now = append(now, "LOCKPROXY "+text)
		}
	}
	slices.Sort(now)
	hold(t, "verbs", now)
}

// calls are made one after the other, each by the connection that its first word names.
const calls = `
a LOCK k
b LOCK k
b LOCK k BLOCK 20
b RLOCK k
b UNLOCK k
a RENEW k
a RENEW k EX 30
a LOCK k
a UNLOCK k
a UNLOCK k
a LOCK k LIMIT 2
b LOCK k LIMIT 2
a LOCK k
a UNLOCK k
b UNLOCK k ALL
a LOCK f FENCE
a LOCK f PX 60000 FENCE SELF
a UNLOCK f ALL
a FAIRLOCK f
a UNLOCK f
a RLOCK r
a WLOCK r
b RLOCK r BLOCK 20
b UNLOCK r READ
a UNLOCK r
a WLOCK r
a RLOCK r
a UNLOCK r
a UNLOCK r WRITE
a UNLOCK r READ
a LOCK k OWNER o EX 30
b LOCK k OWNER o PX 40000
a RENEW k OWNER o EX 30
a RENEW k OWNER o
a UNLOCK k OWNER p
a FENCED k OWNER o SET d 1
a FENCED k OWNER p SET d 2
b UNLOCK k OWNER o
a LOCK k OWNER o
a LOCK k REPLICAS 1
a MULTILOCK 2 k l
b MULTILOCK 2 l m
a MULTIUNLOCK 2 k l
a MULTIUNLOCK 2 k l
a MULTILOCK 2 k l FENCE
a UNLOCK k
a UNLOCK l
a MULTILOCK 2 k k OWNER o EX 30 BLOCK 10
a MULTIUNLOCK 1 k OWNER o
a LOCK k
b UNLOCK k FORCE
b UNLOCK k FORCE
a LOCK k
a CLIENT SETINFO lib-name pool
a LOCK k
a LOCK k
a LOCK k SELF
a UNLOCK k ALL
a SET data 1
a LOCK data LIMIT 1
a LPUSH items 1
a LOCK items
a LOCK
a LOCK k BLOK 1
a LOCK k PX 0
a LOCK lockproxy_x
a FAIRLOCK {k}
`

// TestReplies: what the verbs answer, in RESP2 and RESP3.
func TestReplies(t *testing.T) {
	t.Parallel()
	now := strings.Split(strings.TrimSpace(calls), "\n")
	p := harness.StartProxy(t, testredis.Start(t).URL())
	for _, connect := range []func(testing.TB, string) *harness.Wire{harness.Dial, harness.Dial3} {
		by := map[string]*harness.Wire{"a": connect(t, p.Addr()), "b": connect(t, p.Addr())}
		harness.Expect(t, by["a"], "+OK\r\n", "FLUSHALL")
		for i, line := range now {
			call, _, _ := strings.Cut(line, " | ")
			words := strings.Fields(call)
			now[i] += " | " + shape(by[words[0]].Do(words[1:]...))
		}
	}
	hold(t, "replies", now)
}
