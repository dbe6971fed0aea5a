package own

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Authenticate logs the client's own connection in as well, with these words.
func (o *Connections) Authenticate(words ...string) error {
	p := o.current()
	if p == nil {
		return nil
	}
	defer o.release()
	err := change(p.Conn, &dedicated.Reply{}, words...)
	if err == nil {
		p.Authenticated()
	}
	return err
}

// Hello has the client's own connections speak id's protocol.
func (o *Connections) Hello(id upstream.Identity) error {
	if p := o.current(); p != nil {
		defer o.release()
		if err := hello(p.Conn, id); err != nil {
			return err
		}
	}
	return o.path.helloSubscriptions(id)
}

// hello is Hello of one connection.
func hello(p *dedicated.Conn, id upstream.Identity) error {
	return change(p, &dedicated.Reply{Effect: dedicated.Effect{Proto: id.Proto}}, "HELLO", strconv.Itoa(id.Proto))
}

// change asks p what makes it another user's, or another protocol's.
func change(p *dedicated.Conn, e *dedicated.Reply, words ...string) error {
	p.Taint()
	reply, err := p.Ask(e, backend.QuestionTime, words...)
	if line, bad := resp.ErrorLine(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	return err
}

// SelectDB has the client's own connection be in a database, which SELECT named by word. has: there is one.
func (o *Connections) SelectDB(n int, word []byte) (reply []byte, has bool, err error) {
	p := o.current()
	if p == nil {
		return nil, false, nil
	}
	reply, err = p.Ask(&dedicated.Reply{Effect: dedicated.Effect{Selects: true, DB: n}}, backend.QuestionTime, "SELECT", string(word))
	o.current() // takes the database on
	o.release()
	return reply, true, err
}

// Rename gives the client's own connection its name.
func (o *Connections) Rename(name string) {
	if p := o.current(); p != nil {
		p.Rename(name)
		o.release()
	}
}
