package commands

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// All clients: CLIENT INFO, LIST, KILL, PAUSE, UNPAUSE and UNBLOCK.

func clientInfo(c *Client, args [][]byte, out []byte) []byte {
	if c.Proxy.Fields() == nil {
		if answer, err := c.askRedis(bytesOf("CLIENT", "INFO")...); err == nil {
			c.Proxy.LearnFields(ReadClientFields(answer))
		}
	}
	facts := c.Proxy.Client(c.Number)
	facts.Query = len(resp.Command(args))
	return resp.AppendVerbatim(out, c.proto(), "txt", fieldsShown(c).line(&facts))
}

// fieldsShown are the fields of CLIENT INFO and CLIENT LIST: Redis' own, once they are known.
func fieldsShown(c *Client) ClientFields {
	if told := c.Proxy.Fields(); told != nil {
		return told
	}
	return Redis70Fields
}

// clientList is CLIENT LIST: this proxy's clients.
func clientList(c *Client, args [][]byte, out []byte) []byte {
	f, line := parseList(args)
	if line == "" {
		line = objectionToList(c)
	}
	if line != "" {
		return resp.AppendError(out, line)
	}
	all := c.Proxy.Clients()
	if i := slices.IndexFunc(all, func(one ClientFacts) bool { return one.ID == c.Number }); i >= 0 {
		all[i].Query = len(resp.Command(args))
	}
	lines := fieldsShown(c).lines(f, all)
	size := 0
	for _, line := range lines {
		size += lineBytes + 2*len(line)
	}
	if !c.MayHold(size) {
		return out
	}
	return resp.AppendVerbatim(out, c.proto(), "txt", strings.Join(lines, ""))
}

// objectionToList is what Redis has against this user's CLIENT LIST. While the fields of its clients are not known it
// lists the connection that it is asked on, and else none: a list of others may be long, and so may their names.
func objectionToList(c *Client) string {
	id := "0"
	if c.Proxy.Fields() == nil {
		id = askedOn(c)
	}
	answer, err := c.askRedis(bytesOf("CLIENT", "LIST", "ID", id)...)
	if err == nil && id != "0" {
		c.Proxy.LearnFields(ReadClientFields(answer))
	}
	return objectionIn(answer, err)
}

// askedOn is Redis' number of the connection that the client's questions go over, by HELLO, which every user may run;
// "0": Redis does not tell.
func askedOn(c *Client) string {
	answer, _ := c.askRedis(bytesOf("HELLO")...)
	said, _ := resp.ParseReply(answer)
	for i := 0; i+1 < len(said.Elems); i += 2 {
		if string(said.Elems[i].Text) == "id" {
			return strconv.Itoa(said.Elems[i+1].Int())
		}
	}
	return "0"
}

// objection runs a command that would show this user's rights and changes nothing, and returns what Redis has
// against the user; any other answer, as of a server that lacks the command, is none.
func objection(c *Client, probe ...string) (line string) {
	return objectionIn(c.askRedis(bytesOf(probe...)...))
}

func objectionIn(answer []byte, err error) string {
	if err != nil {
		return client.ErrorLine(err)
	}
	line, bad := resp.ErrorLine(answer)
	for _, about := range []string{"NOPERM", "NOAUTH", "ERR No such user"} {
		if bad && strings.HasPrefix(line, about) {
			return line
		}
	}
	return ""
}

// clientKill closes clients of this proxy; to the lock engine they have been left, not gone: their locks run out.
func clientKill(c *Client, args [][]byte, out []byte) []byte {
	f, line := parseKill(args)
	if objection := objectionToKill(c, f); objection != "" { // what stands before a mistake counts first
		line = objection
	}
	if line != "" {
		return resp.AppendError(out, line)
	}
	killed, itself := c.Proxy.Kill(f, c.Number, c.Peer.Addr+" ("+c.User()+")")
	if !itself {
		return f.appendReply(out, killed)
	}
	c.Give(f.appendReply(nil, killed))
	c.Flush()
	c.End.HangUp(downstream.Left, "CLIENT KILL")
	return out
}

// objectionToKill is what Redis has against this user's CLIENT KILL, and whether there is a user of that name.
func objectionToKill(c *Client, f KillFilter) (line string) {
	probe := []string{"CLIENT", "KILL", "ADDR", "0.0.0.0:0"}
	if f.User != nil {
		probe = append(probe, "USER", *f.User)
	}
	return objection(c, probe...)
}

