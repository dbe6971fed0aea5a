package commands

import (
	"bytes"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// The grammar and the replies of HELLO and CLIENT, which are Redis' own.

// Errors in Redis' words.
const (
	SyntaxError  = "ERR syntax error"
	NotANumber   = "ERR value is not an integer or out of range"
	BadName      = "ERR Client names cannot contain spaces, newlines or special characters."
	NoKeys       = "ERR The command has no key arguments" // COMMAND GETKEYS of a command without keys
	badProto     = "NOPROTO unsupported protocol version"
	WrongPass    = "WRONGPASS invalid username-password pair or user is disabled."
	protoNotANum = "ERR Protocol version is not an integer or out of range"
)

// HelloOptions is what HELLO was given.
type HelloOptions struct {
	Proto          int // 0: the one in use
	Auth, Named    bool
	User, Password string
	Name           string
}

// ParseHello reads HELLO. line is the error that Redis gives; "": none.
func ParseHello(args [][]byte) (o HelloOptions, line string) {
	if len(args) > 1 {
		n, ok := resp.Integer(args[1])
		if !ok {
			return o, protoNotANum
		}
		if n < 2 || n > 3 {
			return o, badProto
		}
		o.Proto = int(n)
	}
	for i := 2; i < len(args); i++ {
		more := len(args) - 1 - i
		switch option := strings.ToUpper(string(args[i])); {
		case option == "AUTH" && more >= 2:
			o.Auth, o.User, o.Password = true, string(args[i+1]), string(args[i+2])
			i += 2
		case option == "SETNAME" && more >= 1:
			if !ValidName(args[i+1]) {
				return o, BadName
			}
			o.Named, o.Name = true, string(args[i+1])
			i++
		default:
			return o, "ERR Syntax error in HELLO option '" + Clip(args[i]) + "'"
		}
	}
	return o, ""
}

// KillFilter is what CLIENT KILL was given; "" and 0 stand for anything.
type KillFilter struct {
	ID                int64
	Addr, LAddr, User string
	Kind              string // TYPE
	Age               int64  // seconds, at least
	SkipMe            bool
	old               bool // of the form CLIENT KILL addr:port
}

// ParseKill reads CLIENT KILL. line is the error that Redis gives; "": none.
func ParseKill(args [][]byte) (f KillFilter, line string) {
	if len(args) == 3 {
		return KillFilter{Addr: string(args[2]), old: true}, "" // the old form may kill its own sender
	}
	f.SkipMe = true
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			return f, SyntaxError
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
			if f.Kind, known = ClientType(value); !known {
				return f, UnknownType(value)
			}
		case "ADDR":
			f.Addr = string(value)
		case "LADDR":
			f.LAddr = string(value)
		case "USER":
			f.User = string(value)
		case "SKIPME":
			switch strings.ToLower(string(value)) {
			case "yes":
				f.SkipMe = true
			case "no":
				f.SkipMe = false
			default:
				return f, SyntaxError
			}
		default:
			return f, SyntaxError
		}
	}
	return f, ""
}

// Matches says whether a client is one of those to kill. SkipMe is left to the caller.
func (f KillFilter) Matches(c ClientFacts) bool {
	return (f.Kind == "" || f.Kind == c.Kind()) && (f.ID == 0 || f.ID == c.ID) && (f.Addr == "" || f.Addr == c.Addr) &&
		(f.LAddr == "" || f.LAddr == c.LAddr) && (f.User == "" || f.User == c.User) && (f.Age == 0 || int64(c.Age/time.Second) >= f.Age)
}

// AppendReply appends the reply to a CLIENT KILL that has killed so many clients.
func (f KillFilter) AppendReply(out []byte, killed int) []byte {
	switch {
	case !f.old:
		return resp.AppendInt(out, int64(killed))
	case killed == 0:
		return resp.AppendError(out, "ERR No such client")
	}
	return resp.AppendSimple(out, "OK")
}

// SetInfo is what CLIENT SETINFO was given.
type SetInfo struct {
	Version bool // of the library; else its name
	Value   string
}

// ParseSetInfo reads CLIENT SETINFO lib-name|lib-ver value, as of Redis 7.2. line is the error that Redis gives; "": none.
func ParseSetInfo(args [][]byte) (i SetInfo, line string) {
	option := strings.ToLower(string(args[2]))
	if option != "lib-name" && option != "lib-ver" {
		return i, "ERR Unrecognized option '" + Clip(args[2]) + "'"
	}
	if !ValidName(args[3]) {
		return i, "ERR " + option + " cannot contain spaces, newlines or special characters."
	}
	return SetInfo{Version: option == "lib-ver", Value: string(args[3])}, ""
}

// AppendClientHelp appends Redis' CLIENT HELP with what it does not know of put before its last entry, HELP itself.
func AppendClientHelp(out []byte, r resp.Reply) []byte {
	last := max(len(r.Elems)-2, 0)
	out = resp.AppendArray(out, len(r.Elems)+2)
	for i, e := range r.Elems {
		if i == last {
			out = resp.AppendSimple(out, "CAPA <capability> [<capability> ...]")
			out = resp.AppendSimple(out, "    Say what this client can take: lock-lost, the push of a lost lock.")
		}
		out = append(out, e.Raw...)
	}
	return out
}

// ClientType reads a TYPE of CLIENT LIST and CLIENT KILL.
func ClientType(arg []byte) (kind string, known bool) {
	switch kind = strings.ToLower(string(arg)); kind {
	case "normal", "master", "replica", "pubsub":
		return kind, true
	case "slave":
		return "replica", true
	}
	return "", false
}

// UnknownType is the error for a TYPE that is none.
func UnknownType(arg []byte) string { return "ERR Unknown client type '" + Clip(arg) + "'" }

// ValidName says whether Redis would take name: printable ASCII without spaces.
func ValidName(name []byte) bool {
	for _, c := range name {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

// Clip shortens what is quoted in an error, as Redis does, to which a zero byte is the end.
func Clip(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b[:min(len(b), 128)])
}
