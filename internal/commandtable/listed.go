package commandtable

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Listed is what Redis' reply to COMMAND, or COMMAND INFO, tells: which names change nothing, which write, which may block, and which may be answered
// from a thread, modules' and subcommands included.
func Listed(reply []byte) []*Command {
	all, ok := resp.ParseReply(reply)
	if !ok {
		return nil
	}
	var learned []*Command
	for _, entry := range all.Elems {
		c := learnCommand(entry)
		if c == nil {
			continue
		}
		learned = append(learned, c)
		if len(entry.Elems) < 10 {
			continue
		}
		for _, sub := range entry.Elems[9].Elems {
			if c := learnCommand(sub); c != nil {
				learned = append(learned, c)
			}
		}
	}
	return learned
}

// mayReplicate are commands that Redis has wait, too, while it pauses writes: its source calls them CMD_MAY_REPLICATE, which COMMAND does
// not tell. Scripts are so as well, and have a connection of their own.
var mayReplicate = []string{"pfcount", "publish", "spublish"}

// learnCommand reads one entry; nil: there is no such command.
func learnCommand(entry resp.Reply) *Command {
	if len(entry.Elems) < 3 {
		return nil
	}
	c := &Command{Name: strings.ToLower(string(entry.Elems[0].Text)), Arity: entry.Elems[1].Int()}
	c.Spec = readCommandSpec(c.Name, entry)
	c.Writes = slices.Contains(mayReplicate, c.Name)
	if len(entry.Elems) > 6 {
		c.Family = familyOf(texts(entry.Elems[6]))
	}
	for _, flag := range entry.Elems[2].Elems {
		switch string(flag.Text) {
		case "readonly":
			c.ReadOnly = true
		case "write":
			c.Writes = true
		case "blocking":
			c.Conn = ConnBlock
		case "module": // it may do all that a module may
			c.Thread = true
		}
	}
	return c
}

// familiesByCategory are the categories of Redis' ACL that say what a command is about; the first that a command has counts.
var familiesByCategory = []struct {
	category string
	family   telemetry.Family
}{
	{"@scripting", telemetry.Script}, {"@transaction", telemetry.Transaction}, {"@pubsub", telemetry.PubSub}, {"@stream", telemetry.Stream},
	{"@geo", telemetry.Geo}, {"@sortedset", telemetry.SortedSet}, {"@hash", telemetry.Hash}, {"@list", telemetry.List}, {"@set", telemetry.Set},
	{"@string", telemetry.String}, {"@bitmap", telemetry.String}, {"@hyperloglog", telemetry.String}, {"@keyspace", telemetry.Key},
	{"@connection", telemetry.Connection}, {"@admin", telemetry.ServerAdmin}, {"@dangerous", telemetry.ServerAdmin},
}

func familyOf(categories []string) telemetry.Family {
	for _, f := range familiesByCategory {
		if slices.Contains(categories, f.category) {
			return f.family
		}
	}
	return telemetry.Other
}

// MayBlock has those of the commands that names lists, in lower case, treated as commands that may wait, as BLPOP does: each call
// then has a connection to itself.
func MayBlock(told []*Command, names []string) {
	for _, c := range told {
		if c.Conn == ConnNone && slices.Contains(names, c.Name) {
			c.Conn = ConnBlock
		}
	}
}