// clientUnblock is CLIENT UNBLOCK id [TIMEOUT|ERROR]: a lock verb that waits ends here, a blocking command at Redis.
func clientUnblock(c *Client, args [][]byte, out []byte) []byte {
	if len(args) > 4 {
		return resp.AppendError(out, "ERR unknown subcommand or wrong number of arguments for '"+
			Clip(args[1], ClipMost)+"'. Try CLIENT HELP.")
	}
	fails := false
	if len(args) == 4 {
		if fails = same(args[3], "ERROR"); !fails && !same(args[3], "TIMEOUT") {
			return resp.AppendError(out, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		}
	}
	id, ok := resp.Integer(args[2])
	if !ok {
		return resp.AppendError(out, notANumber)
	}
	// Nobody has this number at Redis: it is asked only whether this user may.
	if line := objection(c, "CLIENT", "UNBLOCK", strconv.FormatInt(1<<62, 10)); line != "" {
		return resp.AppendError(out, line)
	}
	reply, err := c.Proxy.Unblock(id, fails, c.Access)
	return relay(c, reply, err, out)
}

// KillFilter is what CLIENT KILL was given. What was not given, which is nil, "" or 0, stands for anything. An address
// or a user may be given as "", which is nobody's; an ID, a TYPE and an age may not.
type KillFilter struct {
	ID                int64
	Addr, LAddr, User *string
	Kind              string // TYPE
	Age               int64  // seconds, at least
	SkipMe            bool
	old               bool // of the form CLIENT KILL addr:port
}

// parseKill reads CLIENT KILL. line is the error that Redis gives; "": none.
func parseKill(args [][]byte) (f KillFilter, line string) {
	if len(args) == 3 {
		return KillFilter{Addr: new(string(args[2])), old: true}, "" // the old form may kill its own sender
	}
	f.SkipMe = true
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			return f, syntaxError
		}
		value := args[i+1]
		switch strings.ToUpper(string(args[i])) {
		case "ID":
			n, ok := resp.Integer(value)
			if !ok || n < 1 {
				return f, "ERR client-id should be greater than 0"
			}
			f.ID = n
		case "MAXAGE": // as of Redis 7.4
			n, ok := resp.Integer(value)
			if !ok {
				return f, "ERR maxage is not an integer or out of range"
			}
			if n <= 0 {
				return f, "ERR maxage should be greater than 0"
			}
			f.Age = n
		case "TYPE":
			known := false
			if f.Kind, known = clientType(value); !known {
				return f, unknownType(value)
			}
		case "ADDR":
			f.Addr = new(string(value))
		case "LADDR":
			f.LAddr = new(string(value))
		case "USER":
			f.User = new(string(value))
		case "SKIPME":
			switch strings.ToLower(string(value)) {
			case "yes":
				f.SkipMe = true
			case "no":
				f.SkipMe = false
			default:
				return f, syntaxError
			}
		default:
			return f, syntaxError
		}
	}
	return f, ""
}

// Matches says whether a client is one of those to kill. SkipMe is left to the caller.
func (f KillFilter) Matches(c ClientFacts) bool {
	switch {
	case f.Kind != "" && f.Kind != c.kind(), f.ID != 0 && f.ID != c.ID, int64(c.Age/time.Second) < f.Age:
		return false
	case !isOrAny(f.Addr, c.Addr), !isOrAny(f.LAddr, c.LAddr), !isOrAny(f.User, c.User):
		return false
	}
	return true
}

// isOrAny says whether a value is what was given; nil: nothing was.
func isOrAny(given *string, value string) bool { return given == nil || *given == value }

// appendReply appends the reply to a CLIENT KILL that has killed so many clients.
func (f KillFilter) appendReply(out []byte, killed int) []byte {
	switch {
	case !f.old:
		return resp.AppendInt(out, int64(killed))
	case killed == 0:
		return resp.AppendError(out, "ERR No such client")
	}
	return resp.AppendSimple(out, "OK")
}

// clientType reads a TYPE of CLIENT LIST and CLIENT KILL.
func clientType(arg []byte) (kind string, known bool) {
	switch kind = strings.ToLower(string(arg)); kind {
	case "normal", "master", "replica", "pubsub":
		return kind, true
	case "slave":
		return "replica", true
	}
	return "", false
}

// unknownType is the error for a TYPE that is none.
func unknownType(arg []byte) string { return "ERR Unknown client type '" + quote(arg) + "'" }
