package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// ClientFacts is one client of this proxy as CLIENT LIST shows it.
type ClientFacts struct {
	ID          int64
	Addr, LAddr string
	Name, User  string
	Library     [2]string // name and version
	DB, Proto   int
	Age, Idle   time.Duration
	Last        string // the last command; "": none yet
	Query       int    // bytes of the CLIENT LIST or CLIENT INFO at work, if it is this client's
	ClientState
}

// Has says that a text is in the client's address, name or user.
func (c ClientFacts) Has(part string) bool {
	return strings.Contains(c.Addr+"\n"+c.Name+"\n"+c.User, part)
}

// ClientState is the state of a client's connection.
type ClientState struct {
	Channels, Patterns, Shards int32
	Queued                     int32 // commands of its transaction; -1: it has none
	Watched                    int32 // keys
	Redirect                   int64 // the client that gets its invalidations; 0: itself, -1: it does not track
	Tracks, Broadcasts         bool
	Blocked, Monitors          bool
	Unix                       bool // it came by a unix socket
	NoEvict, NoTouch           bool
}

// kind is the client's TYPE: here are normal ones and subscribers.
func (c *ClientFacts) kind() string {
	if c.subscribed() {
		return "pubsub"
	}
	return "normal"
}

func (s *ClientState) subscribed() bool { return s.Channels+s.Patterns+s.Shards > 0 }

// flags is the flags field, in Redis' order; N stands for none.
func (s *ClientState) flags() string {
	var flags []byte
	for _, f := range []struct {
		on   bool
		flag byte
	}{
		{s.Monitors, 'O'}, {s.subscribed(), 'P'}, {s.Queued >= 0, 'x'}, {s.Blocked, 'b'}, {s.Tracks, 't'},
		{s.Tracks && s.Broadcasts, 'B'},
		{s.Unix, 'U'}, {s.NoEvict, 'e'}, {s.NoTouch, 'T'},
	} {
		if f.on {
			flags = append(flags, f.flag)
		}
	}
	if flags == nil {
		return "N"
	}
	return string(flags)
}

// ClientFields are the fields of a line of CLIENT LIST, in their order.
type ClientFields []string

// Redis70Fields are those of Redis 7.0, for as long as those of the user's Redis are not known.
var Redis70Fields = ClientFields(strings.Fields("id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp"))

// ReadClientFields takes the fields from Redis' answer to CLIENT INFO or CLIENT LIST; nil: it has none.
func ReadClientFields(answer []byte) ClientFields {
	r, ok := resp.ParseReply(answer)
	if !ok || r.Kind != '$' && r.Kind != '=' {
		return nil
	}
	line, _, _ := strings.Cut(string(r.Text), "\n")
	names := fieldsOf(line)
	if !slices.Contains(names, "id") {
		return nil
	}
	return names
}

// fieldsOf are the names of the fields in a line of CLIENT INFO, in their order; nil: it is none.
func fieldsOf(line string) (names []string) {
	for _, field := range strings.Fields(line) {
		name, _, ok := strings.Cut(field, "=")
		if !ok {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// lineBytes is what a line of CLIENT LIST takes besides its bytes, which are held twice.
const lineBytes = 16

// lines are the lines of those of the clients that were asked for, in the order to show them in. A client that is asked
// for many times has one.
func (f ClientFields) lines(asked listFilter, clients []ClientFacts) (lines []string) {
	if asked.ids == nil {
		for i := range clients {
			if asked.kind == "" || clients[i].kind() == asked.kind {
				lines = append(lines, f.line(&clients[i]))
			}
		}
		return lines
	}
	byID := make(map[int64]*ClientFacts, len(clients))
	for i := range clients {
		byID[clients[i].ID] = &clients[i]
	}
	made := make(map[int64]string)
	for _, id := range asked.ids {
		c, there := byID[id]
		if !there {
			continue
		}
		if made[id] == "" {
			made[id] = f.line(c)
		}
		lines = append(lines, made[id])
	}
	return lines
}

// line is a client's line, with its end, in these fields. What means nothing here, as memory and buffers, is 0, but for
// the bytes of the command that asks. The library is shown once it is named, whatever the fields are.
func (f ClientFields) line(c *ClientFacts) string {
	values := c.values()
	var line strings.Builder
	for i, name := range f {
		if i > 0 {
			line.WriteByte(' ')
		}
		value, known := values[name]
		if !known {
			value = 0
		}
		fmt.Fprintf(&line, "%s=%v", name, value)
	}
	if c.Library != [2]string{} && !slices.Contains(f, "lib-name") {
		fmt.Fprintf(&line, " lib-name=%s lib-ver=%s", c.Library[0], c.Library[1])
	}
	line.WriteByte('\n')
	return line.String()
}

// values are the fields that mean something here.
func (c *ClientFacts) values() map[string]any {
	last := c.Last
	if last == "" {
		last = "NULL"
	}
	return map[string]any{
		"id": c.ID, "addr": c.Addr, "laddr": c.LAddr, "fd": c.ID, "name": c.Name, "flags": c.flags(), "db": c.DB,
		"events": "r",
		"age":    int(c.Age.Seconds()), "idle": int(c.Idle.Seconds()), "sub": c.Channels, "psub": c.Patterns,
		"ssub":  c.Shards,
		"multi": c.Queued, "watch": c.Watched, "qbuf": c.Query, "cmd": last, "user": c.User, "redir": c.Redirect,
		"resp":     c.Proto,
		"lib-name": c.Library[0], "lib-ver": c.Library[1],
		"capa": "", // of Valkey: that the client takes redirections, which are none of this proxy's
	}
}

// listFilter is what CLIENT LIST was given.
type listFilter struct {
	kind string  // TYPE; "": any
	ids  []int64 // ID; nil: any
}

// parseList reads CLIENT LIST [TYPE type | ID id …]. line is the error that Redis gives; "": none.
func parseList(args [][]byte) (f listFilter, line string) {
	switch {
	case len(args) == 2:
	case len(args) == 4 && same(args[2], "TYPE"):
		known := false
		if f.kind, known = clientType(args[3]); !known {
			return f, unknownType(args[3])
		}
	case len(args) > 3 && same(args[2], "ID"):
		for _, arg := range args[3:] {
			id, ok := resp.Integer(arg)
			if !ok {
				return f, "ERR Invalid client ID"
			}
			f.ids = append(f.ids, id)
		}
	default:
		return f, syntaxError
	}
	return f, ""
}
