package commands

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What a client says of itself and of its connection: CLIENT ID, SETNAME, GETNAME, SETINFO, CAPA, NO-EVICT, NO-TOUCH,
// REPLY, GETREDIR, TRACKINGINFO and HELP.

// Errors in Redis' words.
const (
	syntaxError  = "ERR syntax error"
	notANumber   = "ERR value is not an integer or out of range"
	clientNames  = "Client names"
	noKeys       = "ERR The command has no key arguments" // COMMAND GETKEYS of a command without keys
	badProto     = "NOPROTO unsupported protocol version"
	wrongPass    = "WRONGPASS invalid username-password pair or user is disabled."
	protoNotANum = "ERR Protocol version is not an integer or out of range"
)

func appendOK(out []byte) []byte { return resp.AppendSimple(out, "OK") }

func clientID(c *Client, _ [][]byte, out []byte) []byte { return resp.AppendInt(out, c.Number) }

// clientSays is CLIENT SETNAME, SETINFO, NO-EVICT, NO-TOUCH and CAPA: what the client says of itself is kept here.
func clientSays(c *Client, args [][]byte, out []byte) []byte {
	set, fault := saidIn("client|"+lower(args[1]), args)
	switch {
	case fault.line != "":
		return resp.AppendError(out, fault.line)
	case set.Of == client.SettingName:
		c.Session.Rename(set.Value)
	default:
		c.Set(set)
	}
	return appendOK(out)
}

func clientGetName(c *Client, _ [][]byte, out []byte) []byte {
	name := c.Name()
	if name == "" {
		return resp.AppendNull(out, c.proto())
	}
	return resp.AppendBulkString(out, name)
}

// LossPush is the capability of a client that wants to be told of lost locks. Redis itself pushes nothing that was not
// asked for, and there are libraries that take any push for the reply to their next command.
const LossPush = "lock-lost"

const traceparent = "traceparent"

// fault is what is wrong with what a client says of itself; the zero one: nothing.
type fault struct {
	line string
	ours bool // Redis would take it, so that it must not get it
}

// saidIn is what a call of a command says of the client, or what is wrong with that. The zero setting: it says nothing.
func saidIn(name string, args [][]byte) (client.Setting, fault) {
	value := string(args[len(args)-1])
	switch name {
	case "client|setname":
		return client.Setting{Of: client.SettingName, Value: value}, nameFault(clientNames, value)
	case "client|setinfo":
		return infoIn(string(args[2]), value)
	case "client|no-evict":
		return switchIn(client.SettingNoEvict, value)
	case "client|no-touch":
		return switchIn(client.SettingNoTouch, value)
	case "client|capa":
		if slices.ContainsFunc(args[2:], func(c []byte) bool { return same(c, strings.ToUpper(LossPush)) }) {
			return client.Setting{Of: client.SettingLossPush, Value: "ON"}, fault{}
		}
	}
	return client.Setting{}, fault{}
}

// infoIn is CLIENT SETINFO lib-name|lib-ver|traceparent value, as of Redis 7.2 but for traceparent. A library's name is
// what tells the lock engine that the connection may come out of a pool. What is wrong names the option in the client's
// letters.
func infoIn(option, value string) (client.Setting, fault) {
	of := map[string]client.SettingOf{"lib-name": client.SettingLibrary, "lib-ver": client.SettingVersion,
		traceparent: client.SettingParent}[strings.ToLower(option)]
	wrong := nameFault(option, value)
	switch {
	case of == client.NoSetting:
		return client.Setting{}, fault{line: "ERR Unrecognized option '" + quote([]byte(option)) + "'"}
	case of != client.SettingParent:
	case wrong.line != "":
		wrong.ours = true // Redis knows nothing of it
	default:
		if _, ok := telemetry.ReadParent(value); !ok {
			wrong = fault{"ERR traceparent must be 00-<trace id>-<span id>-<flags> in lower-case hexadecimal digits, or empty.", true}
		}
	}
	return client.Setting{Of: of, Value: value}, wrong
}

// switchIn is CLIENT NO-EVICT or CLIENT NO-TOUCH. What they switch is Redis' business with its own clients and only
// shown here.
func switchIn(of client.SettingOf, value string) (client.Setting, fault) {
	on := strings.ToUpper(value)
	if on != "ON" && on != "OFF" {
		return client.Setting{}, fault{line: syntaxError}
	}
	return client.Setting{Of: of, Value: on}, fault{}
}

