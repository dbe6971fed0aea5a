package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// The admin socket's clients are operators because the file's permissions let them in. Redis is never asked about them,
// nor for them: they are answered while it is away or hangs.

const notAtSocket = "ERR this is lockproxy's admin socket: it answers LOCKPROXY, CLIENT, INFO, COMMAND, PING, HELLO, " +
	"RESET and QUIT, and nobody logs in here"

// atSocket are the commands that are answered at the admin socket. Of these Redis answers some, which are not.
var atSocket = []string{"hello", "lockproxy", "client", "info", "command", "ping", "reset", "quit"}

var redisAnswers = []string{"client|pause", "client|unpause", "client|unblock", "client|getredir",
	"client|trackinginfo", "client|help", "command|getkeys", "command|getkeysandflags"}

// answerAtSocket answers a command at the admin socket, or refuses it.
func (s *Session) answerAtSocket(c *call) {
	if !s.client.Peer.Operator {
		return
	}
	switch {
	case c.answer == nil && equalFold(c.Args[0], "PING") && len(c.Args) <= 2: // it may have no row yet
		c.answer = pong
	case c.row == nil, c.answer == nil, !answeredAtSocket(c.row.Name):
		c.refuse(commandtable.Refused(notAtSocket), func(s *Session, _ [][]byte) { s.client.Error(notAtSocket) })
	}
	s.answerHere(c)
	c.over = true
}

func answeredAtSocket(name string) bool {
	whole, _, _ := strings.Cut(name, "|")
	return slices.Contains(atSocket, whole) && !slices.Contains(redisAnswers, name)
}

// pong answers PING as Redis does.
func pong(s *Session, args [][]byte) {
	if len(args) == 1 {
		s.client.Relay(resp.AppendSimple(nil, "PONG"), nil)
		return
	}
	s.client.Relay(resp.AppendBulk(nil, args[1]), nil)
}

// helloAtSocket is Greet at the admin socket. What the reply says of the connection, HELLO fills in.
func helloAtSocket(s *Session, o commands.HelloOptions) (answer resp.Reply, err error) {
	if o.Auth {
		return answer, &upstream.ReplyError{Line: notAtSocket}
	}
	id := s.client.Identity()
	if o.Proto != 0 {
		id.Proto = o.Proto
	}
	s.pipes.SetIdentity(id)
	if o.Named {
		s.Rename(o.Name)
	}
	out := resp.AppendArray(nil, 14)
	version := s.srv.o.Version
	for _, pair := range [][2]string{{"server", "lockproxy"}, {"version", version}, {"proto"}, {"id"}, {"mode"}, {"role"}} {
		out = resp.AppendBulkString(resp.AppendBulkString(out, pair[0]), pair[1])
	}
	out = resp.AppendArray(resp.AppendBulkString(out, "modules"), 0)
	answer, ok := resp.ParseReply(out)
	if !ok {
		return answer, fmt.Errorf("%q is no reply", out)
	}
	return answer, nil
}
