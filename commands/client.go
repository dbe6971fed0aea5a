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

// What a client says of itself and of its connection: CLIENT ID, SETNAME, GETNAME, SETINFO, CAPA, NO-EVICT, NO-TOUCH, REPLY, GETREDIR,
// TRACKINGINFO and HELP.

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

func clientSetName(c *Client, args [][]byte, out []byte) []byte {
	if fault := nameFault(clientNames, args[2]); fault != "" {
		return resp.AppendError(out, fault)
	}
	c.Session.Rename(string(args[2]))
	return appendOK(out)
}

func clientGetName(c *Client, _ [][]byte, out []byte) []byte {
	name := c.Name()
	if name == "" {
		return resp.AppendNull(out, c.proto())
	}
	return resp.AppendBulkString(out, name)
}

// clientSetInfo is CLIENT SETINFO lib-name|lib-ver|traceparent value, as of Redis 7.2 but for traceparent. A library's name is what
// tells the lock engine that the connection may come out of a pool.
func clientSetInfo(c *Client, args [][]byte, out []byte) []byte {
	of, known := infoOptions[lower(args[2])]
	if !known {
		return resp.AppendError(out, "ERR Unrecognized option '"+quote(args[2])+"'")
	}
	if fault := infoFault(string(args[2]), args[3]); fault != "" {
		return resp.AppendError(out, fault)
	}
	c.Set(client.Setting{Of: of, Value: string(args[3])})
	return appendOK(out)
}

const traceparent = "traceparent"

var infoOptions = map[string]client.SettingOf{
	"lib-name": client.SettingLibrary, "lib-ver": client.SettingVersion, traceparent: client.SettingParent,
}

// infoFault is the error of a client that gives CLIENT SETINFO's option that value; "": none. It names the option in the client's letters.
func infoFault(option string, value []byte) string {
	if fault := nameFault(option, value); fault != "" || !strings.EqualFold(option, traceparent) {
		return fault
	}
	if _, ok := telemetry.ReadParent(string(value)); !ok {
		return "ERR traceparent must be 00-<trace id>-<span id>-<flags> in lower-case hexadecimal digits, or empty."
	}
	return ""
}

// clientSwitch is CLIENT NO-EVICT and CLIENT NO-TOUCH. What they switch is Redis' business with its own clients and only shown here.
func clientSwitch(c *Client, args [][]byte, out []byte) []byte {
	set := SettingIn("client|"+lower(args[1]), args)
	if set == (client.Setting{}) {
		return resp.AppendError(out, syntaxError)
	}
	c.Set(set)
	return appendOK(out)
}

func isSwitch(arg []byte) bool { return same(arg, "ON") || same(arg, "OFF") }

// LossPush is the capability of a client that wants to be told of lost locks. Redis itself pushes nothing that was not asked for, and
// there are libraries that take any push for the reply to their next command.
const LossPush = "lock-lost"

// clientCapa is CLIENT CAPA capability …, as of Valkey 8: what it does not know it ignores.
func clientCapa(c *Client, args [][]byte, out []byte) []byte {
	if hasLossPush(args[2:]) {
		c.Set(client.Setting{Of: client.SettingLossPush, Value: "ON"})
	}
	return appendOK(out)
}

// hasLossPush says whether LossPush is among the capabilities.
func hasLossPush(capabilities [][]byte) bool {
	return slices.ContainsFunc(capabilities, func(c []byte) bool { return same(c, strings.ToUpper(LossPush)) })
}

// SettingIn is what a call of a command sets once Redis, where it was queued, has run it; the zero one: nothing, or Redis would not take
// it.
func SettingIn(name string, args [][]byte) client.Setting {
	switch {
	case name == "client|setname" && len(args) == 3 && validName(args[2]):
		return client.Setting{Of: client.SettingName, Value: string(args[2])}
	case name == "client|setinfo" && len(args) == 4:
		option := lower(args[2])
		if of, known := infoOptions[option]; known && infoFault(option, args[3]) == "" {
			return client.Setting{Of: of, Value: string(args[3])}
		}
	case name == "client|no-evict" && len(args) == 3 && isSwitch(args[2]):
		return client.Setting{Of: client.SettingNoEvict, Value: strings.ToUpper(string(args[2]))}
	case name == "client|no-touch" && len(args) == 3 && isSwitch(args[2]):
		return client.Setting{Of: client.SettingNoTouch, Value: strings.ToUpper(string(args[2]))}
	case name == "client|capa" && len(args) > 2 && hasLossPush(args[2:]):
		return client.Setting{Of: client.SettingLossPush, Value: "ON"}
	}
	return client.Setting{}
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
	answer, err := c.ask(args...)
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

// mostName bounds the bytes of what a client calls itself, which is kept for as long as it is connected and shown in lists.
const mostName = 4096

// nameFault is the error of a client that calls itself so; "": none. What Redis takes is printable ASCII without spaces, of any length.
func nameFault(what string, name []byte) string {
	for _, c := range name {
		if c < '!' || c > '~' {
			return "ERR " + what + " cannot contain spaces, newlines or special characters."
		}
	}
	if len(name) > mostName {
		return "ERR " + what + " cannot be longer than " + strconv.Itoa(mostName) + " bytes."
	}
	return ""
}

func validName(name []byte) bool { return nameFault("", name) == "" }

// Withheld says whether a call of a command is refused here and Redis must not get it: it gives the client a name, or one to its
// library, that Redis would take, or a malformed traceparent, of which Redis knows nothing.
func Withheld(name string, args [][]byte) bool {
	switch {
	case name == "client|setname" && len(args) == 3:
		return len(args[2]) > mostName
	case name == "client|setinfo" && len(args) == 4:
		return len(args[3]) > mostName || same(args[2], "TRACEPARENT") && infoFault(traceparent, args[3]) != ""
	}
	return false
}

// Queued is what Redis gets to queue in a transaction for a command that lockproxy answers itself otherwise, and what that does to the connection
// when the transaction runs it. name is what the client is called then; learned: Redis has told which commands it has.
func Queued(c *commandtable.Command, cmd redcon.Command, name string, learned bool) ([]byte, dedicated.Effect) {
	e := effectOf(c, cmd.Args)
	set, _ := e.(dedicated.Setting)
	switch {
	case Withheld(c.Name, cmd.Args):
		return resp.AppendCommand(nil, c.Probe...), e // in its place a call that Redis refuses
	case isUnknown(set.Of, c.Spec != nil || !learned):
		return resp.AppendCommand(nil, "CLIENT", "SETNAME", name), e // it is answered OK as well, and changes nothing
	}
	return cmd.Raw, e
}

// isUnknown says of a setting that Redis does not know it; has: it has a command for it. All know of a name, and none of a traceparent.
func isUnknown(of client.SettingOf, has bool) bool {
	switch of {
	case client.NoSetting, client.SettingName:
		return false
	case client.SettingParent:
		return true
	}
	return !has
}

// effectOf is what a command does to the connection if a transaction runs it; otherwise lockproxy answers such a command itself.
func effectOf(c *commandtable.Command, args [][]byte) dedicated.Effect {
	switch {
	case c.Name == "select" && len(args) == 2:
		if n, ok := resp.Integer(args[1]); ok {
			return dedicated.Select(n)
		}
	case c.Name == "client|pause":
		return dedicated.Pause(WritePause(args))
	default:
		if set := SettingIn(c.Name, args); set.Of != client.NoSetting {
			return dedicated.Setting(set)
		}
	}
	return nil
}
