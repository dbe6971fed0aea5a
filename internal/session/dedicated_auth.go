package session

import (
	"strconv"

	"github.com/lockproxy/lockproxy/upstream"
)

// authDedicated logs the session's own connection in as well.
func (s *Session) authDedicated(p *dedicated, args [][]byte) error {
	p.taint()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	reply, err := p.ask(&pendingReply{}, words...)
	if line, bad := isError(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err == nil {
		p.conn.Authenticated()
	}
	return err
}

// helloDedicated switches the session's own connection to id's protocol, and to its user.
func (s *Session) helloDedicated(p *dedicated, id upstream.Identity, auth bool) error {
	p.taint()
	words := []string{"HELLO", strconv.Itoa(id.Proto)}
	if auth {
		words = append(words, "AUTH", userName(id.User), id.Password)
	}
	reply, err := p.ask(&pendingReply{effect: effect{proto: id.Proto}}, words...)
	if line, bad := isError(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err == nil && auth {
		p.conn.Authenticated()
	}
	return err
}
