package session

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// authDedicated logs the session's own connection in as well.
func (s *Session) authDedicated(p *dedicatedConn, args [][]byte) error {
	p.Taint()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	reply, err := p.Ask(&dedicated.Reply{}, questionTime, words...)
	if line, bad := isError(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err == nil {
		p.Authenticated()
	}
	return err
}

// helloDedicated switches the session's own connection to id's protocol, and to its user.
func (s *Session) helloDedicated(p *dedicatedConn, id upstream.Identity, auth bool) error {
	p.Taint()
	words := []string{"HELLO", strconv.Itoa(id.Proto)}
	if auth {
		words = append(words, "AUTH", userName(id.User), id.Password)
	}
	reply, err := p.Ask(&dedicated.Reply{Effect: dedicated.Effect{Proto: id.Proto}}, questionTime, words...)
	if line, bad := isError(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err == nil && auth {
		p.Authenticated()
	}
	return err
}
