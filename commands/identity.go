package commands

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Who the client is: AUTH, HELLO, SELECT, RESET and QUIT.

// auth is AUTH [user] password. Redis decides.
func auth(c *Client, args [][]byte, out []byte) []byte {
	if len(args) > 3 {
		return resp.AppendError(out, syntaxError)
	}
	user, password := "", string(args[len(args)-1])
	if len(args) == 3 {
		if user = string(args[1]); user == "" {
			return resp.AppendError(out, wrongPass) // to Login "" means Redis' default user
		}
	}
	if err := c.Session.Login(user, password); err != nil {
		return c.Failed(out, err)
	}
	return appendOK(out)
}

// hello is HELLO [version [AUTH user password] [SETNAME name]]. Redis is asked on the connection the client would have,
// and its answer given with this proxy's view of the connection.
func hello(c *Client, args [][]byte, out []byte) []byte {
	o, line := parseHello(args)
	if line == "" && o.Auth && o.User == "" {
		line = wrongPass
	}
	if line != "" {
		return resp.AppendError(out, line)
	}
	answer, err := c.Session.Greet(o)
	if err != nil {
		return c.Failed(out, err)
	}
	c.Give(appendHello(nil, c, answer))
	c.Session.Greeted()
	return out
}

// appendHello appends Redis' answer to HELLO, but for what it says of the connection and of the server's place.
func appendHello(out []byte, c *Client, r resp.Reply) []byte {
	out = resp.AppendMap(out, c.proto(), len(r.Elems)/2)
	for i := 0; i+1 < len(r.Elems); i += 2 {
		out = append(out, r.Elems[i].Raw...)
		switch string(r.Elems[i].Text) {
		case "proto":
			out = resp.AppendInt(out, int64(c.proto()))
		case "id":
			out = resp.AppendInt(out, c.Number)
		case "mode":
			out = resp.AppendBulkString(out, c.Proxy.About().mode())
		case "role":
			out = resp.AppendBulkString(out, "master")
		default:
			out = append(out, r.Elems[i+1].Raw...)
		}
	}
	return out
}

// selectDB is SELECT index. What is no number, or none of 32 bits, every Redis refuses in these words.
func selectDB(c *Client, args [][]byte, out []byte) []byte {
	n, ok := resp.Integer(args[1])
	switch {
	case !ok:
		return resp.AppendError(out, notANumber)
	case n < -1<<31 || n >= 1<<31:
		return resp.AppendError(out, "ERR value is out of range, value must between -2147483648 and 2147483647")
	}
	reply, err := c.Session.SelectDB(int(n))
	return relay(c, reply, err, out)
}

// reset is RESET: the connection is as new, and its locks are released as if it had gone.
func reset(c *Client, _ [][]byte, out []byte) []byte {
	c.Session.Reset()
	return resp.AppendSimple(out, "RESET")
}

// quit is QUIT: the rest of the pipeline is not run, and the client counts as gone.
func quit(c *Client, _ [][]byte, out []byte) []byte {
	c.Give(appendOK(nil))
	c.Flush()
	c.End.HangUp(downstream.Gone, "QUIT")
	return out
}

func speaksHTTP(c *Client, _ [][]byte, out []byte) []byte {
	c.Process.Log.Warn("closed a client that speaks HTTP: a cross-protocol attack, or a probe", "client", c.Peer.Addr)
	c.End.HangUp(downstream.Left, "speaks HTTP")
	return out
}

// HelloOptions is what HELLO was given.
type HelloOptions struct {
	Proto          int // 0: the one in use
	Auth, Named    bool
	User, Password string
	Name           string
}

// parseHello reads HELLO. line is the error that Redis gives; "": none.
func parseHello(args [][]byte) (o HelloOptions, line string) {
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
			if wrong := nameFault(clientNames, string(args[i+1])); wrong.line != "" {
				return o, wrong.line
			}
			o.Named, o.Name = true, string(args[i+1])
			i++
		default:
			return o, "ERR Syntax error in HELLO option '" + quote(args[i]) + "'"
		}
	}
	return o, ""
}
