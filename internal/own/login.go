package own

import (
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// Authenticate logs the client's own connection in as well, as id, with these words.
func (o *Connections) Authenticate(id upstream.Identity, words ...string) error {
	p := o.current()
	if p == nil {
		return nil
	}
	err := p.Change(&dedicated.Reply{}, backend.QuestionTime, words...)
	if err == nil {
		p.Authenticated(id)
	}
	return err
}

// Hello has the client's own connections speak id's protocol, or, if it fails, none.
func (o *Connections) Hello(id upstream.Identity) error {
	if p := o.current(); p != nil {
		if err := p.Hello(id.Proto, backend.QuestionTime); err != nil {
			return err
		}
	}
	if o.subscriptions != nil {
		o.subscriptions.Hello(id.Proto)
	}
	return nil
}

// SelectDB switches the client's own connection to database n, which is word in the client's SELECT. has: there is
// such a connection, and it is one to a Redis that may have that database: a cluster's nodes are asked for database 0
// alone.
func (o *Connections) SelectDB(n int, word []byte) (reply []byte, has bool, err error) {
	if n < 0 || n > 0 && o.nodes != nil {
		return nil, false, nil
	}
	p := o.current()
	if p == nil {
		return nil, false, nil
	}
	reply, err = p.Ask(&dedicated.Reply{Effect: dedicated.Select(n)}, backend.QuestionTime, "SELECT", string(word))
	o.current() // the client is in that database
	return reply, true, err
}

// Rename gives the client's own connection its name.
func (o *Connections) Rename(name string) {
	if p := o.current(); p != nil {
		p.Rename(name)
	}
}