// clientReply is CLIENT REPLY ON|OFF|SKIP. It is this proxy that keeps the replies back: Redis gives them all.
func clientReply(c *Client, args [][]byte, out []byte) []byte {
	switch strings.ToUpper(string(args[2])) {
	case "ON":
		c.SetReplies(client.RepliesOn)
		return appendOK(out)
	case "OFF":
		c.SetReplies(client.RepliesOff)
	case "SKIP":
		c.SetReplies(client.RepliesSkip)
	default:
		return resp.AppendError(out, syntaxError)
	}
	return out
}

// clientGetRedir is CLIENT GETREDIR, in our numbers.
func clientGetRedir(c *Client, args [][]byte, out []byte) []byte {
	answer, to, err := c.Session.AskOwn(args)
	if r, ok := resp.ParseReply(answer); err == nil && ok && isTarget(to, r) {
		return resp.AppendInt(out, to.Client)
	}
	return relay(c, answer, err, out)
}

// clientTrackingInfo is CLIENT TRACKINGINFO, in our numbers.
func clientTrackingInfo(c *Client, args [][]byte, out []byte) []byte {
	answer, to, err := c.Session.AskOwn(args)
	r, ok := resp.ParseReply(answer)
	if err != nil || !ok || len(r.Elems) == 0 {
		return relay(c, answer, err, out)
	}
	out = resp.AppendMap(out, c.proto(), len(r.Elems)/2)
	for i, e := range r.Elems {
		if i%2 == 1 && string(r.Elems[i-1].Text) == "redirect" && isTarget(to, e) {
			out = resp.AppendInt(out, to.Client)
			continue
		}
		out = append(out, e.Raw...)
	}
	return out
}

// isTarget says whether r is the number at Redis of the client that was named.
func isTarget(to dedicated.Redirect, r resp.Reply) bool {
	return r.Kind == ':' && to.Redis != 0 && string(r.Text) == strconv.FormatInt(to.Redis, 10)
}

// clientHelp is Redis' CLIENT HELP with what it does not know of put before its last entry, HELP itself.
func clientHelp(c *Client, args [][]byte, out []byte) []byte {
	answer, err := c.askRedis(args...)
	r, ok := resp.ParseReply(answer)
	if err != nil || !ok || !r.IsList() {
		return relay(c, answer, err, out)
	}
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

// mostName bounds the bytes of what a client calls itself, which is kept for as long as it is connected and shown in
// lists.
const mostName = 4096

// nameFault is what is wrong with a name that a client gives. What Redis takes is printable ASCII without spaces, of
// any length.
func nameFault(what, name string) fault {
	if strings.ContainsFunc(name, func(c rune) bool { return c < '!' || c > '~' }) {
		return fault{line: "ERR " + what + " cannot contain spaces, newlines or special characters."}
	}
	if len(name) > mostName {
		return fault{"ERR " + what + " cannot be longer than " + strconv.Itoa(mostName) + " bytes.", true}
	}
	return fault{}
}

// Queued is what Redis gets to queue in a transaction for a command that lockproxy answers itself otherwise, and what
// that does to the connection when the transaction runs it. name is what the client is called then; learned: Redis has
// told which commands it has.
func Queued(c *commandtable.Command, cmd redcon.Command, name string, learned bool) ([]byte, dedicated.Effect) {
	if !commandtable.ArityFits(c.Arity, len(cmd.Args)) {
		return cmd.Raw, nil // Redis refuses it
	}
	set, wrong := saidIn(c.Name, cmd.Args)
	known := c.Spec != nil || !learned
	switch {
	case wrong.ours:
		return resp.AppendCommand(nil, c.Probe...), nil // in its place a call that Redis refuses
	case wrong.line != "", set.Of == client.NoSetting:
		return cmd.Raw, effectOf(c, cmd.Args)
	case set.Of == client.SettingParent, set.Of != client.SettingName && !known:
		// No Redis knows of a traceparent, and all of a name: this is answered OK as well, and changes nothing.
		cmd.Raw = resp.AppendCommand(nil, "CLIENT", "SETNAME", name)
	}
	return cmd.Raw, dedicated.Setting(set)
}

// effectOf is what a command that says nothing of the client does to the connection if a transaction runs it.
func effectOf(c *commandtable.Command, args [][]byte) dedicated.Effect {
	if c.Name == "select" {
		if n, ok := resp.Integer(args[1]); ok {
			return dedicated.Select(n)
		}
	}
	return nil
}
